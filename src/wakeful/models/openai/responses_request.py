"""Building the body of a Responses API request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...errors import InvalidRequest
from ...types.content import Text, Thinking, ToolReply
from ...types.requests import TOOL_SEARCH, ToolSpec
from ..protocol import ModelRequest
from ..shared.history import Entry, Media, build_entries, call_ids, found_tools, output_prompt, reply_text
from ..shared.support import check_server_tools, check_settings, tool_choice_of
from ..shared.vendor import parse_extra
from .content import responses_part, takes_responses
from .dialect import ResponsesDialect, responses_support, responses_tools
from .responses_answers import answer_items, is_phase
from .responses_items import result_item
from .schema import is_object, strict_schema
from .settings import OpenAISettings

__all__ = ["responses_request"]

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# Models without reasoning, which refuse reasoning items and requests for them.
_PLAIN = re.compile(r"(ft:)?(gpt-3\.5|gpt-4|chatgpt-4)")
# Settings with the same name in the body.
_PASSED_THROUGH = (
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "metadata", "truncation"),
    "max_tool_calls",
)


def responses_request(
    model: str, shown: str, vendor: str, request: ModelRequest, dialect: ResponsesDialect
) -> dict[str, Any]:
    """Build the body of a request to `vendor`. `shown` is the model's name in errors."""
    settings, support = request.settings, responses_support(dialect)
    check_settings(shown, settings, support)
    check_server_tools(shown, request.server_tools, support)
    own = parse_extra(shown, settings.extra, OpenAISettings)
    can_reason = _PLAIN.match(model) is None
    system, text = request.system, _text(request, own)
    if request.output is not None and "format" not in text:
        system = "\n\n".join(part for part in (system, output_prompt(request.output)) if part)
    body: dict[str, Any] = {"model": model, "stream": True, "store": own.get("store", False)}
    if system:
        body["instructions"] = system
    ran = responses_tools(shown, request.server_tools, dialect)
    if tools := [*own.get("tools", ()), *ran, *_tools(request)]:
        body["tools"] = tools
    body["input"] = _input(shown, vendor, request, own, can_reason)
    if text:
        body["text"] = text
    include = ["reasoning.encrypted_content"] if can_reason and dialect.encrypted else []
    if settings.logprobs is not None:
        include.append("message.output_text.logprobs")
    if include:
        body["include"] = include
    if reasoning := _reasoning(shown, request, own):
        body["reasoning"] = reasoning
    common = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_tokens,
        "parallel_tool_calls": settings.parallel_tool_calls,
        "service_tier": settings.service_tier,
        "safety_identifier": settings.user,
        "top_logprobs": settings.logprobs,
    }
    body |= {name: value for name, value in common.items() if value is not None}
    body |= {name: value for name, value in own.items() if name in _PASSED_THROUGH}
    if (choice := tool_choice_of(shown, request)) is not None:
        named = {"type": "function", "name": choice}
        body["tool_choice"] = choice if choice in ("auto", "required", "none") else named
    return {**body, **settings.body}


def _text(request: ModelRequest, own: OpenAISettings) -> dict[str, Any]:
    text: dict[str, Any] = {}
    if request.output is not None and is_object(request.output.schema):
        strict = strict_schema(request.output.schema)
        schema = request.output.schema if strict is None else strict
        text["format"] = {
            "type": "json_schema",
            "name": request.output.name,
            "schema": schema,
            "strict": strict is not None,
        }
    if "verbosity" in own:
        text["verbosity"] = own["verbosity"]
    return text


def _tools(request: ModelRequest) -> list[dict[str, Any]]:
    defers = any(spec.deferred for spec in request.tools)
    return [
        _search(spec) if defers and spec.name == TOOL_SEARCH else _function(spec)
        for spec in request.tools
        if not spec.deferred
    ]


def _function(spec: ToolSpec) -> dict[str, Any]:
    strict = strict_schema(spec.parameters)
    return {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters if strict is None else strict,
        "strict": strict is not None,
    }


def _search(spec: ToolSpec) -> dict[str, Any]:
    """The search of deferred tools, whose results define the tools that it found."""
    shown = {"description": spec.description, "parameters": spec.parameters}
    return {"type": "tool_search", "execution": "client", **shown}


def _definitions(request: ModelRequest, reply: ToolReply) -> list[dict[str, Any]]:
    deferred = {spec.name: spec for spec in request.tools if spec.deferred}
    found = [deferred[name] for name in found_tools(reply) if name in deferred]
    return [{**_function(spec), "defer_loading": True} for spec in found]


def _reasoning(shown: str, request: ModelRequest, own: OpenAISettings) -> dict[str, Any]:
    reasoning: dict[str, Any] = {}
    effort = request.settings.reasoning
    if isinstance(effort, int):
        raise InvalidRequest(
            f"{shown} takes reasoning as an effort, such as 'low' or 'high', not as a number of tokens"
        )
    if effort is not None:
        reasoning["effort"] = effort
    if "reasoning_summary" in own:
        reasoning["summary"] = own["reasoning_summary"]
    return reasoning


def _input(
    shown: str, vendor: str, request: ModelRequest, own: OpenAISettings, can_reason: bool
) -> list[dict[str, Any]]:
    def keep(thought: Thinking) -> bool:
        if thought.vendor != vendor:
            return False
        return is_phase(thought) or (can_reason and bool(thought.encrypted or thought.signature))

    found = build_entries(
        request.messages, keep, takes_responses, takes_responses, signs_behind=True, vendor=vendor
    )
    ids = call_ids(found, _CALL_ID)
    detail = own.get("image_detail")
    items: list[dict[str, Any]] = []
    for entry in found:
        if entry.role == "assistant":
            items += answer_items(entry, ids)
        elif entry.role == "tool":
            items += _results(shown, request, found, entry, ids, detail)
        else:
            content = [_part(shown, part, detail) for part in entry.content]
            role = "developer" if entry.role == "system" else "user"
            items.append({"type": "message", "role": role, "content": content})
    return items


def _part(shown: str, part: Any, detail: str | None) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    return responses_part(shown, part, "messages", detail)


def _results(
    shown: str,
    request: ModelRequest,
    found: Sequence[Entry],
    entry: Entry,
    ids: dict[str, str],
    detail: str | None,
) -> list[dict[str, Any]]:
    calls = {call.id: call for other in found for call in other.calls}
    items: list[dict[str, Any]] = []
    for reply in entry.replies:
        output: Any = reply_text(reply)
        if any(isinstance(part, Media) for part in reply.content):
            output = [{"type": "input_text", "text": f"Error ({reply.error}):"}] if reply.error else []
            for part in reply.content:
                if isinstance(part, Text) and part.text:
                    output.append({"type": "input_text", "text": part.text})
                elif isinstance(part, Media):
                    output.append(responses_part(shown, part, "results", detail))
        item = result_item(calls.get(reply.call_id), ids[reply.call_id], output, reply.error is not None)
        is_search = item["type"] == "tool_search_output" and reply.name == TOOL_SEARCH
        if is_search and not isinstance(item["tools"], list):
            item |= {"execution": "client", "status": "completed", "tools": _definitions(request, reply)}
        items.append(item)
    return items
