"""Polishing: schemas are rewritten with the keywords that vendors accept."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, cast

from .hints import JSON_TYPES

__all__ = ["NULL", "Polisher", "remove_null"]

_Schema = dict[str, Any]

NULL: _Schema = {"type": "null"}

_DROPPED = frozenset({"title", "discriminator", "$schema", "$defs", "$ref"})
_OF_NAMES = frozenset({"properties", "patternProperties", "dependentSchemas"})
_OF_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_OF_ONE = frozenset({"items", "additionalProperties", "propertyNames", "contains", "not"})


class Polisher:
    """Rewrites schemas with the keywords that vendors accept; all share one set of definitions."""

    def __init__(self, definitions: dict[str, _Schema]) -> None:
        self._definitions = definitions
        self._recursive = {name for name in definitions if name in self._reached(name)}
        self._names: dict[str, str] = {}

    def root(self, schema: _Schema) -> _Schema:
        """Polish a root schema: never a bare `$ref`, even if its type is recursive."""
        while "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/")
            schema = {**self._definitions[name], **{k: v for k, v in schema.items() if k != "$ref"}}
        return self.with_definitions(self.schema(schema))

    def with_definitions(self, schema: _Schema) -> _Schema:
        """Add the definitions that a polished schema refers to."""
        kept: dict[str, _Schema] = {}
        while pending := [name for name, final in self._names.items() if final not in kept]:
            for name in pending:
                kept[self._names[name]] = self.schema(self._definitions[name])
        return {**schema, "$defs": kept} if kept else schema

    def schema(self, schema: Any) -> Any:
        """Polish a part of a schema; a `$ref` is replaced by its target unless that is recursive."""
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
        part = self._definitions.get(name, {})
        if part.keys() == {"$ref"}:
            # The definition keeps its own name.
            return self._referred(part["$ref"])
        if name not in self._recursive:
            return self.schema(part)
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
    """Describe a tuple by its length and the union of its items: vendors refuse `prefixItems`."""
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
    kinds = {JSON_TYPES.get(type(value)) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    return {"type": kind, **schema} if kind else schema


def remove_null(schema: _Schema) -> _Schema:
    """Remove null from the alternatives of a polished schema, if others are left."""
    options: list[_Schema] = schema.get("anyOf", [])
    others = [option for option in options if option != NULL]
    if len(others) == 1 and len(options) == 2:
        return remove_null({**others[0], **{key: part for key, part in schema.items() if key != "anyOf"}})
    values: list[Any] = schema.get("enum", [])
    if None in values and len(values) > 1:
        return _typed_enum({**schema, "enum": [value for value in values if value is not None]})
    return schema
