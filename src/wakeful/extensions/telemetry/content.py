"""Messages, answers and tools as the conventions' JSON, for spans with content. Media are named, not copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...models import CallChunk, CallDeltaChunk, CallStartChunk, ModelRequest, ReasoningChunk, TextChunk
from ...types.content import Base64, Content, ServerTool, Text, Thinking, ToolCall, ToolReply, Url, text_of
from ...types.messages import Message
from . import names

__all__ = ["AnswerParts", "dump", "request_attributes"]


def dump(value: Any) -> str:
    """A value as JSON; what isn't JSON is shown by its class."""
    return msgspec.json.encode(value, enc_hook=lambda other: f"<{type(other).__name__}>").decode()


def request_attributes(request: ModelRequest) -> dict[str, str]:
    """The content of a request: instructions, messages and tools."""
    found = {names.INPUT_MESSAGES: dump([_message(message) for message in request.messages])}
    if request.system:
        found[names.SYSTEM] = dump([{"type": "text", "content": request.system}])
    if request.tools:
        found[names.TOOL_DEFINITIONS] = dump(
            [
                {
                    "type": "function",
                    "name": spec.name,
                    "description": spec.description,
                    "parameters": spec.parameters,
                }
                for spec in request.tools
            ]
        )
    return found


def _message(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": _parts(message.content)}


def _parts(content: Sequence[Content]) -> list[dict[str, Any]]:
    return [_part(part) for part in content]


def _part(part: Content) -> dict[str, Any]:
    match part:
        case Text(text):
            return {"type": "text", "content": text}
        case Thinking(text):
            return {"type": "reasoning", "content": text}
        case ToolCall(call_id, name, arguments):
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        case ToolReply(call_id):
            return {"type": "tool_call_response", "id": call_id, "response": text_of(part.content)}
        case ServerTool(tool_id, name):
            return {"type": "server_tool_call", "id": tool_id, "name": name, "server_tool_call": part.input}
        case _:
            return _media(part)


def _media(part: Any) -> dict[str, Any]:
    kind, source = type(part).__name__.lower(), getattr(part, "source", None)
    if isinstance(source, Url):
        return {"type": "uri", "modality": kind, "uri": source.url}
    if isinstance(source, Base64):
        return {"type": "file", "modality": kind, "mime_type": source.media_type}
    return {"type": kind}


class AnswerParts:
    """Gathers the chunks of an answer as the parts of its message."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {"reasoning": [], "text": []}
        self._calls: dict[int, tuple[str, list[str]]] = {}
        self._whole: list[dict[str, Any]] = []

    def add(self, chunk: Any) -> None:
        """Add a chunk."""
        match chunk:
            case TextChunk(text):
                self._texts["text"].append(text)
            case ReasoningChunk(text):
                self._texts["reasoning"].append(text)
            case CallStartChunk(index, name):
                self._calls[index] = (name, [])
            case CallDeltaChunk(index, json) if index in self._calls:
                self._calls[index][1].append(json)
            case CallChunk(name, arguments):
                self._whole.append({"type": "tool_call", "name": name, "arguments": arguments})
            case _:
                pass

    def dump(self, reason: str) -> str:
        """The answer as the conventions' JSON."""
        parts = [{"type": kind, "content": "".join(pieces)} for kind, pieces in self._texts.items() if any(pieces)]
        parts += [
            {"type": "tool_call", "name": name, "arguments": "".join(pieces)}
            for name, pieces in self._calls.values()
        ]
        return dump([{"role": "assistant", "parts": parts + self._whole, "finish_reason": reason}])
