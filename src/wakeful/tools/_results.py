"""From what a tool returns or raises to what the model is told."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from ..errors import ToolError
from ..types.content import (
    Artifact,
    Audio,
    Base64,
    Document,
    Image,
    Part,
    Text,
    ToolReply,
    Video,
    clean_text,
)

__all__ = ["MAX_RESULT_BYTES", "ToolResult", "error_reply", "reply_of"]

MAX_RESULT_BYTES = 256 * 1024

_PARTS = (Text, Image, Audio, Video, Document)


class ToolResult(Struct, frozen=True, kw_only=True):
    """A result with more than one side: `message` is what the model reads (else `data` as JSON), `metadata`
    and `artifacts` are for the application."""

    data: Any = None
    message: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    artifacts: Sequence[Artifact] = ()


def reply_of(value: Any, call_id: str, name: str, limit: int = MAX_RESULT_BYTES) -> ToolReply:
    """The reply for a returned value; raises `ToolError` for one that can't be shown to a model."""
    if type(value) is str:
        return ToolReply(call_id, name, (Text(_cut(clean_text(value), limit)),))
    if isinstance(value, ToolResult):
        data = msgspec.Raw(_json(value.data)) if value.data is not None else None
        if value.message is not None:
            text = clean_text(value.message)
        else:
            text = "" if data is None else bytes(data).decode()
        if data is not None and len(bytes(data)) > limit:
            data = None
        parts = (Text(_cut(text, limit)),)
        return ToolReply(call_id, name, parts, None, data, value.metadata, tuple(value.artifacts))
    return ToolReply(call_id, name, _parts_of(value, limit))


def error_reply(call_id: str, name: str, kind: str, message: str, limit: int = MAX_RESULT_BYTES) -> ToolReply:
    """The reply that tells the model what went wrong."""
    return ToolReply(call_id, name, (Text(_cut(clean_text(message), limit)),), kind)


def _parts_of(value: Any, limit: int) -> tuple[Part, ...]:
    if isinstance(value, bytes | bytearray):
        return (_from_bytes(bytes(value), limit),)
    if isinstance(value, _PARTS):
        return (_fit(value, limit),)
    if isinstance(value, list | tuple) and value:
        items = cast(Sequence[Any], value)
        if all(isinstance(item, _PARTS) for item in items):
            return tuple([_fit(cast(Part, item), limit) for item in items])
    return (Text(_cut(_json(value).decode(), limit)),)


def _from_bytes(data: bytes, limit: int) -> Part:
    try:
        return Text(_cut(data.decode(), limit))
    except UnicodeDecodeError:
        encoded = base64.b64encode(data).decode()
        return _fit(Document(Base64("application/octet-stream", encoded)), limit)


def _fit(part: Part, limit: int) -> Part:
    if isinstance(part, Text):
        return Text(_cut(clean_text(part.text), limit))
    source = getattr(part, "source", None)
    if isinstance(source, Base64) and len(source.data) > limit:
        size = len(source.data) * 3 // 4
        return Text(f"[{source.media_type} of {size:,} bytes left out: the limit is {limit:,} bytes]")
    return part


def _cut(text: str, limit: int) -> str:
    """The text if it fits, else its beginning with a note; the limit counts encoded bytes."""
    if len(text) * 4 <= limit:
        return text
    data = text.encode()
    if len(data) <= limit:
        return text
    return (
        f"{data[:limit].decode(errors='ignore')}\n"
        f"[cut here: the result has {len(data):,} bytes and the limit is {limit:,}; ask for less at a time]"
    )


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:
        return msgspec.json.encode(_cleaned(msgspec.to_builtins(value, enc_hook=_plain)))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ToolError(
            f"the tool returned a {type(value).__name__} that can't be shown as JSON ({error}); "
            "return text, JSON-encodable data or content parts"
        ) from error


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return dump(mode="json")


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list | tuple):
        return [_cleaned(v) for v in cast(Sequence[Any], value)]
    if isinstance(value, dict):
        return {_cleaned(k): _cleaned(v) for k, v in cast(dict[Any, Any], value).items()}
    return value
