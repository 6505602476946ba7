"""Results of tools and of their checks, and the conversion of a return value or an error into a reply."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from inspect import iscoroutine
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw

from ..errors import ToolError, quote
from ..errors.arguments import Checked
from ..types.base import Data
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
    part_problem,
)

__all__ = ["MAX_RESULT_BYTES", "Done", "NotDone", "ToolResult", "UnknownOutcome", "error_reply", "reply_of"]

MAX_RESULT_BYTES = 256 * 1024

_PARTS = (Text, Image, Audio, Video, Document)


class Done(Data, metaclass=Checked):
    """A `check` found that the call took effect, with this result."""

    result: Any = None


class NotDone(Data):
    """A `check` found that the call took no effect."""


class UnknownOutcome(Data, metaclass=Checked):
    """A `check` could not tell."""


class ToolResult(Data, metaclass=Checked, kw_only=True):
    """A result with separate parts for the model and the application.

    The model reads `message` and the parts of `content`, or `data` as JSON if there is neither; `metadata` and
    `artifacts` are for the application.
    """

    data: Any = None
    message: str | None = None
    content: Sequence[Part] = ()
    metadata: dict[str, Any] = {}
    artifacts: Sequence[Artifact] = ()


def reply_of(value: Any, call_id: str, name: str, limit: int = MAX_RESULT_BYTES) -> ToolReply:
    """Convert a returned value to a reply; raises `ToolError` if a model can't be shown it."""
    if type(value) is str:
        if len(value) <= limit and value.isascii():
            return ToolReply(call_id, name, (Text(value),))
        return ToolReply(call_id, name, (Text(_cut(clean_text(value), limit)),))
    if isinstance(value, ToolResult):
        message: Any = value.message
        data = None if value.data is None else _json(value.data)
        if message is not None and not isinstance(message, str):
            raise ToolError(f"the message of a ToolResult is a text, not {message!r:.80}; give data=...")
        if not isinstance(cast(Any, value.metadata), dict):
            raise ToolError(f"the metadata of a ToolResult is a dict, not {value.metadata!r:.80}")
        parts = _shown_parts(value, data, limit)
        kept = UNSET if data is None or len(data) > limit else Raw(data)
        metadata = _stored(value.metadata) if value.metadata else value.metadata
        artifacts = _artifacts(value.artifacts) if value.artifacts else ()
        return ToolReply(call_id, name, parts, None, kept, metadata, artifacts)
    return ToolReply(call_id, name, _parts_of(value, limit))


def _shown_parts(value: ToolResult, data: bytes | None, limit: int) -> tuple[Part, ...]:
    if not value.content:
        text = clean_text(value.message) if value.message is not None else (data or b"").decode()
        return (Text(_cut(text, limit)),)
    if not all(isinstance(part, _PARTS) for part in value.content):
        raise ToolError(f"the content of a ToolResult is a list of content parts, not {value.content!r:.80}")
    lead = () if value.message is None else (Text(value.message),)
    return _fit_all((*lead, *value.content), limit)


def error_reply(call_id: str, name: str, kind: str, message: str, limit: int = MAX_RESULT_BYTES) -> ToolReply:
    """Make the reply that tells the model of an error."""
    known = clean_text(kind) if isinstance(cast(Any, kind), str) and kind else ToolError.kind
    text = clean_text(message) or f"{name} failed and said nothing about it"
    return ToolReply(call_id, name, (Text(_cut(text, limit)),), known)


def _artifacts(given: Any) -> tuple[Artifact, ...]:
    """The artifacts as they are read back from the store."""
    artifacts = list(cast(Iterable[Any], given)) if isinstance(given, Iterable) else [None]
    if not all(isinstance(item, Artifact) for item in artifacts):
        raise ToolError(f"the artifacts of a ToolResult are a list of Artifact(...), not {given!r:.80}")
    try:
        return tuple([msgspec.json.decode(_json(item), type=Artifact) for item in artifacts])
    except msgspec.ValidationError as error:
        raise ToolError(f"an artifact of the ToolResult isn't what it says: {error}") from error


def _parts_of(value: Any, limit: int) -> tuple[Part, ...]:
    if isinstance(value, str):
        return (Text(_cut(clean_text(str.__str__(value)), limit)),)
    if isinstance(value, bytes | bytearray):
        return (_from_bytes(bytes(value), limit),)
    if isinstance(value, _PARTS):
        return (_fit(value, limit),)
    if isinstance(value, list | tuple) and value:
        items = cast(Sequence[Any], value)
        if all(isinstance(item, _PARTS) for item in items):
            return _fit_all(cast(Sequence[Part], items), limit)
    return (Text(_cut(_json(value).decode(), limit)),)


def _fit_all(parts: Sequence[Part], limit: int) -> tuple[Part, ...]:
    """The parts that fit into the limit together, and a note on the parts left out."""
    found: list[Part] = []
    left = limit
    for index, part in enumerate(parts):
        if left <= 0:
            found.append(Text(f"[{len(parts) - index} more parts left out: the limit is {limit:,} bytes in all]"))
            break
        found.append(_fit(part, left))
        left -= _size(found[-1])
    return tuple(found)


def _size(part: Part) -> int:
    if isinstance(part, Text):
        return len(part.text.encode())
    source = getattr(part, "source", None)
    return len(source.data) if isinstance(source, Base64) else 0


def _from_bytes(data: bytes, limit: int) -> Part:
    try:
        return Text(_cut(data.decode(), limit))
    except UnicodeDecodeError:
        encoded = b2a_base64(data, newline=False).decode()
        return _fit(Document(Base64("application/octet-stream", encoded)), limit)


def _fit(part: Part, limit: int) -> Part:
    if isinstance(part, Text) and isinstance(cast(Any, part.text), str):
        return Text(_cut(clean_text(part.text), limit))
    if problem := part_problem(part):
        raise ToolError(f"the tool returned a part that isn't what it says: {problem}")
    source = getattr(part, "source", None)
    if isinstance(source, Base64) and len(source.data) > limit:
        size = len(source.data) * 3 // 4
        return Text(f"[{source.media_type} of {size:,} bytes left out: the limit is {limit:,} bytes]")
    return part


def _cut(text: str, limit: int) -> str:
    """Cut a text that has more encoded bytes than the limit, with a note."""
    if len(text) * 4 <= limit:
        return text
    data = text.encode()
    if len(data) <= limit:
        return text
    note = f"\n[cut here: the result has {len(data):,} bytes and the limit is {limit:,}; ask for less at a time]"
    return data[: max(limit - len(note), 0)].decode(errors="ignore") + note


def _json(value: Any) -> bytes:
    if iscoroutine(value):
        value.close()
        raise ToolError(f"the tool returned the coroutine {value.__name__}, which nobody awaited; await it there")
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:
        return msgspec.json.encode(_cleaned(msgspec.to_builtins(value, enc_hook=_plain)))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ToolError(
            f"the tool returned a value of type {type(value).__name__} that can't be shown as JSON ({error}); "
            "return text, JSON-encodable data or content parts"
        ) from error


def _stored(value: Any) -> Any:
    """The value as it is read back from the store."""
    return msgspec.json.decode(_json(value))


def _plain(value: Any) -> Any:
    # msgspec refuses subclasses of these types, such as NumPy's and lxml's.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    try:
        return dump(mode="json")
    except Exception as error:
        raise quote(ToolError, f"the result's model_dump of {type(value).__name__} failed", error) from error


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list | tuple):
        return [_cleaned(v) for v in cast(Sequence[Any], value)]
    if isinstance(value, dict):
        return {_cleaned(k): _cleaned(v) for k, v in cast(dict[Any, Any], value).items()}
    return value
