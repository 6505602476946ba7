"""Building the body of a Messages API request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InvalidRequest
from ...types.requests import OutputSpec
from ..protocol import ModelRequest
from ..shared.history import output_prompt
from ..shared.support import check_server_tools, check_settings, tool_choice_of
from ..shared.vendor import parse_extra, sdk
from .content import convert_messages
from .generations import has_formats, has_system_messages, is_adaptive, output_cap
from .server_tools import server_tools
from .settings import SUPPORT, AnthropicSettings

__all__ = ["OUTPUT_TOOL", "messages_request"]

OUTPUT_TOOL = "give_answer"
# The API version with sampling settings.
_SAMPLING_VERSION = "2023-06-01"
_MIN_BUDGET = 1024
# The token budget of each effort, for models without adaptive thinking.
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 24_576, "max": 31_999}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_UNCACHEABLE = ("thinking", "redacted_thinking")
_PASSED_THROUGH = ("speed", "inference_geo", "metadata")


def messages_request(
    model: str,
    shown: str,
    request: ModelRequest,
    headers: Mapping[str, str],
    *,
    takes_system_messages: bool = True,
) -> tuple[dict[str, Any], bool]:
    """Build the arguments of the SDK's `messages.create`, and whether the answer comes as a call of `OUTPUT_TOOL`.

    `shown` is the model's name in errors, `headers` are those of the client.
    """
    settings = request.settings
    check_settings(shown, settings, SUPPORT)
    check_server_tools(shown, request.server_tools, SUPPORT)
    own = parse_extra(shown, settings.extra, AnthropicSettings)
    body: dict[str, Any] = {"model": model, "stream": True}
    extra: dict[str, Any] = _sampling(shown, request, {**headers, **settings.headers})
    thinking, effort = own.get("thinking"), None
    if thinking is None:
        thinking, effort = _thinking(shown, model, settings.reasoning)
    config: dict[str, Any] = {"effort": effort} if effort else {}
    answers_by_tool = False
    system, messages = convert_messages(shown, request, takes_system_messages and has_system_messages(model))
    tools = [*_tools(request), *server_tools(request.server_tools)]
    if request.output is not None:
        enforced = _format(model, request.output)
        if enforced is not None:
            config["format"] = enforced
        elif _can_answer_by_tool(request.output, thinking):
            answers_by_tool = True
            tools.append(_output_tool(request.output))
        else:
            system = "\n\n".join(part for part in (system, output_prompt(request.output)) if part)
    if tools:
        body["tools"] = tools
    body |= _tool_choice(shown, request, answers_by_tool)
    if system:
        body["system"] = [{"type": "text", "text": system}]
    body["messages"] = messages
    body["max_tokens"] = _max_tokens(model, settings.max_tokens, thinking)
    if thinking is not None:
        body["thinking"] = thinking
    if config:
        body["output_config"] = config
    if settings.stop:
        body["stop_sequences"] = list(settings.stop)
    if (ttl := own.get("cache", "5m")) != "off":
        _mark_cache(body, {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl})
    body |= {name: value for name, value in own.items() if name in _PASSED_THROUGH}
    if settings.service_tier is not None:
        body["service_tier"] = settings.service_tier
    if settings.user is not None:
        body["metadata"] = {**own.get("metadata", {}), "user_id": settings.user}
    if sent := _headers(settings.headers, own.get("betas")):
        body["extra_headers"] = sent
    if extra := {**extra, **settings.body}:
        body["extra_body"] = extra
    return body, answers_by_tool


def _headers(given: Mapping[str, str], betas: Sequence[str] | None) -> dict[str, str]:
    return {**given, **({"anthropic-beta": ",".join(betas)} if betas else {})}


def _sampling(shown: str, request: ModelRequest, headers: Mapping[str, str]) -> dict[str, Any]:
    settings = request.settings
    given = {"temperature": settings.temperature, "top_p": settings.top_p}
    given = {name: value for name, value in given.items() if value is not None}
    version = next((value for name, value in headers.items() if name.lower() == "anthropic-version"), "")
    if given and version != _SAMPLING_VERSION:
        raise InvalidRequest(
            f"{shown} takes no {' and no '.join(given)}: the API has none since its version 2026-10-21; "
            f"omit it, or give the model the header anthropic-version: {_SAMPLING_VERSION}"
        )
    return given


def _thinking(shown: str, model: str, reasoning: str | int | None) -> tuple[dict[str, Any] | None, str | None]:
    """The thinking setting and the effort."""
    if reasoning is None:
        return None, None
    if isinstance(reasoning, int):
        if reasoning < _MIN_BUDGET:
            raise InvalidRequest(
                f"{shown} thinks with at least {_MIN_BUDGET:,} tokens, not {reasoning:,}; say 'none' for none"
            )
        return {"type": "enabled", "budget_tokens": reasoning}, None
    if reasoning == "none":
        return {"type": "disabled"}, None
    if reasoning not in _EFFORTS:
        known = ", ".join(["none", *_EFFORTS])
        raise InvalidRequest(
            f"{shown} has no reasoning effort {reasoning!r} (known: {known}, or a number of tokens)"
        )
    if is_adaptive(model):
        return {"type": "adaptive", "display": "summarized"}, _EFFORTS[reasoning]
    return {"type": "enabled", "budget_tokens": _BUDGETS[reasoning]}, None


def _max_tokens(model: str, given: int | None, thinking: Mapping[str, Any] | None) -> int:
    """The output limit, which the API requires. Thinking counts towards it and must leave room for the answer."""
    cap = output_cap(model)
    budget: int = (thinking or {}).get("budget_tokens", 0)
    if given is None:
        return max(cap, budget + 4096)
    return given if given > budget else budget + given


def _tools(request: ModelRequest) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    for spec in request.tools:
        tool: dict[str, Any] = {
            "name": spec.name,
            "description": spec.description,
            "input_schema": spec.parameters,
        }
        tools.append({**tool, "defer_loading": True} if spec.deferred else tool)
    return tools


def _tool_choice(shown: str, request: ModelRequest, answers_by_tool: bool) -> dict[str, Any]:
    given, parallel = tool_choice_of(shown, request), request.settings.parallel_tool_calls
    choice: dict[str, Any] = {}
    if answers_by_tool and given in (None, "auto", "none"):
        others = (request.tools or request.server_tools) and given != "none"
        choice = {"type": "any"} if others else {"type": "tool", "name": OUTPUT_TOOL}
    elif given is not None:
        kind = {"auto": "auto", "required": "any", "none": "none"}.get(given)
        choice = {"type": "tool", "name": given} if kind is None else {"type": kind}
    if parallel is not None and request.tools and choice.get("type") != "none":
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": not parallel}
    return {"tool_choice": choice} if choice else {}


def _format(model: str, output: OutputSpec) -> dict[str, Any] | None:
    if not has_formats(model):
        return None
    try:
        schema = sdk("anthropic", "anthropic").transform_schema(output.schema)
    except (ValueError, AssertionError, KeyError, TypeError):
        return None  # The API doesn't support the schema.
    return {"type": "json_schema", "schema": schema} if schema.get("type") == "object" else None


def _can_answer_by_tool(output: OutputSpec, thinking: Mapping[str, Any] | None) -> bool:
    # The API can't force a tool call with thinking.
    on = thinking is not None and thinking.get("type") != "disabled"
    return not on and output.schema.get("type") == "object"


def _output_tool(output: OutputSpec) -> dict[str, Any]:
    return {
        "name": OUTPUT_TOOL,
        "description": "Give your final answer. Call this once, when you need no other tool any more.",
        "input_schema": output.schema,
    }


def _mark_cache(body: dict[str, Any], mark: dict[str, str]) -> None:
    """Mark prefixes for the cache: the tools, the system text, and the last two user turns.

    The next request then finds the prefix of this one. The API allows four marks.
    """
    tools: list[dict[str, Any]] = body.get("tools", [])
    shown = [place for place, tool in enumerate(tools) if "defer_loading" not in tool]
    if shown:  # The API refuses a mark on a deferred tool, which isn't part of the prefix.
        tools[shown[-1]] = {**tools[shown[-1]], "cache_control": mark}
    if system := body.get("system"):
        system[-1] = {**system[-1], "cache_control": mark}
    left = 2
    for message in reversed(body["messages"]):
        if message["role"] != "user" or not left:
            continue
        content = message["content"]
        if content[-1]["type"] not in _UNCACHEABLE:
            content[-1] = {**content[-1], "cache_control": mark}
            left -= 1
