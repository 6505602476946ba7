"""Instances of the types of vendors' SDKs, made from the types themselves, as JSON."""

from __future__ import annotations

import enum
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

# Texts that are no free text: of a format, or of a meaning of their own.
_TEXTS = {"arguments": '{"at": 1}', "delta": "Hi", "partial_json": '{"at": 1}', "url": "https://a.test"}
_PLAIN: dict[Any, Any] = {bool: True, int: 1, float: 1.0, bytes: "AAAA"}


def members(union: Any) -> list[Any]:
    """The types of a union, however it is nested."""
    if get_origin(union) is Annotated:
        return members(get_args(union)[0])
    if get_origin(union) in (Union, types.UnionType):
        return [one for each in get_args(union) for one in members(each) if one is not type(None)]
    return [union]


def instance(kind: Any, *, whole: bool, above: tuple[Any, ...] = ()) -> dict[str, Any]:
    """A model of pydantic with its required fields, or with all that don't nest it in itself."""
    made: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if whole or field.is_required():
            made[field.alias or name] = value(field.annotation, name, whole=whole, above=(*above, kind))
    return made


def value(kind: Any, name: str, *, whole: bool, above: tuple[Any, ...] = ()) -> Any:
    """A value of a type; a text is its field's name."""
    first, given = members(kind)[0], get_args(members(kind)[0])
    if get_origin(first) is Literal:
        return given[0]
    if get_origin(first) is list:
        found = value(given[0], name, whole=whole, above=above)
        return [] if found is None else [found]
    if get_origin(first) is dict or first is dict:
        return {}
    if isinstance(first, type) and issubclass(first, enum.Enum):
        return [*first][-1].value
    if hasattr(first, "model_fields"):
        return None if first in above else instance(first, whole=whole, above=above)
    return _PLAIN.get(first, _TEXTS.get(name, name))


def shape_value(shape: Any, name: str = "text") -> Any:
    """A value of a shape of botocore's service model, with all its members."""
    match shape.type_name:
        case "structure" if getattr(shape, "is_document_type", False):
            return {"k": 1}
        case "structure":
            return {key: shape_value(inner, key) for key, inner in shape.members.items()}
        case "list":
            return [shape_value(shape.member, name)]
        case "map":
            return {"k": shape_value(shape.value, name)}
        case "string":
            return shape.enum[0] if shape.enum else _TEXTS.get(name, name)
        case "blob":
            return "AAAA"
        case "boolean":
            return True
        case _:
            return 1


def single(shape: Any, name: str) -> dict[str, Any]:
    """A union of botocore's with one of its members."""
    return {name: shape_value(shape.members[name], name)}
