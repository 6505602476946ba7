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
from ...backends.a2a.parts import url_type_of
from ...types.content import Audio, Base64, Content, Document, Image, MediaSource, Text, Url, Video

__all__ = ["JSON", "content_of", "data_part", "parts_of", "plain_of", "text_part", "timestamp_of"]


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


# The media type of JSON; a document of this type without a title is a data part.
JSON = "application/json"


def content_of(parts: Sequence[pb.Part], *, keep_data: bool = False) -> list[Content]:
    """Convert a message's parts to content; JSON becomes text for the model, or with `keep_data` a document."""
    return [_content(part, keep_data) for part in parts]


def _content(part: pb.Part, keep_data: bool) -> Content:
    match part.WhichOneof("content"):
        case "text":
            return Text(part.text)
        case "data":
            data = msgspec.json.encode(plain_of(part.data))
            return Document(Base64(JSON, base64.b64encode(data).decode())) if keep_data else Text(data.decode())
        case "raw":
            media_type = part.media_type or "application/octet-stream"
            return _media(media_type, Base64(media_type, base64.b64encode(part.raw).decode()), part.filename)
        case "url":
            return _media(part.media_type, Url(part.url, part.media_type or None), part.filename)
        case _:
            raise InvalidParamsError("a part of the message is empty; it has text, raw, url or data")


def _media(media_type: str, source: MediaSource, name: str) -> Content:
    kind = _KINDS.get(media_type.partition("/")[0])
    return Document(source, name or None) if kind is None else kind(source)


def parts_of(content: Iterable[Content]) -> list[pb.Part]:
    """Convert content to parts: text, data and files, without reasoning and tool calls."""
    found: list[pb.Part] = []
    for part in content:
        match part:
            case Text(text) if text:
                found.append(text_part(text))
            case Document(Base64(media_type=media_type, data=data), None) if _is_json(media_type, data):
                found.append(data_part(msgspec.json.decode(base64.b64decode(data))))
            case Image(source) | Audio(source) | Video(source) | Document(source):
                name = part.title if isinstance(part, Document) else None
                if (file := _file(source, url_type_of(part) or "", name or "")) is not None:
                    found.append(file)
            case _:
                pass
    return found


def _is_json(media_type: str, data: str) -> bool:
    if media_type.partition(";")[0].strip().lower() != JSON:
        return False
    try:
        msgspec.json.decode(base64.b64decode(data))
    except (binascii.Error, ValueError):
        return False
    return True


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
