"""Building the body of a Chat Completions request, in the dialect of a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from ...errors import InvalidRequest
from ...types.base import Data
from ...types.content import Text, Thinking, ToolCall
from ..protocol import ModelRequest
from ..shared.history import Entry, Media, build_entries, call_ids, output_prompt, reply_text
from .content import chat_part, takes_chat
from .schema import is_object, strict_schema

__all__ = ["OPENAI", "Dialect", "chat_request"]

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
# Settings that don't go into the body under their own name.
_PLACED = ("body", "headers", "image_detail")


class Dialect(Data):
    """The differences between servers of Chat Completions.

    - `max_tokens`: the name of that limit.
    - `usage`: whether a stream can include the usage.
    - `output`: how a typed answer is requested.
    - `strict`: whether tools may be marked as strict.
    - `effort`: how the reasoning effort is set.
    - `thoughts`: whether reasoning is sent back.
    - `call_id`: the pattern of call ids.
    """

    max_tokens: Literal["max_completion_tokens", "max_tokens"] = "max_tokens"
    usage: bool = True
    output: Literal["json_schema", "json_object", "words"] = "json_schema"
    strict: bool = False
    effort: Literal["reasoning_effort", "reasoning", "none"] = "reasoning_effort"
    thoughts: bool = False
    call_id: str = _CALL_ID.pattern


OPENAI = Dialect("max_completion_tokens", strict=True)


def chat_request(
    model: str, shown: str, request: ModelRequest, own: Mapping[str, Any], dialect: Dialect, known: frozenset[str]
) -> dict[str, Any]:
    """Build the arguments of the SDK's `chat.completions.create`.

    `shown` is the model's name in errors, `known` are the settings with an argument of the SDK.
    """
    settings = request.settings
    body: dict[str, Any] = {"model": model, "stream": True}
    extra: dict[str, Any] = {}
    system = request.system
    if request.output is not None:
        output_format = _format(request, dialect)
        if output_format is not None:
            body["response_format"] = output_format
        if output_format is None or output_format["type"] == "json_object":
            system = "\n\n".join(part for part in (system, output_prompt(request.output)) if part)
    if tools := [_tool(spec, dialect) for spec in request.tools]:
        body["tools"] = tools
    messages = [{"role": "system", "content": system}] if system else []
    body["messages"] = [*messages, *_messages(shown, request, own.get("image_detail"), dialect)]
    if dialect.usage:
        body["stream_options"] = {"include_usage": True}
    common = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        dialect.max_tokens: settings.max_tokens,
        "stop": list(settings.stop) or None,
    }
    body |= {name: value for name, value in common.items() if value is not None}
    if settings.reasoning is not None:
        _set_effort(shown, settings.reasoning, dialect, body, extra)
    for name, value in own.items():
        if name not in _PLACED:
            (body if name in known else extra)[name] = value
    if extra := {**extra, **own.get("body", {})}:
        body["extra_body"] = extra
    if headers := own.get("headers"):
        body["extra_headers"] = headers
    return body


def _set_effort(
    shown: str, effort: str | int, dialect: Dialect, body: dict[str, Any], extra: dict[str, Any]
) -> None:
    if dialect.effort == "reasoning":
        extra["reasoning"] = {"max_tokens": effort} if isinstance(effort, int) else {"effort": effort}
    elif isinstance(effort, int):
        raise InvalidRequest(
            f"{shown} takes reasoning as an effort, such as 'low' or 'high', not as a number of tokens"
        )
    elif dialect.effort == "none":
        raise InvalidRequest(
            f"{shown} takes no reasoning effort: choose a model that reasons, or one that doesn't"
        )
    else:
        body["reasoning_effort"] = effort


def _format(request: ModelRequest, dialect: Dialect) -> dict[str, Any] | None:
    output = request.output
    if output is None or dialect.output == "words" or not is_object(output.schema):
        return None
    if dialect.output == "json_object":
        return {"type": "json_object"}
    strict = strict_schema(output.schema)
    made = {"name": output.name, "schema": output.schema if strict is None else strict}
    return {"type": "json_schema", "json_schema": {**made, "strict": strict is not None}}


def _tool(spec: Any, dialect: Dialect) -> dict[str, Any]:
    strict = strict_schema(spec.parameters) if dialect.strict else None
    function = {"name": spec.name, "description": spec.description}
    function["parameters"] = spec.parameters if strict is None else strict
    if strict is not None:
        function["strict"] = True
    return {"type": "function", "function": function}


def _messages(shown: str, request: ModelRequest, detail: str | None, dialect: Dialect) -> list[dict[str, Any]]:
    def keep(thought: Thinking) -> bool:
        return dialect.thoughts and bool(thought.text)

    found = build_entries(request.messages, keep, takes_chat, lambda part: not takes_chat(part))
    ids = call_ids(found, re.compile(dialect.call_id))
    messages: list[dict[str, Any]] = []
    for entry in found:
        if entry.role == "assistant":
            messages.append(_answer(entry, ids))
        elif entry.role == "tool":
            messages += [_result(shown, reply, ids) for reply in entry.replies]
        else:
            messages.append({"role": entry.role, "content": _content(shown, entry, detail)})
    return messages


def _content(shown: str, entry: Entry, detail: str | None) -> Any:
    parts = entry.content
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, Text)
        else chat_part(shown, part, "messages", detail)
        for part in parts
        if isinstance(part, Text | Media)
    ]


def _answer(entry: Entry, ids: dict[str, str]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant"}
    if texts := [part.text for part in entry.content if isinstance(part, Text)]:
        message["content"] = "\n\n".join(texts)
    if thoughts := [part.text for part in entry.content if isinstance(part, Thinking)]:
        message["reasoning_content"] = "\n\n".join(thoughts)
    calls = [part for part in entry.content if isinstance(part, ToolCall)]
    if calls:
        message["tool_calls"] = [
            {
                "id": ids[call.id],
                "type": "function",
                "function": {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()},
            }
            for call in calls
        ]
    elif not texts:
        message["content"] = ""
    return message


def _result(shown: str, reply: Any, ids: dict[str, str]) -> dict[str, Any]:
    for part in reply.content:
        if not isinstance(part, Text):
            chat_part(shown, part, "results", None)
    return {"role": "tool", "tool_call_id": ids[reply.call_id], "content": reply_text(reply)}
