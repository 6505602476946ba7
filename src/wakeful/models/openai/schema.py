"""JSON schemas for OpenAI's strict mode."""

from __future__ import annotations

from typing import Any, cast

__all__ = ["is_object", "strict_schema"]

# Guide "Structured model outputs", section "Supported schemas".
_KEYWORDS = frozenset(
    (
        *("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"),
        *("$ref", "$defs", "definitions", "description", "title", "pattern", "format"),
        *("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
    )
)
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")


def is_object(schema: dict[str, Any]) -> bool:
    """Whether the schema's root is an object, the only kind that vendors enforce."""
    return schema.get("type") == "object" and "anyOf" not in schema


def strict_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Convert a schema to strict mode: all properties required, no others allowed.

    Returns None if strict mode refuses the schema or would change its meaning.
    """
    return _strict(schema) if is_object(schema) else None


def _strict(schema: Any) -> dict[str, Any] | None:
    if not isinstance(schema, dict) or not _is_supported(found := cast(dict[str, Any], schema)):
        return None
    made = dict(found)
    if found.get("type") == "object" or "properties" in found:
        made |= {"additionalProperties": False, "required": list(found.get("required", ()))}
    for key in ("properties", "$defs", "definitions"):
        if key in found:
            inner = {name: _strict(value) for name, value in found[key].items()}
            if None in inner.values():
                return None
            made[key] = inner
    if "items" in found:
        made["items"] = _strict(found["items"])
    if "anyOf" in found:
        made["anyOf"] = [_strict(option) for option in found["anyOf"]]
    return None if made.get("items", made) is None or None in made.get("anyOf", ()) else made


def _is_supported(schema: dict[str, Any]) -> bool:
    """Whether strict mode takes a schema without a change of meaning, apart from the schemas inside."""
    if not schema or not _KEYWORDS.issuperset(schema):
        return False
    if "$ref" in schema and set(schema) - {"$ref", "$defs", "definitions"}:
        return False
    if schema.get("format", _FORMATS[0]) not in _FORMATS:
        return False
    if schema.get("type") == "array" and "items" not in schema:
        return False
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties")
        if properties is None or schema.get("additionalProperties", False) is not False:
            return False
        return set(schema.get("required", ())) == set(properties)
    return True
