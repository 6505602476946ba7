"""What msgspec doesn't take by itself: pydantic models, and the unions and records that hold them.

Pydantic is never imported: a type can only be a model of it when the user has imported it.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, cast, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct, ValidationError

__all__ = [
    "REFUSALS",
    "Carrier",
    "Problem",
    "convert",
    "dump_model",
    "is_model",
    "is_record",
    "model_schema",
    "problems_of",
    "record_carrier",
    "revive",
    "union_carrier",
]

Problem = tuple[str, str]

REFUSALS = (ValidationError, UnicodeError, RecursionError, TypeError)


class MismatchError(ValueError):
    """A value that doesn't fit, in all the places where it doesn't."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__()
        self.problems = problems


def convert(value: Any, target: Any) -> Any:
    """Decoded JSON as a value of a lowered type; raises one of REFUSALS."""
    return msgspec.convert(value, target, str_keys=True, dec_hook=revive)


def revive(custom: Any, value: Any) -> Any:
    """The value of a type that msgspec doesn't know, from decoded JSON."""
    carried = isinstance(custom, Carrier)
    if not carried and not is_model(custom):
        raise TypeError("a type without a JSON form")
    try:
        return custom.revive(value) if carried else custom.model_validate(value)
    except MismatchError:
        raise
    except ValueError as error:
        raise MismatchError(_model_problems(error, value)) from None


def problems_of(error: Exception, value: Any, target: Any) -> list[Problem]:
    """What kept `convert` from making a `target` of a value, as paths and reasons."""
    if isinstance(error, ValidationError):
        return _told(error)
    if isinstance(error, RecursionError):
        return [("$", "nested too deeply")]
    if isinstance(error, TypeError):
        return [("$", "the items of a set must be plain values" if "unhashable" in str(error) else str(error))]
    try:
        convert(_without_surrogates(value), target)
    except REFUSALS as plainer:
        if not isinstance(plainer, UnicodeError):
            return problems_of(plainer, value, target)
    return [("$", "text that is not valid Unicode")]


def _told(error: ValidationError) -> list[Problem]:
    text, path = str(error), "$"
    reason, _, tail = text.rpartition(" - at `")
    if tail.startswith("$") and tail.endswith("`"):
        path = tail[:-1]
    elif tail.startswith("key` in `$") and tail.endswith("`"):
        reason, path = f"{reason} in a key", tail[9:-1]
    else:
        reason = text
    if isinstance(error.__cause__, MismatchError):
        return [(path + inner[1:], why) for inner, why in error.__cause__.problems]
    return [(path, reason)]


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_without_surrogates(item) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        pairs = cast(dict[Any, Any], value).items()
        return {_without_surrogates(key): _without_surrogates(item) for key, item in pairs}
    return value


# Carriers


class Carrier(type):
    """A type that msgspec takes for a custom one, and so hands to `revive`."""

    key: str
    parts: tuple[Any, ...]
    revive: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        return True


def union_carrier(key: str, members: tuple[Any, ...]) -> Carrier:
    """A union that msgspec refuses, whose members are tried one by one."""
    carrier = Carrier("Carrier", (), {})
    carrier.key, carrier.parts = key, members
    carrier.revive = partial(_revive_union, members)
    return carrier


def record_carrier(key: str, record: Any, lower: Callable[[Carrier], dict[str, Any]]) -> Carrier:
    """A record some of whose fields are lowered; `lower` is given the carrier, for fields that hold it."""
    carrier = Carrier("Carrier", (), {})
    carrier.key = key
    copy, build = _copy_of(record, lower(carrier), f"{key}.{record.__name__}")
    carrier.parts = (copy,)
    carrier.revive = partial(_revive_record, copy, build)
    return carrier


def is_record(hint: Any) -> bool:
    """Whether a type is a class with named, typed fields that msgspec knows how to make."""
    if not isinstance(hint, type):
        return False
    known: Any = hint
    if issubclass(known, Struct) or hasattr(known, "__dataclass_fields__") or typing.is_typeddict(known):
        return True
    return issubclass(known, tuple) and hasattr(cast(Any, known), "_fields")


def _revive_record(copy: Any, build: Callable[[Any], Any], value: Any) -> Any:
    try:
        made = convert(value, copy)
    except REFUSALS as error:
        raise MismatchError(problems_of(error, value, copy)) from None
    return build(made)


def _revive_union(members: tuple[Any, ...], value: Any) -> Any:
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


def _overlap(member: Any, value: Any) -> int:
    """How many of an object's keys a member of a union knows, to tell apart members that ignore others."""
    if not isinstance(value, dict):
        return 0
    while get_origin(member) is Annotated:
        member = get_args(member)[0]
    if isinstance(member, Carrier):
        member = member.parts[0]
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
    if not inside:
        return [problem for _, problems in failures for problem in problems]
    best = max(overlap for overlap, _ in inside)
    if best:
        return min((problems for overlap, problems in inside if overlap == best), key=len)
    return [problem for _, problems in inside for problem in problems]


def _is_other_kind(problems: list[Problem]) -> bool:
    path, reason = problems[0]
    return path == "$" and reason.lower().startswith("expected") and ", got " in reason


def _copy_of(record: Any, fields: dict[str, Any], name: str) -> tuple[Any, Callable[[Any], Any]]:
    """A record of the same JSON form whose fields have other types, and the way from it to the real one."""
    if typing.is_typeddict(record):
        make: Any = typing.TypedDict
        absent = _absent_keys(record)
        kinds = {key: typing.NotRequired[kind] if key in absent else kind for key, kind in fields.items()}
        return make(name, kinds), lambda made: made
    if issubclass(record, tuple):
        make = typing.NamedTuple
        copy = make("Copy", list(fields.items()))
        copy.__new__.__defaults__ = tuple(cast(Any, record)._field_defaults.values())
        copy._field_defaults = cast(Any, record)._field_defaults
        return copy, lambda made: cast(Any, record)(*made)
    return _struct_of(record, fields, name)


def _absent_keys(record: Any) -> set[str]:
    """The keys that a TypedDict may lack, by its hints too: it doesn't see `NotRequired` in quotes itself."""
    absent: set[str] = set(record.__optional_keys__)
    for key, hint in typing.get_type_hints(record, include_extras=True).items():
        qualifier = getattr(get_origin(hint), "_name", None)
        if qualifier == "NotRequired":
            absent.add(key)
        elif qualifier == "Required":
            absent.discard(key)
    return absent


def _struct_of(record: Any, fields: dict[str, Any], name: str) -> tuple[Any, Callable[[Any], Any]]:
    options: dict[str, Any] = {}
    if issubclass(record, Struct):
        described: Sequence[Any] = msgspec.structs.fields(record)
        config = record.__struct_config__
        options = {
            "rename": {field.name: field.encode_name for field in described},
            "forbid_unknown_fields": config.forbid_unknown_fields,
            "array_like": config.array_like,
            "tag": config.tag,
            "tag_field": config.tag_field,
        }
    else:
        import dataclasses

        described = [field for field in dataclasses.fields(record) if field.init]
    names = [field.name for field in described]
    encoded: dict[str, str] = options.get("rename", {})
    specs = [(field.name, fields[encoded.get(field.name, field.name)], _default_of(field)) for field in described]
    doc = record.__doc__ or ""
    if doc.startswith(f"{record.__name__}("):  # a dataclass's own
        doc = ""
    copy = msgspec.defstruct(name, specs, kw_only=True, namespace={"__doc__": doc}, **options)
    return copy, lambda made: record(**{name: getattr(made, name) for name in names})


def _default_of(field: Any) -> Any:
    import dataclasses

    found = {key: getattr(field, key) for key in ("default", "default_factory")}
    absent = (NODEFAULT, dataclasses.MISSING)
    return msgspec.field(**{key: value for key, value in found.items() if value not in absent})


# Models


_KINDS = {
    "string": "str",
    "bytes": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "none": "null",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "frozen_set": "array",
    "iterable": "array",
    "dict": "object",
    "mapping": "object",
    "model": "object",
    "model_attributes": "object",
    "dataclass": "object",
}
_LIMITS = {
    "greater_than": ("gt", ">"),
    "greater_than_equal": ("ge", ">="),
    "less_than": ("lt", "<"),
    "less_than_equal": ("le", "<="),
    "string_too_short": ("min_length", "of length >="),
    "string_too_long": ("max_length", "of length <="),
    "too_short": ("min_length", "of length >="),
    "too_long": ("max_length", "of length <="),
    "multiple_of": ("multiple_of", "that's a multiple of"),
}
_JSON_NAMES: dict[type, str] = {type(None): "null", list: "array", tuple: "array", dict: "object"}


def is_model(hint: Any) -> bool:
    """Whether a type is a pydantic model."""
    # BaseModel lives in this module, and to ask the package for it would import it.
    module = sys.modules.get("pydantic.main")
    return module is not None and isinstance(hint, type) and issubclass(hint, module.BaseModel)


def dump_model(value: Any) -> Any:
    """A model as JSON; raises TypeError for anything else."""
    if not is_model(cast(Any, type(value))):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return value.model_dump(mode="json")


def model_schema(model: Any, key: str) -> dict[str, Any]:
    """The schema of a model under `key`, and of what it refers to under names that start with it."""
    schema: dict[str, Any] = model.model_json_schema(ref_template=f"#/$defs/{key}.{{model}}")
    nested: dict[str, Any] = schema.pop("$defs", {})
    return {key: schema} | {f"{key}.{name}": part for name, part in nested.items()}


def _model_problems(error: ValueError, value: Any) -> list[Problem]:
    errors = getattr(error, "errors", None)
    if errors is None:
        return [("$", str(error))]
    return [_model_problem(item, value) for item in errors(include_url=False)]


def _model_problem(item: dict[str, Any], value: Any) -> Problem:
    place: tuple[int | str, ...] = item["loc"]
    if item["type"] == "missing" and place:
        what = "item" if isinstance(place[-1], int) else "field"
        return _path(place[:-1], value), f"missing required {what} {place[-1]!r}"
    if item["type"] == "extra_forbidden" and place:
        return _path(place[:-1], value), f"unknown field {place[-1]!r:.80}"
    return _path(place, value), _reason(item)


def _path(place: tuple[int | str, ...], value: Any) -> str:
    path = "$"
    for part in place:
        # What isn't a place in the value is the label of a validator or of a member of a union.
        if isinstance(value, dict) and part in value:
            value = cast(dict[Any, Any], value)[part]
            plain = isinstance(part, str) and part.isidentifier() and len(part) <= 80
            path += f".{part}" if plain else f"[{part!r:.80}]"
        elif isinstance(value, list) and isinstance(part, int) and part < len(cast(list[Any], value)):
            value = cast(list[Any], value)[part]
            path += f"[{part}]"
    return path


def _reason(item: dict[str, Any]) -> str:
    kind: str = item["type"]
    message: str = item["msg"]
    context: dict[str, Any] = item.get("ctx", {})
    given: object = item["input"]
    got = _JSON_NAMES.get(type(given), type(given).__name__)
    base, _, suffix = kind.rpartition("_")
    if suffix in ("type", "parsing", "required") and _KINDS.get(base, got) != got:
        return f"expected {_KINDS[base]}, got {got}"
    if kind in _LIMITS:
        key, sign = _LIMITS[kind]
        return f"expected {got} {sign} {context[key]}"
    if kind == "string_pattern_mismatch":
        return f"expected str matching regex {context['pattern']!r}"
    if kind in ("literal_error", "enum"):
        return f"invalid enum value {item['input']!r:.80}"
    if kind == "string_unicode":
        return "text that is not valid Unicode"
    if kind in ("value_error", "assertion_error"):
        return message.partition(", ")[2]
    return message.replace("Input should be ", "expected ", 1)
