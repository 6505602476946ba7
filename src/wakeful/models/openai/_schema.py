"""Which JSON schemas OpenAI can hold a model to, word for word."""

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
    """Whether the schema's root is an object, which is what vendors can enforce at all."""
    return schema.get("type") == "object" and "anyOf" not in schema


def strict_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema as strict mode wants it, if that says the same: all properties required, no others allowed.
    None for one that strict mode refuses, or would change."""
    return _strict(schema) if is_object(schema) else None


def _strict(schema: Any) -> dict[str, Any] | None:
    if not isinstance(schema, dict):
        return None
    found = cast(dict[str, Any], schema)
    if not _KEYWORDS.issuperset(found) or not found:
        return None
    if "$ref" in found and len(found) > 1 and set(found) - {"$ref", "$defs", "definitions"}:
        return None
    if "format" in found and found["format"] not in _FORMATS:
        return None
    made = dict(found)
    if found.get("type") == "object" or "properties" in found:
        properties = found.get("properties")
        if properties is None or found.get("additionalProperties", False) is not False:
            return None
        if set(found.get("required", ())) != set(properties):
            return None
        made |= {"additionalProperties": False, "required": list(found.get("required", ()))}
    for key in ("properties", "$defs", "definitions"):
        if key in found:
            inner = {name: _strict(value) for name, value in found[key].items()}
            if None in inner.values():
                return None
            made[key] = inner
    if "items" in found and (items := _strict(found["items"])) is not None:
        made["items"] = items
    elif "items" in found or found.get("type") == "array":
        return None
    if "anyOf" in found:
        options = [_strict(option) for option in found["anyOf"]]
        if None in options:
            return None
        made["anyOf"] = options
    return made
