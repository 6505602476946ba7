"""Between our content and the protocol's parts: what is sent, and what is made of what comes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET

from ...agents import QUESTIONS
from ...types.content import Artifact, Audio, Base64, Content, Document, Image, Text, ToolReply, Url, Video
from ...types.messages import Message
from ._objects import RemoteArtifact, RemotePart

__all__ = ["artifacts_in", "parts_of", "structured", "text_in"]

_ANY = "application/octet-stream"


def parts_of(messages: Iterable[Message]) -> tuple[RemotePart, ...]:
    """What new messages say to the remote: what people wrote, and the answers to what it asked."""
    found: list[RemotePart] = []
    for message in messages:
        if message.visibility == "all" and message.role in ("user", "tool"):
            said: list[RemotePart] = []
            for content in message.content:
                said += _reply(content) if isinstance(content, ToolReply) else _content(content)
            if found and said and found[-1].text and said[0].text:
                said[0] = RemotePart(text=f"\n\n{said[0].text}")  # What several said isn't one sentence.
            found += said
    return tuple(found)


def _reply(reply: ToolReply) -> Iterator[RemotePart]:
    if reply.error == "superseded" or reply.name not in QUESTIONS:
        return  # Nobody answered, and what was said instead comes by itself; or it is a result of a local tool.
    if reply.error == "denied":
        told = "".join([part.text for part in reply.content if isinstance(part, Text)])
        _, _, why = told.removesuffix(". It did not run.").partition(" was denied: ")
        yield RemotePart(text=f"deny: {why}" if why else "deny")
        return
    if reply.data is not UNSET:
        data = msgspec.json.decode(reply.data)
        if not isinstance(data, str):
            yield RemotePart(data=data)
            return
    for content in reply.content:
        yield from _content(content)


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
