"""Messages of AG-UI: those that a client sends, and those of a thread in its form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from ...errors import UsageError
from ...types.content import Audio, Base64, Content, Document, Image, MediaSource, Text, Thinking, Url, Video
from ...types.messages import Message

__all__ = [
    "ClientMessage",
    "arguments_text",
    "parts_of",
    "plain_text",
    "reasoning_id",
    "shown_content",
    "shown_messages",
]

Part = dict[str, Any]


class FunctionCall(Struct, frozen=True):
    """The function of a call, with its arguments as JSON text."""

    name: str
    arguments: str = ""


class ClientCall(Struct, frozen=True):
    """A tool call of a client's message."""

    id: str
    function: FunctionCall


class ClientMessage(Struct, frozen=True, rename="camel", kw_only=True):
    """A message of a request. Fields that are not listed here have no meaning for a server and are ignored."""

    id: str
    role: Literal["user", "assistant", "tool", "system", "developer", "reasoning", "activity"]
    content: str | list[Part] | Part | None = None
    tool_calls: list[ClientCall] | None = None
    tool_call_id: str = ""
    error: str | None = None


# -- from the client -------------------------------------------------------------------------------------------


def parts_of(message: ClientMessage) -> tuple[Content, ...]:
    """The content of a message; raises `UsageError` for parts that a thread can't have."""
    content = message.content
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),) if content else ()
    return tuple([_part(each) for each in ([content] if isinstance(content, dict) else content)])


def plain_text(message: ClientMessage) -> str:
    """The text of a message."""
    return "".join([part.text for part in parts_of(message) if isinstance(part, Text)])


_MEDIA = {"image": Image, "audio": Audio, "video": Video, "document": Document}


def _part(part: Part) -> Content:
    match part:
        case {"type": "text", "text": str(text)}:
            return Text(text)
        case {"type": str(kind), "source": dict()} if kind in _MEDIA:
            return _MEDIA[kind](_source(kind, part["source"]))
        case {"type": "binary", "mimeType": str(media_type)}:  # Of protocol versions before 1.0.
            return _binary(media_type, part)
        case _:
            raise UsageError(
                f"a content part of type {part.get('type')!r:.40} with the fields {', '.join(sorted(part))!s:.80} "
                "can't be read; give text, or image, audio, video or document with a source"
            )


def _source(kind: str, source: Part) -> MediaSource:
    match source:
        case {"type": "data", "value": str(data), "mimeType": str(media_type)}:
            return Base64(media_type, data)
        case {"type": "url", "value": str(url)}:
            return Url(url, source.get("mimeType"))
        case _:
            raise UsageError(
                f"the source of the {kind} is of type {source.get('type')!r:.40}; give data with value and "
                "mimeType, or url with value"
            )


def _binary(media_type: str, part: Part) -> Content:
    kind = media_type.partition("/")[0]
    make = _MEDIA.get(kind, Document)
    match part:
        case {"data": str(data)}:
            return make(Base64(media_type, data))
        case {"url": str(url)}:
            return make(Url(url, media_type))
        case _:
            raise UsageError("a binary part has data or a url")


# -- to the client ---------------------------------------------------------------------------------------------


def reasoning_id(message_id: str) -> str:
    """The id of the message with the reasoning of an answer."""
    return f"{message_id}-reasoning"


def arguments_text(arguments: dict[str, Any]) -> str:
    """The arguments of a call as JSON text."""
    return json.dumps(arguments, ensure_ascii=False)


def shown_messages(messages: Sequence[Message]) -> list[Part]:
    """The messages of a thread that people see, in the form of AG-UI."""
    return [each for m in messages if m.visibility == "all" and m.covers is None for each in _shown(m)]


def shown_content(content: Sequence[Content]) -> str | list[Part]:
    """Content as a text, or as parts if it has media."""
    found: list[Part] = []
    for part in content:
        match part:
            case Text(text):
                found.append({"type": "text", "text": text})
            case Image(source) | Audio(source) | Video(source) | Document(source):
                if (shown := _shown_source(source)) is not None:
                    found.append({"type": type(part).__name__.lower(), "source": shown})
            case _:
                pass
    if all(part["type"] == "text" for part in found):
        return "".join([part["text"] for part in found])
    return found


def _shown_source(source: MediaSource) -> Part | None:
    match source:
        case Base64(media_type, data):
            return {"type": "data", "value": data, "mimeType": media_type}
        case Url(url, media_type):
            return {"type": "url", "value": url} | ({} if media_type is None else {"mimeType": media_type})
        case _:
            return None


def _shown(message: Message) -> Iterator[Part]:
    match message.role:
        case "user":
            producer = message.producer
            sent_as = None if producer is None else producer.message_id
            yield {"id": sent_as or message.id, "role": "user", "content": shown_content(message.content)}
        case "assistant":
            thoughts = "".join([part.text for part in message.content if isinstance(part, Thinking)])
            if thoughts:
                yield {"id": reasoning_id(message.id), "role": "reasoning", "content": thoughts}
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": arguments_text(call.arguments)},
                }
                for call in message.calls
            ]
            shown: Part = {"id": message.id, "role": "assistant", "content": message.text}
            yield {**shown, "toolCalls": calls} if calls else shown
        case "tool" if (reply := message.reply) is not None:
            yield {"id": message.id, "role": "tool", "toolCallId": reply.call_id, "content": message.text}
        case _:
            pass
