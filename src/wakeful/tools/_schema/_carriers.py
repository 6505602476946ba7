"""Carriers of what msgspec refuses: unions that it can't tell apart, and records that hold such things."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct

from ._convert import REFUSALS, Carrier, MismatchError, convert, problems_of
from ._hints import is_typed_dict
from ._pydantic import is_model, model_of
from ._wording import Problem

__all__ = ["carry_checked", "carry_record", "carry_union"]


def carry_union(carrier: Carrier, members: tuple[Any, ...]) -> None:
    """Make a carrier stand for a union, whose members are tried one by one."""

    def revive(value: Any) -> Any:
        fits: list[tuple[int, Any]] = []
        failures: list[tuple[int, list[Problem]]] = []
        for member in members:
            overlap = _overlap(member, value)
            try:
                made = convert(value, member)
            except REFUSALS as error:
                failures.append((overlap, problems_of(error, value, member)))
                continue
            if not isinstance(value, dict):
                return made
            fits.append((overlap, made))
        if fits:
            return max(fits, key=lambda fit: fit[0])[1]
        raise MismatchError(_nearest(failures))

    carrier.parts, carrier.revive = members, revive


def carry_record(carrier: Carrier, record: Any, fields: dict[str, Any]) -> None:
    """Make a carrier stand for a record, whose fields are of other types than it says."""
    copy, build = _copy_of(record, fields, f"{carrier.key}.{record.__name__}")

    def revive(value: Any) -> Any:
        try:
            made = convert(value, copy)
        except REFUSALS as error:
            raise MismatchError(problems_of(error, value, copy)) from None
        return build(made)

    carrier.parts, carrier.revive = (copy,), revive


def carry_checked(carrier: Carrier, kind: Any) -> None:
    """Make a carrier stand for a dataclass of pydantic's."""
    model = model_of(kind)
    carrier.parts, carrier.revive = (model,), lambda value: model.model_validate(value).root


def _overlap(member: Any, value: Any) -> int:
    """How many of an object's keys a member of a union knows, to tell apart members that ignore others."""
    if not isinstance(value, dict):
        return 0
    while get_origin(member) is Annotated:
        member = get_args(member)[0]
    if isinstance(member, Carrier):
        member = member.parts[0]
    if is_model(member) and (root := member.model_fields.get("root")) is not None:
        member = root.annotation
    names: Any = (
        getattr(member, "__struct_encode_fields__", None)
        or getattr(member, "__dataclass_fields__", None)
        or getattr(member, "__annotations__", ())
    )
    if is_model(member):
        fields: dict[str, Any] = member.model_fields
        names = {alias for name, field in fields.items() for alias in (name, field.alias, field.validation_alias)}
    return sum(key in names for key in cast(dict[str, Any], value))


def _nearest(failures: list[tuple[int, list[Problem]]]) -> list[Problem]:
    """The problems worth telling of a value that fits no member of a union."""
    inside = [failure for failure in failures if not _is_other_kind(failure[1])]
    # Members often have a field that says which one is meant.
    meant = [failure for failure in inside if not _is_of_another(failure[1])]
    inside = meant or inside
    best = max((overlap for overlap, _ in inside), default=0)
    if best:
        return min((problems for overlap, problems in inside if overlap == best), key=len)
    return [problem for _, problems in inside or failures for problem in problems]


def _is_other_kind(problems: list[Problem]) -> bool:
    path, reason = problems[0]
    return path == "$" and reason.lower().startswith("expected") and ", got " in reason


def _is_of_another(problems: list[Problem]) -> bool:
    return any(
        path.count(".") == 1 and reason.lower().startswith("invalid enum value") for path, reason in problems
    )


_Copy = tuple[Any, Callable[[Any], Any]]


def _copy_of(record: Any, fields: dict[str, Any], name: str) -> _Copy:
    """A record of the same JSON form whose fields have other types, and the way from it to the real one."""
    make = _dict_of if is_typed_dict(record) else _tuple_of if issubclass(record, tuple) else _struct_of
    copy, build = make(record, fields)
    copy.__name__ = name
    doc = record.__doc__ or ""
    copy.__doc__ = "" if doc.startswith(f"{record.__name__}(") else doc  # one that Python made
    return copy, build


def _dict_of(record: Any, fields: dict[str, Any]) -> _Copy:
    kinds: dict[str, Any] = {}
    for key, hint in typing.get_type_hints(record, include_extras=True).items():
        # The class doesn't see a qualifier in quotes itself.
        qualifier = getattr(get_origin(hint), "_name", None)
        required = qualifier == "Required" or (qualifier != "NotRequired" and key in record.__required_keys__)
        kinds[key] = fields[key] if required else typing.NotRequired[fields[key]]
    make: Any = typing.TypedDict
    return make("Copy", kinds), lambda made: made


def _tuple_of(record: Any, fields: dict[str, Any]) -> _Copy:
    make: Any = typing.NamedTuple
    copy = make("Copy", list(fields.items()))
    copy.__new__.__defaults__ = tuple(record._field_defaults.values())
    copy._field_defaults = record._field_defaults
    return copy, lambda made: record(*made)


def _struct_of(record: Any, fields: dict[str, Any]) -> _Copy:
    import dataclasses

    options: dict[str, Any] = {}
    described: Sequence[Any]
    if issubclass(record, Struct):
        described = msgspec.structs.fields(record)
        config = record.__struct_config__
        options = {
            "rename": {field.name: field.encode_name for field in described},
            "forbid_unknown_fields": config.forbid_unknown_fields,
            "array_like": config.array_like,
            "tag": config.tag,
            "tag_field": config.tag_field,
        }
    else:
        described = [field for field in dataclasses.fields(record) if field.init]
    encoded: dict[str, str] = options.get("rename", {})
    specs: list[tuple[str, Any, Any]] = []
    for field in described:
        found = {key: getattr(field, key) for key in ("default", "default_factory")}
        given = {key: value for key, value in found.items() if value not in (NODEFAULT, dataclasses.MISSING)}
        specs.append((field.name, fields[encoded.get(field.name, field.name)], msgspec.field(**given)))
    copy = msgspec.defstruct("Copy", specs, kw_only=True, **options)
    return copy, lambda made: record(**{name: getattr(made, name) for name, _, _ in specs})
