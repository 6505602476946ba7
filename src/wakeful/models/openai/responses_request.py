"""Building the body of a Responses API request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ...errors import InvalidRequest
from ...types.content import Content, Text, Thinking, ToolCall
from ..protocol import ModelRequest
from ..shared.history import Entry, Media, build_entries, call_ids, output_prompt, reply_text
from ..shared.vendor import parse_extra
from .content import responses_part, takes_responses
from .schema import is_object, strict_schema
from .settings import OpenAISettings

__all__ = ["VENDOR", "responses_request"]

VENDOR = "openai"
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# Models without reasoning, which refuse reasoning items and requests for them.
_PLAIN = re.compile(r"(ft:)?(gpt-3\.5|gpt-4|chatgpt-4)")
# Settings with the same name in the body.
_PASSED_THROUGH = (
    *("service_tier", "parallel_tool_calls", "tool_choice", "prompt_cache_key", "prompt_cache_options"),
    *("prompt_cache_retention", "safety_identifier", "metadata", "truncation", "max_tool_calls"),
)


def responses_request(model: str, shown: str, request: ModelRequest) -> dict[str, Any]:
    """Build the arguments of the SDK's `responses.create`. `shown` is the model's name in errors."""
    settings = request.settings
    own = parse_extra(shown, settings.extra, OpenAISettings)
    if settings.stop:
        raise InvalidRequest(f"{shown}: the Responses API takes no stop sequences; use 'openai-chat:{model}'")
    can_reason = _PLAIN.match(model) is None
    system, text = request.system, _text(request, own)
    if request.output is not None and "format" not in text:
        system = "\n\n".join(part for part in (system, output_prompt(request.output)) if part)
    body: dict[str, Any] = {"model": model, "stream": True, "store": own.get("store", False)}
    if system:
        body["instructions"] = system
    if tools := [*own.get("tools", ()), *_tools(request)]:
        body["tools"] = tools
    body["input"] = _input(shown, request, own, can_reason)
    if text:
        body["text"] = text
    if can_reason:
        body["include"] = ["reasoning.encrypted_content"]
    if reasoning := _reasoning(shown, request, own):
        body["reasoning"] = reasoning
    common = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_output_tokens": settings.max_tokens,
    }
    body |= {name: value for name, value in common.items() if value is not None}
    body |= {name: value for name, value in own.items() if name in _PASSED_THROUGH}
    if extra := own.get("body"):
        body["extra_body"] = extra
    if headers := own.get("headers"):
        body["extra_headers"] = headers
    return body


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
    tools: list[dict[str, Any]] = []
    for spec in request.tools:
        strict = strict_schema(spec.parameters)
        tools.append(
            {
                "type": "function",
                "name": spec.name,
                "description": spec.description,
                "parameters": spec.parameters if strict is None else strict,
                "strict": strict is not None,
            }
        )
    return tools


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


def _input(shown: str, request: ModelRequest, own: OpenAISettings, can_reason: bool) -> list[dict[str, Any]]:
    def keep(thought: Thinking) -> bool:
        return can_reason and thought.vendor == VENDOR and bool(thought.encrypted)

    found = build_entries(request.messages, keep, takes_responses, takes_responses)
    ids = call_ids(found, _CALL_ID)
    detail = own.get("image_detail")
    items: list[dict[str, Any]] = []
    for entry in found:
        if entry.role == "assistant":
            items += _answer(entry, ids)
        elif entry.role == "tool":
            items += _results(shown, entry, ids, detail)
        else:
            content = [_part(shown, part, detail) for part in entry.content]
            role = "developer" if entry.role == "system" else "user"
            items.append({"type": "message", "role": role, "content": content})
    return items


def _part(shown: str, part: Any, detail: str | None) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    return responses_part(shown, part, "messages", detail)


def _answer(entry: Entry, ids: dict[str, str]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for index, part in enumerate(entry.content):
        if isinstance(part, Text):
            # Plain text: content parts would need the id of a stored message.
            items.append({"type": "message", "role": "assistant", "content": part.text})
        elif isinstance(part, ToolCall):
            arguments = msgspec.json.encode(part.arguments).decode()
            call = {"call_id": ids[part.id], "name": part.name, "arguments": arguments}
            items.append({"type": "function_call", **call})
        elif isinstance(part, Thinking) and _has_result(entry.content[index + 1 :]):
            summary = [{"type": "summary_text", "text": part.text}] if part.text else []
            kept = {"id": part.signature or "", "summary": summary, "encrypted_content": part.encrypted}
            items.append({"type": "reasoning", **kept})
    return items


def _has_result(after: Sequence[Content]) -> bool:
    """Whether reasoning is sent back: it must be followed by its result.

    A continued answer has one text, so only the last reasoning before it counts; before a call several in a row
    do.
    """
    result = next((part for part in after if not isinstance(part, Thinking)), None)
    return result is not None and (result is after[0] or isinstance(result, ToolCall))


def _results(shown: str, entry: Entry, ids: dict[str, str], detail: str | None) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for reply in entry.replies:
        media = [part for part in reply.content if isinstance(part, Media)]
        text = reply_text(reply)
        output: Any = text
        if media:
            texts = [{"type": "input_text", "text": text}] if text else []
            output = [*texts, *[responses_part(shown, part, "results", detail) for part in media]]
        items.append({"type": "function_call_output", "call_id": ids[reply.call_id], "output": output})
    return items
