"""Conversion between wakeful's data and A2A types: JSON values, times, content and parts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.timestamp_pb2 import Timestamp

from ...backends.a2a.objects import with_whole_numbers
from ...types.content import Audio, Base64, Content, Document, Image, MediaSource, Text, Url, Video

__all__ = ["content_of", "data_part", "parts_of", "plain_of", "text_part", "timestamp_of"]


def timestamp_of(ms: int) -> Timestamp:
    """Convert milliseconds since the epoch."""
    found = Timestamp()
    found.FromMilliseconds(ms)
    return found


def plain_of(value: struct_pb2.Value | struct_pb2.Struct) -> Any:
    """Convert a protobuf value to plain Python data."""
    try:
        return with_whole_numbers(MessageToDict(value))
    except ValueError:
        raise InvalidParamsError("data has a number that JSON doesn't allow: NaN or an infinity") from None


def text_part(text: str) -> pb.Part:
    """Make a part with text."""
    return pb.Part(text=text, media_type="text/plain")


def data_part(value: Any) -> pb.Part:
    """Make a part with JSON."""
    return pb.Part(data=ParseDict(msgspec.to_builtins(value), struct_pb2.Value()), media_type="application/json")


_KINDS: dict[str, type[Image | Audio | Video]] = {"image": Image, "audio": Audio, "video": Video}
_MEDIA: dict[type[Any], str] = {Image: "image/*", Audio: "audio/*", Video: "video/*"}


def content_of(parts: Sequence[pb.Part]) -> list[Content]:
    """Convert a message's parts to content; JSON becomes text."""
    return [_content(part) for part in parts]


def _content(part: pb.Part) -> Content:
    match part.WhichOneof("content"):
        case "text":
            return Text(part.text)
        case "data":
            return Text(msgspec.json.encode(plain_of(part.data)).decode())
        case "raw":
            media_type = part.media_type or "application/octet-stream"
            return _media(media_type, Base64(media_type, base64.b64encode(part.raw).decode()), part.filename)
        case "url":
            return _media(part.media_type, Url(part.url), part.filename)
        case _:
            raise InvalidParamsError("a part of the message is empty; it has text, raw, url or data")


def _media(media_type: str, source: MediaSource, name: str) -> Content:
    kind = _KINDS.get(media_type.partition("/")[0])
    return Document(source, name or None) if kind is None else kind(source)


def parts_of(content: Iterable[Content]) -> list[pb.Part]:
    """Convert an answer's content to parts: text and files, without reasoning and tool calls."""
    found: list[pb.Part] = []
    for part in content:
        match part:
            case Text(text) if text:
                found.append(text_part(text))
            case Image(source) | Audio(source) | Video(source) | Document(source):
                name = part.title if isinstance(part, Document) else None
                if (file := _file(source, _MEDIA.get(type(part), ""), name or "")) is not None:
                    found.append(file)
            case _:
                pass
    return found


def _file(source: MediaSource, media_type: str, name: str) -> pb.Part | None:
    match source:
        case Base64(media_type=own, data=data):
            try:
                return pb.Part(raw=base64.b64decode(data), media_type=own, filename=name)
            except binascii.Error:
                return None
        case Url(url):
            return pb.Part(url=url, media_type=media_type, filename=name)
        case _:
            return None
