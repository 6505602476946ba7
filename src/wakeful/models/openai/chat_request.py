"""Building the body of a Chat Completions request, in the dialect of a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InvalidRequest
from ...types.requests import ToolSpec
from ..protocol import ModelRequest
from ..shared.history import output_prompt
from ..shared.support import check_server_tools, check_settings, tool_choice_of
from .chat_messages import chat_messages
from .dialect import Dialect, chat_support, chat_tools
from .schema import is_object, strict_schema

__all__ = ["chat_request"]

# Settings that don't go into the body under their own name.
_PLACED = ("image_detail",)


def chat_request(
    model: str, shown: str, vendor: str, request: ModelRequest, own: Mapping[str, Any], dialect: Dialect
) -> dict[str, Any]:
    """Build the body of a request. `shown` is the model's name in errors, `own` are the settings of the vendor."""
    settings, support = request.settings, chat_support(dialect)
    check_settings(shown, settings, support)
    check_server_tools(shown, request.server_tools, support)
    body: dict[str, Any] = {"model": model, "stream": True}
    system = request.system
    if request.output is not None:
        output_format = _format(request, dialect)
        if output_format is not None:
            body["response_format"] = output_format
        if output_format is None or output_format["type"] == "json_object":
            system = "\n\n".join(part for part in (system, output_prompt(request.output)) if part)
    body |= chat_tools(shown, request.server_tools, dialect)
    if tools := [*body.get("tools", ()), *[_tool(spec, dialect) for spec in request.tools]]:
        body["tools"] = tools
    messages = [{"role": "system", "content": system}] if system else []
    body["messages"] = [*messages, *chat_messages(shown, vendor, request, own.get("image_detail"), dialect)]
    if dialect.usage:
        body["stream_options"] = {"include_usage": True}
    common = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        dialect.max_tokens: settings.max_tokens,
        "stop": list(settings.stop) or None,
        dialect.seed: settings.seed,
        "parallel_tool_calls": settings.parallel_tool_calls,
        "service_tier": settings.service_tier,
        "user": settings.user,
        "logprobs": None if settings.logprobs is None else True,
        "top_logprobs": settings.logprobs,
        "tool_choice": _choice(shown, request, dialect),
    }
    body |= {name: value for name, value in common.items() if value is not None}
    if settings.reasoning is not None:
        body |= _effort(shown, settings.reasoning, dialect)
    if dialect.thinking and ("thinking" in body or any("reasoning_content" in one for one in body["messages"])):
        body["thinking"] = {**body.get("thinking", {}), **dialect.thinking}
    body |= {name: value for name, value in own.items() if name not in _PLACED}
    return {**body, **settings.body}


def _choice(shown: str, request: ModelRequest, dialect: Dialect) -> Any:
    choice = tool_choice_of(shown, request)
    if choice in (None, "auto", "none"):
        return choice
    if choice != "required":
        return {"type": "function", "function": {"name": choice}}
    if dialect.required is None:
        raise InvalidRequest(f"{shown} takes no tool_choice 'required'; name a tool, or omit it")
    return dialect.required


def _effort(shown: str, effort: str | int, dialect: Dialect) -> dict[str, Any]:
    is_on = effort not in ("none", 0)
    if dialect.effort == "reasoning":
        return {"reasoning": {"max_tokens": effort} if isinstance(effort, int) else {"effort": effort}}
    if dialect.effort == "enable_thinking":
        budget = {"thinking_budget": effort} if is_on and isinstance(effort, int) else {}
        return {"enable_thinking": is_on, **budget}
    if isinstance(effort, int):
        raise InvalidRequest(
            f"{shown} takes reasoning as an effort, such as 'low' or 'high', not as a number of tokens"
        )
    if dialect.effort == "thinking":
        return {"thinking": {"type": "enabled" if is_on else "disabled"}}
    return {"reasoning_effort": effort}


def _format(request: ModelRequest, dialect: Dialect) -> dict[str, Any] | None:
    output = request.output
    if output is None or dialect.output == "words" or not is_object(output.schema):
        return None
    if request.tools and not dialect.output_with_tools:
        return None
    if dialect.output == "json_object":
        return {"type": "json_object"}
    strict = strict_schema(output.schema)
    made = {"name": output.name, "schema": output.schema if strict is None else strict}
    return {"type": "json_schema", "json_schema": {**made, "strict": strict is not None}}


def _tool(spec: ToolSpec, dialect: Dialect) -> dict[str, Any]:
    strict = strict_schema(spec.parameters) if dialect.strict else None
    function: dict[str, Any] = {"name": spec.name, "description": spec.description}
    function["parameters"] = spec.parameters if strict is None else strict
    if strict is not None:
        function["strict"] = True
    return {"type": "function", "function": function}
