"""Pydantic models, without an import of pydantic: only a user who has imported it can have a model."""

from __future__ import annotations

import sys
from typing import Any, cast

from .wording import Problem

__all__ = ["dump_model", "is_checked_dataclass", "is_model", "model_of", "model_problems", "model_schema"]

_KINDS = {
    "string": "str",
    "bytes": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "none": "null",
    **dict.fromkeys(("list", "tuple", "set", "frozen_set", "iterable"), "array"),
    **dict.fromkeys(("dict", "mapping", "model", "model_attributes", "dataclass"), "object"),
}
_LIMITS = {
    "greater_than": ("gt", ">"),
    "greater_than_equal": ("ge", ">="),
    "less_than": ("lt", "<"),
    "less_than_equal": ("le", "<="),
    "too_short": ("min_length", "of length >="),
    "too_long": ("max_length", "of length <="),
    "multiple_of": ("multiple_of", "that's a multiple of"),
}
_JSON_NAMES: dict[type, str] = {type(None): "null", list: "array", tuple: "array", dict: "object"}


def is_model(hint: Any) -> bool:
    """Whether a type is a pydantic model."""
    # The module of BaseModel; a lookup in the package would import it.
    module = sys.modules.get("pydantic.main")
    return module is not None and isinstance(hint, type) and issubclass(hint, module.BaseModel)


def is_checked_dataclass(hint: Any) -> bool:
    """Whether a type is a pydantic dataclass, whose validators msgspec would skip."""
    return isinstance(hint, type) and "__pydantic_validator__" in hint.__dict__ and not is_model(hint)


def model_of(hint: Any) -> Any:
    """A root model for a pydantic dataclass."""
    return sys.modules["pydantic"].RootModel[hint]


def dump_model(value: Any) -> Any:
    """Encode hook: a model as JSON data; raises TypeError for other values."""
    if not is_model(cast(Any, type(value))):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return value.model_dump(mode="json")


def model_schema(model: Any, key: str) -> dict[str, Any]:
    """The schema of a model under `key`, and its definitions under names with that prefix."""
    schema: dict[str, Any] = model.model_json_schema(ref_template=f"#/$defs/{key}.{{model}}")
    nested: dict[str, Any] = schema.pop("$defs", {})
    return {key: schema} | {f"{key}.{name}": part for name, part in nested.items()}


def model_problems(error: ValueError, value: Any) -> list[Problem]:
    """The problems that a model, or another class with validators, reports for a value."""
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
        # Other entries are labels of validators or union members.
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
    if limit := _LIMITS.get(kind.removeprefix("string_")):
        key, sign = limit
        return f"expected {got} {sign} {context[key]}"
    if kind == "string_pattern_mismatch":
        return f"expected str matching regex {context['pattern']!r}"
    if kind in ("literal_error", "enum"):
        return f"invalid enum value {given!r:.80}"
    if kind == "string_unicode":
        return "text that is not valid Unicode"
    if kind in ("value_error", "assertion_error"):
        return message.partition(", ")[2]
    return message.replace("Input should be ", "expected ", 1)
