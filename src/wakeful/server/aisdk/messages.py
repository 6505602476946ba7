"""UI messages: those that a client sends, and those of a thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, Struct

from ...errors import UsageError
from ...types.content import Audio, Base64, Content, Document, Image, Text, Thinking, ToolReply, Url, Video
from ...types.messages import Message
from ...types.tickets import Ticket

__all__ = ["ClientMessage", "Part", "call_parts", "output_of", "parts_of", "ui_messages"]

Part = dict[str, Any]

# Tickets that the protocol has no part of its own for are shown by parts of these types.
APPROVAL, QUESTION, ANSWER = "data-approval", "data-question", "data-answer"


class ClientMessage(Struct, frozen=True, kw_only=True):
    """A message of a request. Fields that are not listed here have no meaning for a server and are ignored."""

    id: str
    role: Literal["user", "assistant", "system"]
    parts: list[Part] = []


# -- from the client -------------------------------------------------------------------------------------------


def parts_of(message: ClientMessage) -> tuple[Content, ...]:
    """The texts and files of a message; raises `UsageError` for files that a thread can't have."""
    found: list[Content] = []
    for part in message.parts:
        match part:
            case {"type": "text", "text": str(text)}:
                found += [Text(text)] if text else []
            case {"type": "file", "url": str(url), "mediaType": str(media_type)}:
                found.append(_file(url, media_type, part.get("filename")))
            case {"type": "file"}:
                raise UsageError("a file part has a url and a mediaType")
            case _:
                pass  # Parts of answers, and data of the application.
    return tuple(found)


def _file(url: str, media_type: str, name: Any) -> Content:
    if url.startswith("data:"):
        head, comma, data = url[len("data:") :].partition(",")
        if not comma or not head.endswith(";base64"):
            raise UsageError("a data: URL of a file is base64: data:image/png;base64,...")
        source = Base64(media_type, data)
    elif url.startswith("https://"):
        source = Url(url, media_type)
    else:
        raise UsageError(f"a file is given as a data: or https: URL, not {url!r:.40}")
    match media_type.partition("/")[0]:
        case "image":
            return Image(source)
        case "audio":
            return Audio(source)
        case "video":
            return Video(source)
        case _:
            return Document(source, title=name if isinstance(name, str) else None)


def call_parts(message: ClientMessage) -> Iterator[Part]:
    """The parts of tool calls."""
    return (part for part in message.parts if isinstance(part.get("toolCallId"), str))


# -- to the client ---------------------------------------------------------------------------------------------


def output_of(reply: ToolReply, message: Message) -> Any:
    """The result of a call: as JSON where the tool returned structured data, else its text."""
    if reply.data is not UNSET:
        return msgspec.json.decode(cast(Any, reply.data))
    return message.text


def ui_messages(
    messages: Sequence[Message], open_tickets: Sequence[Ticket], client_tools: Mapping[str, frozenset[str]]
) -> list[Part]:
    """The messages of a thread that people see: one of an assistant for each run."""
    asked = {ticket.call_id: ticket for ticket in open_tickets}
    found: list[Part] = []
    answers: dict[str, Part] = {}
    for message in messages:
        if message.visibility != "all" or message.covers is not None:
            continue
        run_id = message.producer.run_id if message.producer is not None else None
        if message.role == "user":
            sent_as = message.producer.message_id if message.producer is not None else None
            found.append({"id": sent_as or message.id, "role": "user", "parts": [*_content(message.content)]})
        elif message.role == "assistant":
            run_id = run_id or message.id
            if run_id not in answers:
                answers[run_id] = {"id": run_id, "role": "assistant", "parts": []}
                found.append(answers[run_id])
            own = client_tools.get(run_id, frozenset[str]())
            answers[run_id]["parts"] += _answer(message, asked, own)
        elif (reply := message.reply) is not None and run_id in answers:
            for part in answers[run_id]["parts"]:
                if part.get("toolCallId") == reply.call_id:
                    ended = {"state": "output-available", "output": output_of(reply, message)}
                    part |= ended if reply.error is None else {"state": "output-error", "errorText": message.text}
    return found


def _answer(message: Message, asked: Mapping[str, Ticket], client_tools: frozenset[str]) -> list[Part]:
    parts: list[Part] = [{"type": "step-start"}]
    if thoughts := "".join([part.text for part in message.content if isinstance(part, Thinking)]):
        parts.append({"type": "reasoning", "text": thoughts, "state": "done"})
    parts += [part | {"state": "done"} if part["type"] == "text" else part for part in _content(message.content)]
    for call in message.calls:
        part: Part = {"type": "dynamic-tool", "toolName": call.name}
        if call.name in client_tools:
            part = {"type": f"tool-{call.name}"}
        part |= {"toolCallId": call.id, "state": "input-available", "input": call.arguments}
        ticket = asked.get(call.id)
        if ticket is not None and ticket.asked_by not in ("client", "tool"):
            part |= {"state": "approval-requested", "approval": {"id": ticket.id}}
        parts.append(part)
    return parts


def _content(content: Sequence[Content]) -> Iterator[Part]:
    for part in content:
        match part:
            case Text(text):
                yield {"type": "text", "text": text}
            case Image(source) | Audio(source) | Video(source) | Document(source):
                if isinstance(source, Base64):
                    url = f"data:{source.media_type};base64,{source.data}"
                    yield {"type": "file", "mediaType": source.media_type, "url": url}
                elif isinstance(source, Url):
                    yield {"type": "file", "mediaType": source.media_type or "*/*", "url": source.url}
            case _:
                pass
