"""Inspection of type hints: alternatives, descriptions, limits, fields and JSON types."""

from __future__ import annotations

import collections.abc as abc
import re
import types
import typing
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin
from uuid import UUID

from msgspec import Struct

__all__ = [
    "JSON_TYPES",
    "KINDS",
    "NONE",
    "are_distinguishable",
    "description_in",
    "fields_of",
    "first_description",
    "foreign_limits",
    "format_hint",
    "has_computed_fields",
    "have_limits",
    "hint_error",
    "is_record",
    "is_typed_dict",
    "is_union",
    "is_validator",
    "optional_type",
    "unwrap",
]

NONE = type(None)

JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    NONE: "null",
}
_STRINGS = (bytes, bytearray, memoryview, date, datetime, time, timedelta, Decimal, UUID)
_OBJECTS = (dict, abc.Mapping, abc.MutableMapping)
_ARRAYS = (
    *(list, tuple, abc.Sequence, abc.MutableSequence, abc.Collection),
    *(set, frozenset, abc.Set, abc.MutableSet),
)
# The JSON types of types that msgspec accepts as they are.
KINDS: dict[Any, str] = {
    **JSON_TYPES,
    **dict.fromkeys(_STRINGS, "string"),
    **dict.fromkeys(_OBJECTS, "object"),
    **dict.fromkeys(_ARRAYS, "array"),
}
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")


def format_hint(hint: Any) -> str:
    """Format a hint as in source code."""
    return hint.__qualname__ if isinstance(hint, type) else repr(hint).replace("typing.", "")


def hint_error(error: Exception) -> str:
    """The error text for a wrong hint; for an unknown name also how to make it known."""
    where = "; define or import it at the module's top level, not in a function and not for type checkers alone"
    return f"{error}{where}" if isinstance(error, NameError) else str(error)


def is_union(hint: Any) -> bool:
    """Whether a hint is a union."""
    return get_origin(hint) in (Union, types.UnionType)


def optional_type(hint: Any) -> Any:
    """T of an `Optional[T]`; None for other types."""
    members = [member for member in get_args(hint) if member is not NONE] if is_union(hint) else []
    return members[0] if len(members) == 1 else None


def unwrap(hint: Any) -> Iterator[Any]:
    """Yield a hint and the hints inside its `Annotated` and `Optional` layers."""
    while hint is not None:
        yield hint
        hint = get_args(hint)[0] if get_origin(hint) is Annotated else optional_type(hint)


def description_in(hint: Any) -> str | None:
    """The description in an annotation, if it has one."""
    for layer in unwrap(hint):
        if get_origin(layer) is Annotated and (text := first_description(get_args(layer)[1:])):
            return text
    return None


def first_description(extras: Sequence[Any]) -> str | None:
    """The first description among the metadata of an `Annotated`."""
    for extra in extras:
        text = extra
        if not isinstance(extra, str):
            text = getattr(extra, "description", None) or getattr(extra, "documentation", None)
        if text and isinstance(text, str):
            return text
    return None


def have_limits(metas: Sequence[Any]) -> bool:
    """Whether any `Meta` limits the values of its type."""
    return any(getattr(meta, limit, None) is not None for meta in metas for limit in (*_LIMITS, "tz"))


def foreign_limits(extras: Sequence[Any]) -> dict[str, Any]:
    """The limits of annotated-types and of pydantic's Field, without importing either."""
    limits: dict[str, Any] = {}
    for item in (item for extra in extras for item in (extra, *(getattr(extra, "metadata", None) or ()))):
        if type(item).__module__.partition(".")[0] in ("annotated_types", "pydantic"):
            found = {limit: getattr(item, limit, None) for limit in _LIMITS}
            limits.update({limit: value for limit, value in found.items() if value is not None})
    if isinstance(pattern := limits.get("pattern"), re.Pattern):
        limits["pattern"] = cast("re.Pattern[str]", pattern).pattern
    return limits


def is_validator(extra: Any) -> bool:
    """Whether the metadata of an `Annotated` is a validator of pydantic or annotated-types."""
    known = type(extra).__module__.partition(".")[0] in ("annotated_types", "pydantic")
    return known and type(extra).__name__.endswith(("Validator", "Predicate"))


def is_record(hint: Any) -> bool:
    """Whether a type is a class with typed fields that msgspec can make."""
    if not isinstance(hint, type):
        return False
    known: Any = hint
    if issubclass(known, Struct) or hasattr(known, "__dataclass_fields__") or is_typed_dict(known):
        return True
    return issubclass(known, tuple) and hasattr(cast(Any, known), "_fields")


def is_typed_dict(hint: Any) -> bool:
    """Whether a type is a TypedDict, of typing or of typing_extensions."""
    return type(hint).__name__ == "_TypedDictMeta"


def fields_of(record: Any) -> dict[str, Any]:
    """The hints of a record's fields, by JSON name."""
    hints = typing.get_type_hints(record, include_extras=True)
    names: Sequence[str] = getattr(record, "__struct_fields__", None) or getattr(record, "_fields", ())
    if is_typed_dict(record):
        names = tuple(hints)
    elif hasattr(record, "__dataclass_fields__"):
        names = [field.name for field in _fields(record) if field.init]
    encoded: Sequence[str] = getattr(record, "__struct_encode_fields__", names)
    return {key: hints.get(name, Any) for name, key in zip(names, encoded, strict=True)}


def has_computed_fields(record: Any) -> bool:
    """Whether a dataclass has fields with `init=False`."""
    return hasattr(record, "__dataclass_fields__") and not all(field.init for field in _fields(record))


def _fields(record: Any) -> Sequence[Any]:
    import dataclasses  # Imported already by the owner of a dataclass.

    return dataclasses.fields(record)


def are_distinguishable(members: Sequence[Any]) -> bool:
    """Whether msgspec can tell the members of a union apart.

    It isn't asked itself: version 0.22 corrupts memory on unions whose members have limits, such as
    `Annotated[str, Meta(pattern="a")] | list[int]`, and records that are still being lowered may contain them.
    """
    seen: set[str] = set()
    for member in members:
        kinds = _kinds(member)
        if not kinds or kinds & seen:
            return False
        seen |= kinds
    tags = [kind for kind in seen if kind.startswith("tag ")]
    fields = {kind.split()[1] for kind in tags}
    return not tags or (len(fields) == 1 and "object" not in seen)


def _kinds(member: Any) -> set[str]:
    """The JSON types that distinguish a union member; empty if nothing does."""
    origin = get_origin(member)
    if origin is Annotated:
        base, *metas = get_args(member)
        return set() if have_limits(metas) else _kinds(base)
    if is_union(member):
        parts = [_kinds(part) for part in get_args(member)]
        return set[str]().union(*parts) if all(parts) else set()
    base = origin or member
    if base in KINDS:
        return {KINDS[base]}
    if is_record(base):
        return _record_kinds(base)
    values: list[object] = list(get_args(member)) if origin is Literal else []
    if isinstance(base, type) and issubclass(base, Enum):
        values = [option.value for option in base]
    return {JSON_TYPES.get(type(value), "") for value in values}


def _record_kinds(record: Any) -> set[str]:
    config = getattr(record, "__struct_config__", None)
    if config is None:
        return {"array" if issubclass(record, tuple) else "object"}
    if config.array_like:
        return set()
    if config.tag is None:
        return {"object"}
    return {f"tag {config.tag_field}:{type(config.tag).__name__} {config.tag}"}
