"""JSON for stored and sent data: strict encoding, lenient decoding.

A reader may meet data of a newer version. msgspec drops unknown fields. An unknown tag of a union, at any depth,
decodes as that union's `Unknown` member, which keeps the original.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from .content import Unknown, clean_text
from .events import AnyEvent, UnknownEvent
from .inbox import InboxItem, UnknownItem

__all__ = ["clean_value", "decode", "decode_event", "decode_item", "encode"]

T = TypeVar("T")

encode = msgspec.json.Encoder().encode


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def decode(data: bytes | str, type_: type[T]) -> T:
    """Decode a value of `type_`; tags of a newer version become `Unknown`."""
    try:
        return _decoder(type_).decode(data)
    except msgspec.ValidationError:
        # Through JSON again: `Raw` fields decode from bytes only.
        return _decoder(type_).decode(encode(_wrap_unknown(msgspec.json.decode(data), _info(type_))))


def decode_event(data: bytes | str) -> AnyEvent:
    """Decode an event."""
    return cast(AnyEvent, decode(data, cast(type[Any], AnyEvent)))


def decode_item(data: bytes | str) -> InboxItem:
    """Read any inbox item."""
    return cast(InboxItem, decode(data, cast(type[Any], InboxItem)))


def clean_value(value: T) -> T:
    """Replace lone surrogates in every string of a value. Returns the same object if it has none."""
    found: Any = value
    match found:
        case str():
            made: Any = clean_text(found)
        case msgspec.Struct():
            each = [(name, getattr(found, name)) for name in found.__struct_fields__]
            changes = {name: new for name, old in each if (new := clean_value(old)) is not old}
            return cast(T, msgspec.structs.replace(found, **changes) if changes else found)
        case dict():
            made = {clean_value(key): clean_value(item) for key, item in cast(dict[Any, Any], found).items()}
        case list() | tuple():
            made = type(cast(Any, found))([clean_value(item) for item in cast(list[Any], found)])
        case _:
            return value
    return cast(T, found if made == found else made)


@cache
def _info(type_: Any) -> Any:
    import msgspec.inspect as shapes

    return shapes.type_info(type_)


def _wrap_unknown(value: Any, info: Any) -> Any:
    """Wrap every object of an unknown tag in its union's `Unknown` member, if it has one."""
    import msgspec.inspect as shapes

    match info:
        case shapes.UnionType(types=types) if isinstance(value, dict):
            return _wrap_in_union(cast(dict[str, Any], value), types)
        case shapes.UnionType(types=types) if isinstance(value, list):
            inner = next((t for t in types if isinstance(t, shapes.VarTupleType | shapes.ListType)), None)
            return cast(Any, value if inner is None else _wrap_unknown(value, inner))
        case shapes.UnionType(types=types) if isinstance(value, str):
            inner = next((t for t in types if isinstance(t, shapes.LiteralType)), None)
            return cast(Any, value if inner is None else _wrap_unknown(value, inner))
        case shapes.StructType(fields=fields) if isinstance(value, dict):
            known = {f.encode_name: f.type for f in fields}
            items = cast(dict[str, Any], value).items()
            return {k: _wrap_unknown(v, known[k]) if k in known else v for k, v in items}
        case shapes.VarTupleType(item_type=item) | shapes.ListType(item_type=item) if isinstance(value, list):
            return [_wrap_unknown(v, item) for v in cast(list[Any], value)]
        case shapes.LiteralType(values=values) if isinstance(value, str) and "unknown" in values:
            return value if value in values else "unknown"
        case _:
            return value


_UNKNOWN = (Unknown, UnknownEvent, UnknownItem)


def _wrap_in_union(value: dict[str, Any], types: tuple[Any, ...]) -> Any:
    import msgspec.inspect as shapes

    structs = [t for t in types if isinstance(t, shapes.StructType)]
    unknown = next((t for t in structs if t.cls in _UNKNOWN), None)
    if len(structs) == 1:
        return _wrap_unknown(value, structs[0])
    kind = value.get(structs[0].tag_field or "type")
    for struct in structs:
        if struct.tag == kind:
            return _wrap_unknown(value, struct)
    if unknown is None or not isinstance(kind, str):
        return value
    shared = {f.encode_name: value[f.encode_name] for f in unknown.fields if f.encode_name in value}
    kept = {**shared, "kind": kind, "raw": value, cast(str, unknown.tag_field): unknown.tag}
    return _wrap_unknown(kept, unknown)
