"""JSON for everything that is stored or sent: strict going out, forgiving coming in.

A reader meets what a newer version wrote. Fields it doesn't know are dropped by msgspec; a kind it doesn't
know, at any depth, is read as that union's `Unknown` member with the original kept inside.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from .content import Unknown, clean_text
from .events import AnyEvent, UnknownEvent

__all__ = ["cleaned", "decode", "decode_event", "encode"]

T = TypeVar("T")

encode = msgspec.json.Encoder().encode


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def decode(data: bytes | str, type_: type[T]) -> T:
    """Read a value of `type_`, with kinds of a newer version as `Unknown`."""
    try:
        return _decoder(type_).decode(data)
    except msgspec.ValidationError:
        # Through JSON again, since raw values can only be read from there.
        return _decoder(type_).decode(encode(_mend(msgspec.json.decode(data), _info(type_))))


def decode_event(data: bytes | str) -> AnyEvent:
    """Read any event."""
    return cast(AnyEvent, decode(data, cast(type[Any], AnyEvent)))


def cleaned(value: T) -> T:
    """The same with all its texts as UTF-8 can carry them; what is fit to be encoded stays the object it is."""
    found: Any = value
    match found:
        case str():
            made: Any = clean_text(found)
        case msgspec.Struct():
            each = [(name, getattr(found, name)) for name in found.__struct_fields__]
            changes = {name: new for name, old in each if (new := cleaned(old)) is not old}
            return cast(T, msgspec.structs.replace(found, **changes) if changes else found)
        case dict():
            made = {cleaned(key): cleaned(item) for key, item in cast(dict[Any, Any], found).items()}
        case list() | tuple():
            made = type(cast(Any, found))([cleaned(item) for item in cast(list[Any], found)])
        case _:
            return value
    return cast(T, found if made == found else made)


@cache
def _info(type_: Any) -> Any:
    import msgspec.inspect as shapes

    return shapes.type_info(type_)


def _mend(value: Any, info: Any) -> Any:
    """Wrap every object whose kind its union doesn't know, where that union has a place for it."""
    import msgspec.inspect as shapes

    match info:
        case shapes.UnionType(types=types) if isinstance(value, dict):
            return _mend_union(cast(dict[str, Any], value), types)
        case shapes.UnionType(types=types) if isinstance(value, list):
            inner = next((t for t in types if isinstance(t, shapes.VarTupleType | shapes.ListType)), None)
            return cast(Any, value if inner is None else _mend(value, inner))
        case shapes.UnionType(types=types) if isinstance(value, str):
            inner = next((t for t in types if isinstance(t, shapes.LiteralType)), None)
            return cast(Any, value if inner is None else _mend(value, inner))
        case shapes.StructType(fields=fields) if isinstance(value, dict):
            known = {f.encode_name: f.type for f in fields}
            items = cast(dict[str, Any], value).items()
            return {k: _mend(v, known[k]) if k in known else v for k, v in items}
        case shapes.VarTupleType(item_type=item) | shapes.ListType(item_type=item) if isinstance(value, list):
            return [_mend(v, item) for v in cast(list[Any], value)]
        case shapes.LiteralType(values=values) if isinstance(value, str) and "unknown" in values:
            return value if value in values else "unknown"
        case _:
            return value


def _mend_union(value: dict[str, Any], types: tuple[Any, ...]) -> Any:
    import msgspec.inspect as shapes

    structs = [t for t in types if isinstance(t, shapes.StructType)]
    unknown = next((t for t in structs if t.cls in (Unknown, UnknownEvent)), None)
    if len(structs) == 1:
        return _mend(value, structs[0])
    kind = value.get("type")
    for struct in structs:
        if struct.tag == kind:
            return _mend(value, struct)
    if unknown is None or not isinstance(kind, str):
        return value
    kept: dict[str, Any] = {"type": "unknown", "kind": kind, "raw": value}
    if unknown.cls is UnknownEvent:
        kept |= {k: value.get(k) for k in ("run", "seq", "at")}
    return _mend(kept, unknown)
