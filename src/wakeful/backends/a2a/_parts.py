"""Between our content and the protocol's parts: what is sent, and what is made of what comes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec
from msgspec import UNSET

from ...agents import QUESTIONS
from ...types.content import Artifact, Audio, Base64, Content, Document, Image, Text, ToolReply, Url, Video
from ...types.messages import Message
from ._objects import RemoteArtifact, RemotePart

__all__ = ["answered_in", "artifacts_in", "parts_of", "structured", "text_in"]

_ANY = "application/octet-stream"


def parts_of(messages: Iterable[Message]) -> tuple[RemotePart, ...]:
    """What new messages say to the remote: what people wrote, and the answers to what it asked."""
    found: list[RemotePart] = []
    decisions: list[dict[str, Any]] = []
    for message in messages:
        if message.visibility == "all" and message.role in ("user", "tool"):
            said: list[RemotePart] = []
            for content in message.content:
                if not isinstance(content, ToolReply):
                    said += _content(content)
                elif content.metadata.get("question") and not _dropped(content):
                    decisions.append(_decision(content))
                else:
                    said += _reply(content)
            if found and said and found[-1].text and said[0].text:
                said[0] = RemotePart(text=f"\n\n{said[0].text}")  # What several said isn't one sentence.
            found += said
    return (*([RemotePart(data={"decisions": decisions})] if decisions else []), *found)


def answered_in(parts: Iterable[RemotePart]) -> frozenset[str]:
    """The tickets that parts answer by their ids."""
    sent = [cast(Any, part).data for part in parts]
    data = [cast(dict[str, Any], each) for each in sent if isinstance(each, dict)]
    return frozenset([str(decision["ticketId"]) for each in data for decision in each.get("decisions", ())])


def _dropped(reply: ToolReply) -> bool:
    """Whether nobody answered, and what was said instead comes by itself; or it is a result of a local tool."""
    return reply.error == "superseded" or reply.name not in QUESTIONS


def _decision(reply: ToolReply) -> dict[str, Any]:
    """The answer to one of a wakeful server's tickets, as that takes it."""
    told, value = reply.metadata, _value(reply)
    found: dict[str, Any] = {"ticketId": told["question"]}
    if told.get("verdict") == "deny":
        found["verdict"] = "deny"
    elif told.get("mode") is not None:
        found["mode"] = told["mode"]
    if value is not None:
        found["value"] = value
    return found | ({"reason": told["reason"]} if told.get("reason") else {})


def _value(reply: ToolReply) -> Any:
    return None if reply.data is UNSET else msgspec.json.decode(reply.data)


def _reply(reply: ToolReply) -> Iterator[RemotePart]:
    if _dropped(reply):
        return
    if reply.error == "denied":
        why = reply.metadata.get("reason")
        yield RemotePart(text=f"deny: {why}" if why else "deny")
    elif reply.data is UNSET:
        for content in reply.content:
            yield from _content(content)
    else:
        value = _value(reply)
        yield RemotePart(text=value) if isinstance(value, str) else RemotePart(data=value)


def _content(content: Content) -> Iterator[RemotePart]:
    match content:
        case Text(text):
            yield RemotePart(text=text)
        case Image(source) | Audio(source) | Video(source) | Document(source):
            name = content.title if isinstance(content, Document) else None
            match source:
                case Base64(media_type, data):
                    yield RemotePart(raw=data, media_type=media_type, filename=name)
                case Url(url):
                    yield RemotePart(url=url, filename=name)
                case _:
                    pass
        case _:
            pass


def text_in(parts: Iterable[RemotePart]) -> str:
    """The text of parts. Those of a streamed artifact are pieces of one text, so nothing goes between them."""
    return "".join([part.text for part in parts if part.text is not None])


def artifacts_in(artifact: RemoteArtifact) -> Iterator[Artifact]:
    """What an artifact holds besides text: files as `{"bytes": …}` or `{"url": …}`, data as it is."""
    for part in artifact.parts:
        key, name, kind = artifact.artifact_id or None, part.filename or artifact.name, part.media_type
        if part.raw is not None:
            yield Artifact({"bytes": part.raw}, key, name, kind or _ANY)
        elif part.url is not None:
            yield Artifact({"url": part.url}, key, name, kind or _ANY)
        elif part.data is not UNSET:
            yield Artifact(part.data, key, name, kind or "application/json")


def structured(parts: Iterable[RemotePart]) -> list[object]:
    """The JSON that parts carry."""
    return [part.data for part in parts if part.data is not UNSET]
