"""Conversion between wakeful's content and A2A parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec
from msgspec import UNSET

from ...agents import QUESTIONS
from ...types.content import (
    Artifact,
    Audio,
    Base64,
    Content,
    Document,
    Image,
    Text,
    ToolReply,
    Url,
    Video,
    text_of,
)
from ...types.messages import Message
from .objects import RemoteArtifact, RemotePart

__all__ = ["answered_in", "artifacts_in", "data_in", "parts_of", "text_in", "url_type_of"]

_ANY = "application/octet-stream"


def parts_of(messages: Iterable[Message]) -> tuple[RemotePart, ...]:
    """The parts for new messages: users' input and answers to the remote's questions."""
    found: list[RemotePart] = []
    decisions: list[dict[str, Any]] = []
    for message in messages:
        if message.visibility == "all" and message.role in ("user", "tool"):
            parts: list[RemotePart] = []
            for content in message.content:
                if not isinstance(content, ToolReply):
                    parts += _content_parts(content)
                elif content.metadata.get("question") and not _is_unanswered(content):
                    decisions.append(_decision(content))
                else:
                    parts += _reply_parts(content)
            if found and parts and found[-1].text and parts[0].text:
                parts[0] = RemotePart(text=f"\n\n{parts[0].text}")  # A paragraph for each message.
            found += parts
    return (*([RemotePart(data={"decisions": decisions})] if decisions else []), *found)


def answered_in(parts: Iterable[RemotePart]) -> frozenset[str]:
    """The ids of the tickets that parts answer."""
    sent = [cast(Any, part).data for part in parts]
    data = [cast(dict[str, Any], each) for each in sent if isinstance(each, dict)]
    return frozenset([str(decision["ticketId"]) for each in data for decision in each.get("decisions", ())])


def _is_unanswered(reply: ToolReply) -> bool:
    """Whether a reply isn't an answer to a question: new input superseded it, or it is a local tool's result."""
    return reply.error == "superseded" or reply.name not in QUESTIONS


def _decision(reply: ToolReply) -> dict[str, Any]:
    """The decision on a ticket, in the format of a wakeful server."""
    metadata = reply.metadata
    found: dict[str, Any] = {"ticketId": metadata["question"]}
    if metadata.get("verdict") == "deny":
        found["verdict"] = "deny"
    else:
        if metadata.get("mode") is not None:
            found["mode"] = metadata["mode"]
        if (value := _value(reply)) is not None:
            found["value"] = value
    return found | ({"reason": metadata["reason"]} if metadata.get("reason") else {})


def _value(reply: ToolReply) -> Any:
    """The value of an answer; the text that a hook put in its place."""
    return text_of(reply.content) if reply.data is UNSET else msgspec.json.decode(reply.data)


def _reply_parts(reply: ToolReply) -> Iterator[RemotePart]:
    if _is_unanswered(reply):
        return
    if reply.error == "denied":
        reason = reply.metadata.get("reason")
        yield RemotePart(text=f"deny: {reason}" if reason else "deny")
    elif reply.data is UNSET:
        for content in reply.content:
            yield from _content_parts(content)
    else:
        value = _value(reply)
        yield RemotePart(text=value) if isinstance(value, str) else RemotePart(data=value)


def _content_parts(content: Content) -> Iterator[RemotePart]:
    match content:
        case Text(text):
            yield RemotePart(text=text)
        case Image(source) | Audio(source) | Video(source) | Document(source):
            name = content.title if isinstance(content, Document) else None
            match source:
                case Base64(media_type, data):
                    yield RemotePart(raw=data, media_type=media_type, filename=name)
                case Url(url):
                    yield RemotePart(url=url, media_type=url_type_of(content), filename=name)
                case _:
                    pass
        case _:
            pass


_RANGES: dict[type[Any], str] = {Image: "image/*", Audio: "audio/*", Video: "video/*"}


def url_type_of(content: Image | Audio | Video | Document) -> str | None:
    """The media type of content at a URL: the URL's own, or a range such as `image/*`."""
    own = content.source.media_type if isinstance(content.source, Url) else None
    return own or _RANGES.get(type(content))


def text_in(parts: Iterable[RemotePart]) -> str:
    """The text of parts, joined without separators: parts of a streamed artifact are pieces of one text."""
    return "".join([part.text for part in parts if part.text is not None])


def artifacts_in(artifact: RemoteArtifact) -> Iterator[Artifact]:
    """The non-text content of an artifact: files as `{"bytes": …}` or `{"url": …}`, data unchanged."""
    for part in artifact.parts:
        key, name, kind = artifact.artifact_id or None, part.filename or artifact.name, part.media_type
        if part.raw is not None:
            yield Artifact({"bytes": part.raw}, key, name, kind or _ANY)
        elif part.url is not None:
            yield Artifact({"url": part.url}, key, name, kind or _ANY)
        elif part.data is not UNSET:
            yield Artifact(part.data, key, name, kind or "application/json")


def data_in(parts: Iterable[RemotePart]) -> list[object]:
    """The JSON data of parts."""
    return [part.data for part in parts if part.data is not UNSET]
