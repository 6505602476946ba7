"""Lowering: types are rewritten into types that msgspec accepts, and get schemas."""

from __future__ import annotations

import typing
from datetime import datetime, time
from enum import Enum
from itertools import islice
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta

from ...errors import ShapeError
from .carriers import carry_checked, carry_record, carry_union
from .convert import Carrier
from .hints import (
    KINDS,
    NONE,
    are_distinguishable,
    fields_of,
    first_description,
    foreign_limits,
    format_hint,
    has_computed_fields,
    have_limits,
    is_record,
    is_union,
    is_validator,
    optional_type,
)
from .pydantic_models import is_checked_dataclass, is_model, model_schema

__all__ = ["Lowering"]

_Schema = dict[str, Any]

_ANNOTATED: Any = Annotated
_UNION: Any = Union
_QUALIFIERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final"})
# msgspec gives these no format, since they may lack a time zone.
_FORMATS: dict[Any, str] = {datetime: "date-time", time: "time"}


class Lowering:
    """Rewrites types that share records, and so share the definitions in their schemas."""

    def __init__(self) -> None:
        self.plain = True  # While msgspec needs no hook, and all keys are strings.
        self._carriers: list[Carrier] = []
        self._records: dict[Any, Any] = {}
        # Fields of unchanged records whose schemas need more than msgspec sees.
        self._overlays: dict[Any, dict[str, Any]] = {}
        # Records that must be replaced.
        self._carried: set[Any] = set()
        self._changes = 0
        self._aliases: list[Any] = []

    def lower_root(self, hint: Any, *, optional: bool = False) -> Any:
        """Lower a type; raises TypeError or NameError."""
        before = self._carriers, self._records, self._overlays
        while True:
            self._carriers, self._records, self._overlays = before[0].copy(), before[1].copy(), before[2].copy()
            known = len(self._carried)
            target = self._lower(hint)
            if len(self._carried) == known:
                break  # Else repeat: a type was lowered while a record still counted as unchanged.
        if optional:
            target = self._union([target, NONE])
        for part in (target, *(part for carrier in self._carriers for part in carrier.parts)):
            msgspec.json.Decoder(part)
        return target

    def schemas(self, targets: list[Any]) -> tuple[list[_Schema], dict[str, _Schema]]:
        """The raw schemas of lowered types, and the definitions that their `$ref`s name."""
        definitions: dict[str, _Schema] = {}
        models: dict[Any, str] = {}

        def hook(custom: Any) -> _Schema:
            if isinstance(custom, Carrier):
                return {"$ref": f"#/$defs/{custom.key}"}
            if not is_model(custom):
                raise _unsupported(custom)
            if custom not in models:
                models[custom] = f"model{len(models)}.{custom.__name__}"
                definitions.update(model_schema(custom, models[custom]))
            return {"$ref": f"#/$defs/{models[custom]}"}

        parts = [part for carrier in self._carriers for part in carrier.parts]
        fields = [kind for overlay in self._overlays.values() for kind in overlay.values()]
        wanted = [*targets, *parts, *self._overlays, *fields]
        try:
            made, components = msgspec.json.schema_components(wanted, schema_hook=hook)
        except TypeError as error:
            raise ShapeError(str(error)) from error
        definitions.update(components)
        rest = iter(made)
        found = list(islice(rest, len(targets)))
        for carrier in self._carriers:
            options = list(islice(rest, len(carrier.parts)))
            definitions[carrier.key] = options[0] if len(options) == 1 else {"anyOf": options}
        records = list(islice(rest, len(self._overlays)))
        for record, overlay in zip(records, self._overlays.values(), strict=True):
            name = record.get("$ref", "").removeprefix("#/$defs/")
            properties: dict[str, _Schema] = definitions.get(name, {}).get("properties", {})
            for field, schema in zip(overlay, islice(rest, len(overlay)), strict=True):
                if field in properties:
                    kept = {key: value for key, value in properties[field].items() if key == "default"}
                    properties[field] = {**schema, **kept}
        return found, definitions

    def _lower(self, hint: Any) -> Any:
        origin = get_origin(hint)
        if origin is Annotated:
            return self._annotated(hint)
        if is_union(hint):
            return self._union([self._lower(member) for member in get_args(hint)])
        if origin is Literal or hint is Any or hint is None or isinstance(hint, typing.TypeVar):
            return hint
        if (qualifier := getattr(origin, "_name", None)) in _QUALIFIERS:
            self._changes += qualifier == "ReadOnly"  # msgspec doesn't know it.
            return self._lower(get_args(hint)[0])
        if isinstance(hint, typing.NewType):
            return self._lower(hint.__supertype__)
        if type(hint).__name__ == "TypeAliasType":
            return self._alias(hint)
        return self._class(hint) if origin is None else self._generic(hint, origin)

    def _annotated(self, hint: Any) -> Any:
        base, *extras = get_args(hint)
        metas = [extra for extra in extras if isinstance(extra, Meta)]
        if rules := [type(extra).__name__ for extra in extras if is_validator(extra)]:
            raise ShapeError(
                f"{rules[0]} would not be asked here; check in the function, or in a pydantic model that it takes"
            )
        if limits := foreign_limits(extras):
            self._changes += 1
            metas.append(Meta(**limits))
        if text := first_description(extras):
            metas.append(Meta(description=text))
        inner = self._lower(base)
        if not metas:
            return inner
        only = optional_type(inner)
        if only is not None and have_limits(metas):
            # msgspec refuses limits on a union; None needs none.
            self._changes += 1
            return _UNION[_ANNOTATED[only, *metas], None]
        return _ANNOTATED[inner, *metas]

    def _union(self, members: list[Any]) -> Any:
        if Any in members:
            return Any
        apart = [member for member in members if member in (NONE, msgspec.UnsetType)]
        parts = tuple(member for member in members if member not in apart)
        if len(parts) < 2 or are_distinguishable(parts):
            return _UNION[tuple(members)]
        carrier = self._carrier()
        carry_union(carrier, parts)
        return _UNION[carrier, *apart]

    def _alias(self, alias: Any) -> Any:
        if alias in self._aliases:
            raise ShapeError(f"{alias} refers to itself; make it a dataclass or a msgspec Struct")
        self._aliases.append(alias)
        target = self._lower(alias.__value__)
        self._aliases.pop()
        return target

    def _generic(self, hint: Any, origin: Any) -> Any:
        if is_record(origin):
            self.plain = False
            return hint
        arguments = get_args(hint)
        kind = KINDS.get(origin)
        if kind not in ("object", "array"):
            raise _unsupported(hint)
        if kind == "object" and arguments and arguments[0] is not str:
            self.plain = False
        lowered = tuple(item if item is ... else self._lower(item) for item in arguments)
        return hint if lowered == arguments else origin[lowered]

    def _class(self, hint: Any) -> Any:
        if hint is object:
            return Any
        if not isinstance(cast(object, hint), type):
            raise _unsupported(hint)
        if hint in _FORMATS:
            return _ANNOTATED[hint, Meta(extra_json_schema={"format": _FORMATS[hint]})]
        if hint in KINDS or hint in (msgspec.Raw, msgspec.UnsetType):
            return hint
        if is_model(hint) or hasattr(hint, "__attrs_attrs__"):
            self.plain = False
            return hint
        if is_checked_dataclass(hint):
            return self._checked(hint)
        if is_record(hint):
            return self._record(hint)
        if issubclass(hint, Enum):
            return hint
        raise _unsupported(hint)

    def _checked(self, kind: Any) -> Any:
        if kind not in self._records:
            self._records[kind] = self._carrier()
            carry_checked(self._records[kind], kind)
        self._changes += 1
        return self._records[kind]

    def _record(self, record: Any) -> Any:
        if record in self._records:
            known = self._records[record]
            self._changes += isinstance(known, Carrier)
            return known
        # Registered before its fields, which may refer to it.
        self._records[record] = standing = self._carrier() if record in self._carried else record
        before = self._changes
        hints = fields_of(record)
        self._changes += has_computed_fields(record)  # msgspec would require them.
        fields = {name: self._lower(hint) for name, hint in hints.items()}
        if isinstance(standing, Carrier):
            carry_record(standing, record, fields)
        elif self._changes > before:
            self._carried.add(record)
        else:
            self._overlays[record] = {name: kind for name, kind in fields.items() if kind != hints[name]}
        return standing

    def _carrier(self) -> Carrier:
        """A new carrier for a type that msgspec refuses; its content is set later."""
        self.plain = False
        self._changes += 1
        self._carriers.append(Carrier("Carrier", (), {"key": f"carrier{len(self._carriers)}"}))
        return self._carriers[-1]


def _unsupported(hint: Any) -> ShapeError:
    return ShapeError(
        f"{format_hint(hint)} has no JSON form; use builtin types, a dataclass, a TypedDict, a msgspec Struct "
        "or a pydantic model"
    )
