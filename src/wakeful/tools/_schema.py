"""Types and signatures as the JSON schemas that models are given, and JSON as values of those types."""

from __future__ import annotations

import collections.abc as abc
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from math import isfinite
from typing import Annotated, Any, Literal, NamedTuple, Union, cast, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec import Meta

from wakeful.errors import InvalidArguments, ShapeError

from ._docstring import split_docstring
from ._pydantic import (
    REFUSALS,
    Carrier,
    Problem,
    convert,
    dump_model,
    is_model,
    is_record,
    model_schema,
    problems_of,
    record_carrier,
    revive,
    union_carrier,
)

__all__ = ["Parameters", "Shape", "description_of", "parameters_of"]

_Schema = dict[str, Any]
_NONE = type(None)
_NULL: _Schema = {"type": "null"}


class Shape:
    """A type as JSON: its schema for a model, and the way from decoded JSON to a value."""

    __slots__ = ("_decoder", "_lowering", "_schema", "_target", "name", "type")

    def __init__(self, type_: Any, *, name: str | None = None) -> None:
        self.type: Any = type_
        self.name: str = name or getattr(type_, "__name__", None) or "value"
        self._lowering = _Lowering()
        try:
            self._target = self._lowering.lower_root(type_)
        except (TypeError, NameError) as error:
            raise ShapeError(str(error)) from error
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._target, dec_hook=revive)
        self._schema: _Schema | None = None

    def __repr__(self) -> str:
        return f"Shape({_show(self.type)})"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema, in the terms that vendors accept."""
        if self._schema is None:
            (schema,), definitions = self._lowering.schemas([self._target])
            self._schema = _Polish(definitions).root(schema)
        return self._schema

    def convert(self, value: Any) -> Any:
        """Decoded JSON as a value of the type; raises InvalidArguments."""
        try:
            return convert(value, self._target)
        except REFUSALS as error:
            problems = problems_of(error, value, self._target)
        raise InvalidArguments(_told(problems, self.schema))

    def decode(self, text: str | bytes) -> Any:
        """JSON text, bare or in a Markdown fence, as a value of the type; raises InvalidArguments."""
        try:
            return self._decoder.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
            pass  # the slow way finds out what to say, or that there is a fence around it
        return self.convert(_parsed(text))


class _Parameter(NamedTuple):
    name: str
    target: Any
    required: bool
    default: Any
    description: str | None


class Parameters:
    """A function's parameters as one JSON object."""

    __slots__ = ("_lowering", "_parameters", "_plain", "_schema", "_target", "context")

    def __init__(self, parameters: Sequence[_Parameter], lowering: _Lowering, context: str | None) -> None:
        self.context = context
        self._parameters = {parameter.name: parameter for parameter in parameters}
        self._lowering = lowering
        self._plain = lowering.plain
        # Only what was given is read back, so that what stands for an absent argument never shows.
        self._target = msgspec.defstruct(
            "Arguments",
            [(p.name, p.target) if p.required else (p.name, p.target, None) for p in parameters],
            kw_only=True,
            forbid_unknown_fields=True,
        )
        self._schema: _Schema | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the object, in the terms that vendors accept."""
        if self._schema is None:
            parameters = list(self._parameters.values())
            schemas, definitions = self._lowering.schemas([parameter.target for parameter in parameters])
            polish = _Polish(definitions)
            properties = {
                parameter.name: _property(parameter, polish.schema(schema))
                for parameter, schema in zip(parameters, schemas, strict=True)
            }
            self._schema = polish.with_definitions(
                {
                    "type": "object",
                    "properties": properties,
                    "required": [parameter.name for parameter in parameters if parameter.required],
                    "additionalProperties": False,
                }
            )
        return self._schema

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments, checked and converted, without those that were left out; raises InvalidArguments."""
        try:
            # Without keyword arguments the call takes half the time.
            make = msgspec.convert if self._plain else convert
            bound = make(arguments, self._target)
        except REFUSALS as error:
            problems = self._problems(error, arguments)
        else:
            return {name: getattr(bound, name) for name in arguments}
        raise InvalidArguments(_told(problems, self.schema))

    def _problems(self, error: Exception, arguments: Any) -> list[Problem]:
        if not isinstance(arguments, dict):
            return problems_of(error, arguments, self._target)
        given = cast(dict[str, Any], arguments)
        problems: list[Problem] = []
        if unknown := [name for name in given if name not in self._parameters]:
            expected = ", ".join(self._parameters) or "none"
            problems.append(("$", f"unknown {_listed(unknown)} (expected: {expected})"))
        required = [name for name, parameter in self._parameters.items() if parameter.required]
        if missing := [name for name in required if name not in given]:
            problems.append(("$", f"missing required {_listed(missing)}"))
        for name, parameter in self._parameters.items():
            if name not in given:
                continue
            try:
                convert(given[name], parameter.target)
            except REFUSALS as fault:
                found = problems_of(fault, given[name], parameter.target)
                problems += [(f"$.{name}{path[1:]}", reason) for path, reason in found]
        return problems or problems_of(error, given, self._target)


def parameters_of(function: Callable[..., Any], *, context_type: type, is_method: bool = False) -> Parameters:
    """The parameters of a function; raises ShapeError, a TypeError, for one that no JSON object can fill."""
    label = _label(function)
    declared = _declared(function, label)[1 if is_method else 0 :]
    hints = _hints(function, [parameter.name for parameter in declared], context_type, label)
    documented = split_docstring(_documentation(function))[1]
    lowering = _Lowering()
    context: str | None = None
    parameters: list[_Parameter] = []
    for name, parameter in ((parameter.name, parameter) for parameter in declared):
        hint = hints.get(name, Any)
        if _is_context(hint, context_type):
            if context is not None:
                raise ShapeError(f"{label}: parameters {context!r} and {name!r} both take the context")
            context = name
            continue
        try:
            target = lowering.lower_root(hint, optional=parameter.default is None)
        except (TypeError, NameError) as error:
            raise ShapeError(f"{label}: parameter {name!r}: {error}") from error
        required = parameter.default is parameter.empty
        description = _description(hint) or documented.get(name)
        parameters.append(_Parameter(name, target, required, parameter.default, description))
    return Parameters(parameters, lowering, context)


def description_of(function: Callable[..., Any]) -> str:
    """A function's docstring, without what it says of parameters, results and errors."""
    return split_docstring(_documentation(function))[0]


# Signatures


def _underlying(function: Any) -> Any:
    while isinstance(function, partial):
        function = cast(Any, function).func
    if inspect.isroutine(function) or isinstance(function, type):
        return function
    return type(cast(object, function)).__call__


def _documentation(function: Any) -> str | None:
    found = _underlying(function)
    own: str | None = found.__doc__
    return own or (None if isinstance(function, partial) else function.__doc__)


def _label(function: Any) -> str:
    return f"{getattr(_underlying(function), '__qualname__', repr(function))}()"


def _declared(function: Any, label: str) -> list[inspect.Parameter]:
    try:
        declared = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        raise ShapeError(f"{label}: its signature cannot be read: {error}") from error
    for parameter in declared:
        name = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            fault = f"'*{name}' cannot be given by name; declare a list instead, such as '{name}: list[str]'"
        elif parameter.kind is parameter.VAR_KEYWORD:
            fault = (
                f"'**{name}' has no schema; name each parameter, or declare a dict instead, "
                f"such as '{name}: dict[str, str]'"
            )
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            fault = f"{name!r} is positional-only and cannot be given by name; remove the '/' that follows it"
        else:
            continue
        raise ShapeError(f"{label}: parameter {fault}")
    return declared


def _hints(function: Any, names: list[str], context_type: type, label: str) -> dict[str, Any]:
    function = _underlying(function)
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):
        pass  # one at a time, so that the one at fault can be named and the rest be read
    function = inspect.unwrap(getattr(function, "__func__", function))
    scope: dict[str, Any] = getattr(function, "__globals__", {})
    # The context's type is often imported for the type checker alone.
    local = {context_type.__name__: context_type, **scope, **_enclosing(function)}
    annotations: dict[str, Any] = getattr(function, "__annotations__", {})
    hints: dict[str, Any] = {}
    for name in names:
        if name not in annotations:
            continue
        lone = types.SimpleNamespace(__annotations__={name: annotations[name]})
        try:
            hints.update(typing.get_type_hints(lone, scope, local, include_extras=True))
        except Exception as error:
            what = f"its annotation {annotations[name]!r} cannot be resolved"
            raise ShapeError(f"{label}: parameter {name!r}: {what}: {error}") from error
    return hints


def _enclosing(function: Any) -> dict[str, Any]:
    """The names that a nested function sees, as far as it or a caller that still runs holds them."""
    names: dict[str, Any] = {}
    qualname: str = getattr(function, "__qualname__", "")
    frame = inspect.currentframe()
    while frame is not None:
        holds = qualname.startswith(f"{frame.f_code.co_qualname}.")
        if holds and frame.f_globals is getattr(function, "__globals__", None):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    free: tuple[str, ...] = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(free, getattr(function, "__closure__", None) or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue
    return names


def _is_context(hint: Any, context_type: type) -> bool:
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_context(get_args(hint)[0], context_type)
    if (only := _only_alternative(hint)) is not None:
        return _is_context(only, context_type)
    base = origin or hint
    return isinstance(base, type) and issubclass(base, context_type)


def _only_alternative(hint: Any) -> Any:
    """T of an `Optional[T]`, and None for any other type."""
    if get_origin(hint) not in (Union, types.UnionType):
        return None
    members = [member for member in get_args(hint) if member is not _NONE]
    return members[0] if len(members) == 1 else None


def _description(hint: Any) -> str | None:
    """What an annotation itself says of what it annotates."""
    if get_origin(hint) is Annotated:
        base, *extras = get_args(hint)
        return _first_description(extras) or _description(base)
    only = _only_alternative(hint)
    return None if only is None else _description(only)


def _first_description(extras: Sequence[Any]) -> str | None:
    for extra in extras:
        text = extra
        if not isinstance(extra, str):
            text = getattr(extra, "description", None) or getattr(extra, "documentation", None)
        if text and isinstance(text, str):
            return text
    return None


def _property(parameter: _Parameter, schema: _Schema) -> _Schema:
    if parameter.default is None:
        schema = _without_null(schema)
    if parameter.description:
        schema["description"] = parameter.description
    if parameter.required:
        return schema
    if parameter.default is None:
        if _NULL in schema.get("anyOf", ()):
            schema["default"] = None
        return schema
    try:
        encoded = msgspec.json.encode(parameter.default, enc_hook=dump_model, order="deterministic")
        default = msgspec.json.decode(encoded)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return schema
    if default is not None:  # which is what a NaN becomes
        schema["default"] = default
    return schema


def _without_null(schema: _Schema) -> _Schema:
    options: list[_Schema] = schema.get("anyOf", [])
    others = [option for option in options if option != _NULL]
    if len(others) == 1 and len(options) == 2:
        return _without_null({**others[0], **{key: part for key, part in schema.items() if key != "anyOf"}})
    values: list[Any] = schema.get("enum", [])
    if None in values and len(values) > 1:
        return _typed_enum({**schema, "enum": [value for value in values if value is not None]})
    return schema


# Types that msgspec takes


_JSON_TYPES: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    _NONE: "null",
}
_ATOMS: dict[Any, str] = {
    **_JSON_TYPES,
    **dict.fromkeys((bytes, bytearray, memoryview, date, datetime, time, timedelta, Decimal, UUID), "string"),
}
_FORMATS: dict[Any, str] = {datetime: "date-time", time: "time"}
_MAPPINGS: frozenset[Any] = frozenset({dict, abc.Mapping, abc.MutableMapping})
_SEQUENCES: frozenset[Any] = frozenset({list, tuple, abc.Sequence, abc.MutableSequence, abc.Collection})
_SETS: frozenset[Any] = frozenset({set, frozenset, abc.Set, abc.MutableSet})
_CONTAINERS = _MAPPINGS | _SEQUENCES | _SETS
_BUILTINS = _CONTAINERS | _ATOMS.keys() | {msgspec.Raw, msgspec.UnsetType}
_QUALIFIERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final"})
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")


class _Lowering:
    """A rewriting of types into types that msgspec takes, and the schemas of those."""

    def __init__(self) -> None:
        self.plain = True
        self._changes = 0
        self._records: dict[Any, Any] = {}
        self._overlays: dict[Any, dict[str, Any]] = {}
        self._carriers: list[Carrier] = []
        self._aliases: list[Any] = []

    def lower_root(self, hint: Any, *, optional: bool = False) -> Any:
        """The type that stands for `hint`; raises TypeError or NameError."""
        target = self._lower(hint)
        if optional:
            target = self._union([target, _NONE])
        for part in (target, *(part for carrier in self._carriers for part in carrier.parts)):
            msgspec.json.Decoder(part)
        return target

    def _lower(self, hint: Any) -> Any:
        origin = get_origin(hint)
        if origin is Annotated:
            return self._annotated(hint)
        if origin in (Union, types.UnionType):
            return self._union([self._lower(member) for member in get_args(hint)])
        if origin is Literal or hint is Any or hint is None or isinstance(hint, typing.TypeVar):
            return hint
        if getattr(origin, "_name", None) in _QUALIFIERS:
            return self._lower(get_args(hint)[0])
        if isinstance(hint, typing.NewType):
            return self._lower(hint.__supertype__)
        if type(hint).__name__ == "TypeAliasType":
            return self._alias(hint)
        return self._class(hint) if origin is None else self._generic(hint, origin)

    def _annotated(self, hint: Any) -> Any:
        base, *extras = get_args(hint)
        metas = [extra for extra in extras if isinstance(extra, Meta)]
        if limits := _foreign_limits(extras):
            self._changes += 1
            metas.append(Meta(**limits))
        if text := _first_description(extras):
            metas.append(Meta(description=text))
        inner = self._lower(base)
        if not metas:
            return inner
        only = _only_alternative(inner)
        if only is not None and _have_limits(metas):
            # msgspec sets no limits to a union, and None needs none.
            self._changes += 1
            return _union_of([_annotate(only, metas), _NONE])
        return _annotate(inner, metas)

    def _union(self, members: list[Any]) -> Any:
        if Any in members:
            return Any
        apart = [member for member in members if member in (_NONE, msgspec.UnsetType)]
        parts = tuple(member for member in members if member not in apart)
        if len(parts) < 2 or _are_told_apart(parts):
            return _union_of(members)
        carrier = self._add(union_carrier(self._key(), parts))
        return _union_of([carrier, *apart])

    def _alias(self, alias: Any) -> Any:
        if alias in self._aliases:
            raise ShapeError(f"{alias} refers to itself; make it a dataclass or a msgspec Struct")
        self._aliases.append(alias)
        target = self._lower(alias.__value__)
        self._aliases.pop()
        return target

    def _generic(self, hint: Any, origin: Any) -> Any:
        arguments = get_args(hint)
        if is_record(origin):
            self.plain = False
            return hint
        if origin not in _CONTAINERS:
            raise _unsupported(hint)
        if origin in _MAPPINGS and arguments and arguments[0] is not str:
            self.plain = False
        lowered = tuple(item if item is ... else self._lower(item) for item in arguments)
        return hint if lowered == arguments else origin[lowered]

    def _class(self, hint: Any) -> Any:
        if hint is object:
            return Any
        if not isinstance(cast(object, hint), type):
            raise _unsupported(hint)
        if hint in _FORMATS:
            return _annotate(hint, [Meta(extra_json_schema={"format": _FORMATS[hint]})])
        if hint in _BUILTINS:
            return hint
        if is_model(hint):
            self.plain = False
            return hint
        if is_record(hint):
            return self._record(hint)
        if issubclass(hint, Enum):
            return hint
        if hasattr(hint, "__attrs_attrs__"):
            self.plain = False
            return hint
        raise _unsupported(hint)

    def _record(self, record: Any) -> Any:
        if record in self._records:
            known = self._records[record]
            self._changes += isinstance(known, Carrier)
            return known
        before = self._changes, self._records.copy(), self._overlays.copy(), self._carriers.copy()
        hints = _fields_of(record)
        self._records[record] = record
        fields = {name: self._lower(hint) for name, hint in hints.items()}
        if self._changes == before[0]:
            self._overlays[record] = {name: kind for name, kind in fields.items() if kind != hints[name]}
            return record
        # It can't stand as it is, and nor can what was lowered while it seemed that it could.
        _, self._records, self._overlays, self._carriers = before

        def lower(carrier: Carrier) -> dict[str, Any]:
            self._records[record] = self._add(carrier)
            return {name: self._lower(hint) for name, hint in hints.items()}

        return record_carrier(self._key(), record, lower)

    def _key(self) -> str:
        return f"carrier{len(self._carriers)}"

    def _add(self, carrier: Carrier) -> Carrier:
        self.plain = False
        self._changes += 1
        self._carriers.append(carrier)
        return carrier

    def schemas(self, targets: list[Any]) -> tuple[list[_Schema], dict[str, _Schema]]:
        """The raw schemas of lowered types, and what their `$ref`s refer to."""
        definitions: dict[str, _Schema] = {}
        models: dict[Any, str] = {}

        def hook(custom: Any) -> _Schema:
            if isinstance(custom, Carrier):
                return {"$ref": f"#/$defs/{custom.key}"}
            if not is_model(custom):
                raise _unsupported(custom)
            if custom not in models:
                models[custom] = re.sub(r"[^\w.-]", "_", f"model{len(models)}.{custom.__name__}")
                definitions.update(model_schema(custom, models[custom]))
            return {"$ref": f"#/$defs/{models[custom]}"}

        parts = [part for carrier in self._carriers for part in carrier.parts]
        fields = [kind for overlay in self._overlays.values() for kind in overlay.values()]
        try:
            made, components = msgspec.json.schema_components(
                [*targets, *parts, *self._overlays, *fields], schema_hook=hook
            )
        except TypeError as error:
            raise ShapeError(str(error)) from error
        definitions.update(components)
        rest = iter(made)
        found = [next(rest) for _ in targets]
        for carrier in self._carriers:
            options = [next(rest) for _ in carrier.parts]
            definitions[carrier.key] = options[0] if len(options) == 1 else {"anyOf": options}
        self._overlay(rest, definitions)
        return found, definitions

    def _overlay(self, rest: Iterator[_Schema], definitions: dict[str, _Schema]) -> None:
        names = [next(rest).get("$ref", "").removeprefix("#/$defs/") for _ in self._overlays]
        for name, overlay in zip(names, self._overlays.values(), strict=True):
            properties: dict[str, _Schema] = definitions.get(name, {}).get("properties", {})
            for field in overlay:
                schema = next(rest)
                if field in properties:
                    kept = {key: value for key, value in properties[field].items() if key == "default"}
                    properties[field] = {**schema, **kept}


def _annotate(hint: Any, metas: list[Meta]) -> Any:
    annotated: Any = Annotated
    return annotated[(hint, *metas)]


def _union_of(members: list[Any]) -> Any:
    union: Any = Union
    return union[tuple(members)]


def _are_told_apart(members: Sequence[Any]) -> bool:
    """Whether msgspec tells the members of a union apart.

    To ask it would be simpler, but it corrupts memory over unions some of whose members have limits
    (0.22: `Annotated[str, Meta(pattern="a")] | list[int]`), and records that are still being lowered may
    hold such unions.
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
    """The kinds of JSON by which a member of a union is told from others; none when it can't be."""
    origin = get_origin(member)
    if origin is Annotated:
        base, *metas = get_args(member)
        return set() if _have_limits(metas) else _kinds(base)
    if origin in (Union, types.UnionType):
        parts = [_kinds(part) for part in get_args(member)]
        return set[str]().union(*parts) if all(parts) else set()
    if origin is Literal:
        return {_JSON_TYPES[type(value)] for value in get_args(member)}
    base = origin or member
    if base in _MAPPINGS:
        return {"object"}
    if base in _SEQUENCES or base in _SETS:
        return {"array"}
    if isinstance(base, type) and issubclass(base, Enum):
        values: list[object] = [option.value for option in base]
        return {_JSON_TYPES.get(type(value), "") for value in values}
    if is_record(base):
        return _record_kinds(base)
    return {_ATOMS[base]} if base in _ATOMS else set()


def _record_kinds(record: Any) -> set[str]:
    config = getattr(record, "__struct_config__", None)
    if config is None:
        return {"array" if issubclass(record, tuple) else "object"}
    if config.array_like:
        return set()
    if config.tag is None:
        return {"object"}
    return {f"tag {config.tag_field}:{type(config.tag).__name__} {config.tag}"}


def _have_limits(metas: Sequence[Any]) -> bool:
    return any(getattr(meta, limit, None) is not None for meta in metas for limit in (*_LIMITS, "tz"))


def _show(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) else repr(hint).replace("typing.", "")


def _unsupported(hint: Any) -> ShapeError:
    return ShapeError(
        f"{_show(hint)} has no JSON form; use builtin types, a dataclass, a TypedDict, a msgspec Struct "
        "or a pydantic model"
    )


def _foreign_limits(extras: Sequence[Any]) -> dict[str, Any]:
    """The limits of annotated-types and of pydantic's Field, without importing either."""
    limits: dict[str, Any] = {}
    for item in (item for extra in extras for item in (extra, *(getattr(extra, "metadata", None) or ()))):
        if type(item).__module__.partition(".")[0] in ("annotated_types", "pydantic"):
            found = {limit: getattr(item, limit, None) for limit in _LIMITS}
            limits.update({limit: value for limit, value in found.items() if value is not None})
    if isinstance(pattern := limits.get("pattern"), re.Pattern):
        limits["pattern"] = cast("re.Pattern[str]", pattern).pattern
    return limits


def _fields_of(record: Any) -> dict[str, Any]:
    """The hints of a record's fields, by their names in JSON."""
    hints = typing.get_type_hints(record, include_extras=True)
    names: Sequence[str] = getattr(record, "__struct_fields__", None) or getattr(record, "_fields", None) or ()
    if typing.is_typeddict(record):
        names = tuple(hints)
    elif hasattr(record, "__dataclass_fields__"):
        import dataclasses

        names = [field.name for field in dataclasses.fields(record)]
    encoded: Sequence[str] = getattr(record, "__struct_encode_fields__", names)
    found = {key: hints.get(name, Any) for name, key in zip(names, encoded, strict=True)}
    return {key: _unqualified(hint) for key, hint in found.items()}


def _unqualified(hint: Any) -> Any:
    while getattr(get_origin(hint), "_name", None) in _QUALIFIERS:
        hint = get_args(hint)[0]
    return hint


# Schemas that vendors accept


_DROPPED = frozenset({"title", "discriminator", "$schema", "$defs", "$ref"})
_OF_NAMES = frozenset({"properties", "patternProperties", "dependentSchemas"})
_OF_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_OF_ONE = frozenset({"items", "additionalProperties", "propertyNames", "contains", "not"})


class _Polish:
    """Schemas rewritten in the terms that vendors accept, all of which share one set of definitions."""

    def __init__(self, definitions: dict[str, _Schema]) -> None:
        # One that is only another's name would give that name to what it stands for.
        lone = {name: part["$ref"] for name, part in definitions.items() if list(part) == ["$ref"]}
        self._aliases = {name: reference.removeprefix("#/$defs/") for name, reference in lone.items()}
        self._definitions = definitions
        self._recursive = {name for name in definitions if name in self._reached(name)}
        self._names: dict[str, str] = {}

    def root(self, schema: _Schema) -> _Schema:
        """A whole schema, which isn't a mere `$ref` even when its type is recursive."""
        while "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/")
            schema = {**self._definitions[name], **{k: v for k, v in schema.items() if k != "$ref"}}
        return self.with_definitions(self.schema(schema))

    def with_definitions(self, schema: _Schema) -> _Schema:
        """A polished schema with the definitions that it refers to."""
        kept: dict[str, _Schema] = {}
        while pending := [name for name, final in self._names.items() if final not in kept]:
            for name in pending:
                kept[self._names[name]] = self.schema(self._definitions[name])
        return {**schema, "$defs": kept} if kept else schema

    def schema(self, schema: Any) -> Any:
        """A part of a schema; what it refers to is put in its place unless it is recursive."""
        if not isinstance(schema, dict):
            return schema
        given = cast(_Schema, schema)
        out: _Schema = {}
        if "$ref" in given:
            out.update(self._referred(given["$ref"]))
        for key, value in given.items():
            if key in _DROPPED:
                continue
            if key in _OF_NAMES:
                value = {name: self.schema(part) for name, part in value.items()}
            elif key in _OF_LISTS:
                value = [self.schema(part) for part in value]
            elif key in _OF_ONE:
                value = self.schema(value)
            elif key == "description" and isinstance(value, str):
                value = inspect.cleandoc(value)
            out["anyOf" if key == "oneOf" else key] = value
        return _accepted(out)

    def _referred(self, reference: str) -> _Schema:
        name = reference.removeprefix("#/$defs/")
        while name in self._aliases:
            name = self._aliases[name]
        if name not in self._recursive:
            return self.schema(self._definitions.get(name, {}))
        if name not in self._names:
            base = final = re.sub(r"[^\w-]", "_", name.rpartition(".")[2])
            number = 2
            while final in self._names.values():
                final, number = f"{base}_{number}", number + 1
            self._names[name] = final
        return {"$ref": f"#/$defs/{self._names[name]}"}

    def _reached(self, start: str) -> set[str]:
        reached: set[str] = set()
        pending = [start]
        while pending:
            found = set(_references(self._definitions.get(pending.pop(), {}))) - reached
            reached |= found
            pending += found
        return reached


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in cast(_Schema, part).items():
            if key == "$ref" and isinstance(value, str):
                yield value.removeprefix("#/$defs/")
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for value in cast(list[Any], part):
            yield from _references(value)


def _accepted(schema: _Schema) -> _Schema:
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    if "prefixItems" in schema:
        _flatten_tuple(schema)
    if len(schema.get("allOf", ())) == 1:
        schema = {**schema.pop("allOf")[0], **schema}
    if "anyOf" in schema:
        schema["anyOf"] = _flat_options(schema["anyOf"])
    kind = schema.get("type")
    if kind == "array":
        schema.setdefault("items", {})
    elif kind == "object" and "properties" not in schema:
        schema.setdefault("additionalProperties", True)
    return _typed_enum(schema)


def _flatten_tuple(schema: _Schema) -> None:
    """Say of a tuple how long it is and what any of its items may be: vendors refuse `prefixItems`."""
    items: list[_Schema] = schema.pop("prefixItems")
    rest = schema.pop("items", None)
    if isinstance(rest, dict):
        items = [*items, cast(_Schema, rest)]
    elif rest is False:
        schema.setdefault("maxItems", len(items))
    options = _flat_options(items)
    schema["items"] = options[0] if len(options) == 1 else {"anyOf": options}


def _flat_options(options: list[Any]) -> list[Any]:
    flat: list[Any] = []
    for option in options:
        inner: list[Any] = [option]
        if isinstance(option, dict) and option.keys() == {"anyOf"}:
            inner = cast(_Schema, option)["anyOf"]
        flat += [one for one in inner if one not in flat]
    return flat


def _typed_enum(schema: _Schema) -> _Schema:
    if "enum" not in schema or "type" in schema:
        return schema
    values: list[object] = schema["enum"]
    kinds = {_JSON_TYPES.get(type(value)) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    return {"type": kind, **schema} if kind else schema


# Errors and text


_MOST = 10
_LONGEST = 300
_KIND = re.compile(r"expected ([\w |]+), got (\w+)")
_STEP = re.compile(r"\.([^.\[]+)|\[([^\]]*)\]")


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"{name!r:.80}" for name in names[:_MOST])
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"argument{'s' if len(names) > 1 else ''} {shown}{more}"


def _told(problems: list[Problem], schema: _Schema) -> str:
    """Problems in the words that a model is told, which never hold what cannot be encoded or a huge value."""
    merged: dict[tuple[str, str], str] = {}
    for path, text in problems:
        reason = _reason(text)
        if reason.startswith(("invalid enum value", "invalid value")):
            values = _values_at(schema, path)
            reason += f" (expected: {', '.join(values)})" if values else ""
        key = path, reason
        if match := _KIND.fullmatch(reason):
            # Members of a union that were tried one by one.
            key = path, match[2]
            if known := _KIND.fullmatch(merged.get(key, "")):
                kinds = dict.fromkeys([*known[1].split(" | "), *match[1].split(" | ")])
                reason = f"expected {' | '.join(kinds)}, got {match[2]}"
        merged[key] = reason
    told = [f"{path}: {reason}" for (path, _), reason in merged.items()]
    if len(told) > _MOST:
        told = [*told[:_MOST], f"and {len(told) - _MOST} more"]
    return "; ".join(told).encode("utf-8", "backslashreplace").decode()


def _reason(text: str) -> str:
    text = re.sub(r"^Object (?:missing|contains) (.*?) `(.*)`$", _field_reason, text, flags=re.DOTALL)
    text = text.replace("`", "") or "invalid"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return text if text[1:2].isupper() else text[0].lower() + text[1:]


def _field_reason(match: re.Match[str]) -> str:
    missing = "missing " if match[1].startswith("required") else ""
    return f"{missing}{match[1]} {match[2]!r:.80}"


def _values_at(schema: _Schema, path: str) -> list[str]:
    """The values that a schema allows at a path, where it lists them."""
    nodes = list(_options(schema, schema))
    for name, _ in _STEP.findall(path):
        below: list[Any] = []
        for node in nodes:
            inside = node.get("properties", {}).get(name) if name else node.get("items")
            below.append(node.get("additionalProperties") if inside is None else inside)
        nodes = [option for part in below for option in _options(part, schema)]
    values = [value for node in nodes for value in node.get("enum", ())]
    shown = [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values]
    return [*shown[:_MOST], "..."] if len(shown) > _MOST else shown


def _options(part: Any, root: _Schema) -> Iterator[_Schema]:
    if not isinstance(part, dict):
        return
    node = cast(_Schema, part)
    if "$ref" in node:
        node = root["$defs"][node["$ref"].removeprefix("#/$defs/")]
    yield node
    for option in node.get("anyOf", ()):
        yield from _options(option, root)


def _parsed(text: str | bytes) -> Any:
    """What JSON text says; raises InvalidArguments with the place where it can't be read."""
    import json

    try:
        body = _unfenced((text.encode() if isinstance(text, str) else text).decode())
        value = json.loads(body, parse_constant=_not_json, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise InvalidArguments(f"$: malformed JSON at {where}: {_reason(error.msg)}") from None
    except UnicodeError:
        raise InvalidArguments("$: malformed JSON: text that is not valid Unicode") from None
    except RecursionError:
        raise InvalidArguments("$: malformed JSON: nested too deeply") from None
    except ValueError:
        raise InvalidArguments("$: malformed JSON: a number that JSON cannot hold") from None
    return value


def _not_json(name: str) -> Any:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    return number if isfinite(number) else _not_json(text)


_OPENING = re.compile(r"[\s\ufeff]*(```(?:json\b|[\w+-]*(?=[ \t]*\n))?)?", re.IGNORECASE)


def _unfenced(text: str) -> str:
    """The text with spaces in the place of a Markdown fence, so that places in it stay the same."""
    opening = cast("re.Match[str]", _OPENING.match(text))
    body = text[opening.end() :].rstrip()
    return re.sub(r"[^\n]", " ", opening[0]) + (body.removesuffix("```") if opening[1] else body)
