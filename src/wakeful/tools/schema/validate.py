"""Validation of values against a JSON schema, for the subset of JSON Schema that wakeful writes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import msgspec

from .wording import Problem, format_problems

__all__ = ["schema_faults", "value_fault"]

_Schema = dict[str, Any]

_NAMES: dict[type[Any], str] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    list: "array",
    tuple: "array",
    dict: "object",
}
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_FORMATS: dict[str, Any] = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
    "decimal": Decimal,
}
# Keywords that restrict values and aren't checked here: a schema with one of them is refused.
_FOREIGN = frozenset(
    {
        "if",
        "then",
        "else",
        "contains",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedItems",
        "unevaluatedProperties",
        "additionalItems",
        "$dynamicRef",
        "$recursiveRef",
    }
)

_NUMBERS = (
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
)
_LISTS = ("enum", "required", "anyOf", "oneOf", "allOf", "prefixItems")


def value_fault(value: Any, schema: _Schema) -> str | None:
    """The faults of a value by path (`$.amount: expected number, got str`); None if it fits."""
    try:
        problems = list(_check(value, schema, "$", schema))
    except RecursionError:
        return "$: nested too deeply to be checked"
    return format_problems(problems, schema) if problems else None


# -- the schema itself ---------------------------------------------------------------------------------------


def schema_faults(schema: Any) -> list[str]:
    """List the faults of a schema: malformed parts, and keywords that aren't checked here."""
    return list(_faults(schema, "$", schema))


def _faults(part: Any, path: str, root: Any) -> Iterator[str]:
    if isinstance(part, bool):
        return
    if not isinstance(part, dict):
        yield f"{path}: a schema is an object, not {part!r:.80}"
        return
    node = cast(_Schema, part)
    if foreign := sorted(_FOREIGN & node.keys()):
        yield f"{path}: answers can't be checked against {', '.join(foreign)}"
    types = _listed(node.get("type", []))
    if unknown := [kind for kind in types if kind not in _TYPES]:
        yield f"{path}: type is one of {', '.join(_TYPES)}, not {unknown[0]!r:.80}"
    if "$ref" in node and _target(node["$ref"], root) is None:
        yield f"{path}: {node['$ref']!r:.80} refers to nothing in the schema's $defs"
    for name in _NUMBERS:
        if type(node.get(name, 0)) not in (int, float):
            yield f"{path}: {name} is a number, not {node[name]!r:.80}"
    for name in _LISTS:
        if not isinstance(node.get(name, []), list | tuple):
            yield f"{path}: {name} is a list, not {node[name]!r:.80}"
    if not isinstance(node.get("format", ""), str):
        yield f"{path}: format is a text, not {node['format']!r:.80}"
    patterns = node.get("patternProperties", {})
    for pattern in [*([node["pattern"]] if "pattern" in node else []), *_keys(patterns)]:
        try:
            re.compile(pattern)
        except (re.error, TypeError, RecursionError, OverflowError) as error:
            yield f"{path}: bad pattern: {error}"
    for where, inner in _parts(node):
        yield from _faults(inner, f"{path}.{where}", root)


def _parts(node: _Schema) -> Iterator[tuple[str, Any]]:
    for keyword in ("properties", "patternProperties", "$defs", "definitions"):
        inner = node.get(keyword, {})
        if isinstance(inner, dict):
            yield from ((f"{keyword}.{name}", part) for name, part in cast(_Schema, inner).items())
        else:
            yield keyword, inner
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        inner = node.get(keyword, [])
        yield from ((f"{keyword}[{n}]", part) for n, part in enumerate(_listed(inner)))
    for keyword in ("items", "additionalProperties", "propertyNames", "not"):
        if keyword in node:
            yield keyword, node[keyword]


def _keys(value: Any) -> list[Any]:
    return list(cast(_Schema, value)) if isinstance(value, dict) else []


def _listed(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else [value]


def _target(reference: Any, root: Any) -> Any:
    if reference == "#":
        return root
    _, _, path = str(reference).partition("#/")
    kind, _, name = path.partition("/")
    if kind not in ("$defs", "definitions") or not str(reference).startswith("#"):
        return None
    found = root.get(kind)
    return cast(_Schema, found).get(name) if isinstance(found, dict) else None


# -- values --------------------------------------------------------------------------------------------------


def _check(value: Any, part: Any, path: str, root: _Schema) -> Iterator[Problem]:
    if isinstance(part, bool):
        if not part:
            yield path, "nothing is allowed here"
        return
    node = cast(_Schema, part)
    if "$ref" in node:
        yield from _check(value, _target(node["$ref"], root), path, root)
    if "type" in node:
        kinds = _listed(node["type"])
        if not any(_is(value, kind) for kind in kinds):
            yield path, f"expected {' | '.join(kinds)}, got {_name(value)}"
            return
    yield from _check_choice(value, node, path)
    yield from _check_options(value, node, path, root)
    if isinstance(value, str):
        yield from _check_text(value, node, path)
    elif isinstance(value, dict):
        yield from _check_object(cast(_Schema, value), node, path, root)
    elif isinstance(value, list | tuple):
        yield from _check_array(cast(list[Any], value), node, path, root)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(value, node, path)


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return not isinstance(value, bool) and (
                isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            )
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list | tuple)
        case _:
            return isinstance(value, dict)


def _name(value: Any) -> str:
    return _NAMES.get(cast(type[Any], type(value)), type(value).__name__)


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON: 1 equals 1.0, but not true."""
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    return one == other


def _check_choice(value: Any, node: _Schema, path: str) -> Iterator[Problem]:
    if "enum" in node and not any(_same(value, one) for one in node["enum"]):
        yield path, f"invalid value {_shown(value)}"
    if "const" in node and not _same(value, node["const"]):
        yield path, f"expected {_shown(node['const'])}, not {_shown(value)}"


def _check_options(value: Any, node: _Schema, path: str, root: _Schema) -> Iterator[Problem]:
    for part in node.get("allOf", ()):
        yield from _check(value, part, path, root)
    if "not" in node and not list(_check(value, node["not"], path, root)):
        yield path, "this value is ruled out"
    if "anyOf" in node:
        tried = [list(_check(value, part, path, root)) for part in node["anyOf"]]
        if all(tried):
            yield from _closest(tried, path)
    if "oneOf" in node:
        tried = [list(_check(value, part, path, root)) for part in node["oneOf"]]
        fitting = sum(not problems for problems in tried)
        if fitting > 1:
            yield path, "more than one of the alternatives fits"
        elif not fitting:
            yield from _closest(tried, path)


def _closest(tried: list[list[Problem]], path: str) -> Iterator[Problem]:
    """The faults by the alternatives of the value's own kind, or by all if there are none."""
    near = [problems for problems in tried if all(where != path or "got" not in why for where, why in problems)]
    for problems in near[:1] or tried:
        yield from problems


def _check_text(value: str, node: _Schema, path: str) -> Iterator[Problem]:
    if len(value) < node.get("minLength", 0):
        yield path, f"expected at least {node['minLength']} characters, not {len(value)}"
    if len(value) > node.get("maxLength", math.inf):
        yield path, f"expected at most {node['maxLength']} characters, not {len(value)}"
    if "pattern" in node and re.search(node["pattern"], value) is None:
        yield path, f"expected text that matches {node['pattern']!r}"
    if (kind := _FORMATS.get(node.get("format", ""))) is not None:
        try:
            msgspec.convert(value, kind)
        except (msgspec.ValidationError, UnicodeEncodeError):
            yield path, f"expected a {node['format']}, not {value!r:.80}"


def _check_number(value: float, node: _Schema, path: str) -> Iterator[Problem]:
    if "minimum" in node and value < node["minimum"]:
        yield path, f"expected at least {node['minimum']}, not {value}"
    if "maximum" in node and value > node["maximum"]:
        yield path, f"expected at most {node['maximum']}, not {value}"
    if "exclusiveMinimum" in node and value <= node["exclusiveMinimum"]:
        yield path, f"expected more than {node['exclusiveMinimum']}, not {value}"
    if "exclusiveMaximum" in node and value >= node["exclusiveMaximum"]:
        yield path, f"expected less than {node['exclusiveMaximum']}, not {value}"
    step = node.get("multipleOf")
    if step and not math.isclose(value / step, round(value / step), rel_tol=1e-9, abs_tol=1e-9):
        yield path, f"expected a multiple of {step}, not {value}"


def _check_array(value: list[Any], node: _Schema, path: str, root: _Schema) -> Iterator[Problem]:
    if len(value) < node.get("minItems", 0):
        yield path, f"expected at least {node['minItems']} items, not {len(value)}"
    if len(value) > node.get("maxItems", math.inf):
        yield path, f"expected at most {node['maxItems']} items, not {len(value)}"
    if node.get("uniqueItems") and any(_same(a, b) for n, a in enumerate(value) for b in value[:n]):
        yield path, "expected no item twice"
    first = node.get("prefixItems", [])
    for place, item in enumerate(value):
        part = first[place] if place < len(first) else node.get("items", True)
        yield from _check(item, part, f"{path}[{place}]", root)


def _check_object(value: _Schema, node: _Schema, path: str, root: _Schema) -> Iterator[Problem]:
    if missing := [name for name in node.get("required", ()) if name not in value]:
        yield path, f"missing required {', '.join(repr(name) for name in missing)}"
    if len(value) < node.get("minProperties", 0):
        yield path, f"expected at least {node['minProperties']} fields, not {len(value)}"
    if len(value) > node.get("maxProperties", math.inf):
        yield path, f"expected at most {node['maxProperties']} fields, not {len(value)}"
    known = cast(_Schema, node.get("properties", {}))
    patterns = cast(_Schema, node.get("patternProperties", {}))
    rest = node.get("additionalProperties", True)
    for name, inner in value.items():
        where = f"{path}.{name}"
        parts = [known[name]] if name in known else []
        parts += [part for pattern, part in patterns.items() if re.search(pattern, name)]
        if not parts and rest is False:
            expected = ", ".join(known) or "none"
            yield path, f"unknown field {name!r:.80} (expected: {expected})"
            continue
        for part in parts or [rest]:
            yield from _check(inner, part, where, root)
        if "propertyNames" in node:
            yield from _check(name, node["propertyNames"], where, root)


def _shown(value: Any) -> str:
    try:
        return f"{msgspec.json.encode(value).decode():.80}"
    except (TypeError, UnicodeEncodeError):
        return f"{value!r:.80}"
