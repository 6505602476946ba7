"""From a request to the body that the Messages API takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InvalidRequest
from ...types.requests import OutputSpec
from .._history import output_prompt
from .._protocol import ModelRequest
from .._vendor import sdk, settings_of
from ._content import messages_of
from ._models import has_formats, is_adaptive, output_cap
from ._settings import AnthropicSettings

__all__ = ["OUTPUT_TOOL", "messages_request"]

OUTPUT_TOOL = "give_answer"
# The version of the API that still has settings for sampling.
_SAMPLING_VERSION = "2023-06-01"
_LEAST_BUDGET = 1024
# How many tokens an effort stands for with models that have a budget.
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 24_576, "max": 31_999}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_UNCACHEABLE = ("thinking", "redacted_thinking")
_AS_THEY_ARE = ("service_tier", "speed", "inference_geo", "metadata")


def messages_request(
    model: str, shown: str, request: ModelRequest, headers: Mapping[str, str]
) -> tuple[dict[str, Any], bool]:
    """The arguments for the SDK's `messages.create`, and whether the answer will come as a call of `OUTPUT_TOOL`;
    `shown` is the model's name in errors, `headers` those that the client sends."""
    settings = request.settings
    own = settings_of(shown, settings.extra, AnthropicSettings)
    body: dict[str, Any] = {"model": model, "stream": True}
    extra: dict[str, Any] = _sampling(shown, request, {**headers, **own.get("headers", {})})
    thinking, effort = own.get("thinking"), None
    if thinking is None:
        thinking, effort = _thinking(shown, model, settings.reasoning)
    config: dict[str, Any] = {"effort": effort} if effort else {}
    system, tools, answers = request.system, _tools(request), False
    if request.output is not None:
        enforced = _format(model, request.output)
        if enforced is not None:
            config["format"] = enforced
        elif _can_answer_by_tool(request.output, thinking):
            answers = True
            tools.append(_output_tool(request.output))
        else:
            system = "\n\n".join(part for part in (system, output_prompt(request.output)) if part)
    if tools:
        body["tools"] = tools
        body |= _tool_choice(own, answers, len(tools) > 1)
    if system:
        body["system"] = [{"type": "text", "text": system}]
    body["messages"] = messages_of(shown, request)
    body["max_tokens"] = _max_tokens(model, settings.max_tokens, thinking)
    if thinking is not None:
        body["thinking"] = thinking
    if config:
        body["output_config"] = config
    if settings.stop:
        body["stop_sequences"] = list(settings.stop)
    if (ttl := own.get("cache", "5m")) != "off":
        _mark(body, {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl})
    body |= {name: value for name, value in own.items() if name in _AS_THEY_ARE}
    sent = dict(own.get("headers", {}))
    if betas := own.get("betas"):
        sent["anthropic-beta"] = ",".join(betas)
    if sent:
        body["extra_headers"] = sent
    if extra := {**extra, **own.get("body", {})}:
        body["extra_body"] = extra
    return body, answers


def _sampling(shown: str, request: ModelRequest, headers: Mapping[str, str]) -> dict[str, Any]:
    settings = request.settings
    given = {"temperature": settings.temperature, "top_p": settings.top_p}
    given = {name: value for name, value in given.items() if value is not None}
    version = next((value for name, value in headers.items() if name.lower() == "anthropic-version"), "")
    if given and version != _SAMPLING_VERSION:
        raise InvalidRequest(
            f"{shown} takes no {' and no '.join(given)}: the API has none since its version 2026-10-21; "
            f"leave it out, or give the model the header anthropic-version: {_SAMPLING_VERSION}"
        )
    return given


def _thinking(shown: str, model: str, reasoning: str | int | None) -> tuple[dict[str, Any] | None, str | None]:
    """The setting for thinking, and the effort."""
    if reasoning is None:
        return None, None
    if isinstance(reasoning, int):
        if reasoning < _LEAST_BUDGET:
            raise InvalidRequest(
                f"{shown} thinks with at least {_LEAST_BUDGET:,} tokens, not {reasoning:,}; say 'none' for none"
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
    """The limit, which the API wants to have; thinking counts towards it, and must leave room for the answer."""
    cap = output_cap(model)
    budget: int = (thinking or {}).get("budget_tokens", 0)
    if given is None:
        return max(cap, budget + 4096)
    return given if given > budget else budget + given


def _tools(request: ModelRequest) -> list[dict[str, Any]]:
    return [
        {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}
        for spec in request.tools
    ]


def _tool_choice(own: AnthropicSettings, answers: bool, others: bool) -> dict[str, Any]:
    choice: dict[str, Any] = dict(own.get("tool_choice", {}))
    if answers:
        choice = {"type": "any"} if others else {"type": "tool", "name": OUTPUT_TOOL}
    if "parallel_tool_calls" in own:
        choice = {"type": "auto", **choice, "disable_parallel_tool_use": not own["parallel_tool_calls"]}
    return {"tool_choice": choice} if choice else {}


def _format(model: str, output: OutputSpec) -> dict[str, Any] | None:
    if not has_formats(model):
        return None
    try:
        schema = sdk("anthropic", "anthropic").transform_schema(output.schema)
    except (ValueError, AssertionError, KeyError, TypeError):
        return None  # The SDK knows which schemas the API takes.
    return {"type": "json_schema", "schema": schema} if schema.get("type") == "object" else None


def _can_answer_by_tool(output: OutputSpec, thinking: Mapping[str, Any] | None) -> bool:
    # A model can't be made to call a tool while it thinks.
    on = thinking is not None and thinking.get("type") != "disabled"
    return not on and output.schema.get("type") == "object"


def _output_tool(output: OutputSpec) -> dict[str, Any]:
    return {
        "name": OUTPUT_TOOL,
        "description": "Give your final answer. Call this once, when you need no other tool any more.",
        "input_schema": output.schema,
    }


def _mark(body: dict[str, Any], mark: dict[str, str]) -> None:
    """Mark what is to be cached: the tools, the system text, and the last two turns that end a prefix, so that the
    next request finds this one's. The API allows four marks."""
    if tools := body.get("tools"):
        tools[-1] = {**tools[-1], "cache_control": mark}
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
