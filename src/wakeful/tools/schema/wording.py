"""Problems of a value, as text for a model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec

__all__ = ["Problem", "format_names", "format_problems"]

# A path in a value, such as `$.lines[0]`, and the reason.
Problem = tuple[str, str]

_MAX_PROBLEMS = 10
_MAX_LENGTH = 300
_KIND = r"expected ([\w |]+), got (\w+)"
_STEP = r"\.([^.\[]+)|\[([^\]]*)\]"


def format_names(names: list[str]) -> str:
    """List argument names, up to a limit."""
    shown = ", ".join(f"{name!r:.80}" for name in names[:_MAX_PROBLEMS])
    more = f" and {len(names) - _MAX_PROBLEMS} more" if len(names) > _MAX_PROBLEMS else ""
    return f"argument{'s' if len(names) > 1 else ''} {shown}{more}"


def format_problems(problems: list[Problem], schema: dict[str, Any]) -> str:
    """Join problems to a text of limited length that can be encoded."""
    merged: dict[tuple[str, str], str] = {}
    for path, text in problems:
        reason = _reason(text)
        if reason.startswith(("invalid enum value", "invalid value")):
            values = _values_at(schema, path)
            reason += f" (expected: {', '.join(values)})" if values else ""
        key = path, reason
        if match := re.fullmatch(_KIND, reason):
            # Members of a union, tried in turn.
            key = path, match[2]
            if known := re.fullmatch(_KIND, merged.get(key, "")):
                kinds = dict.fromkeys([*known[1].split(" | "), *match[1].split(" | ")])
                reason = f"expected {' | '.join(kinds)}, got {match[2]}"
        merged[key] = reason
    lines = [f"{path}: {reason}" for (path, _), reason in merged.items()]
    if len(lines) > _MAX_PROBLEMS:
        lines = [*lines[:_MAX_PROBLEMS], f"and {len(lines) - _MAX_PROBLEMS} more"]
    return "; ".join(lines).encode("utf-8", "backslashreplace").decode()


def _reason(text: str) -> str:
    text = re.sub(r"^Object (?:missing|contains) (.*?) `(.*)`$", _field_reason, text, flags=re.DOTALL)
    text = text.replace("`", "") or "invalid"
    if len(text) > _MAX_LENGTH:
        text = f"{text[:_MAX_LENGTH]}…"
    return text if text[1:2].isupper() else text[0].lower() + text[1:]


def _field_reason(match: re.Match[str]) -> str:
    missing = "missing " if match[1].startswith("required") else ""
    return f"{missing}{match[1]} {match[2]!r:.80}"


def _values_at(schema: dict[str, Any], path: str) -> list[str]:
    """The enum values that a schema lists at a path."""
    nodes = list(_options(schema, schema))
    for name, _ in re.findall(_STEP, path):
        below: list[Any] = []
        for node in nodes:
            inside = node.get("properties", {}).get(name) if name else node.get("items")
            below.append(node.get("additionalProperties") if inside is None else inside)
        nodes = [option for part in below for option in _options(part, schema)]
    values = [value for node in nodes for value in node.get("enum", ())]
    shown = [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values]
    return [*shown[:_MAX_PROBLEMS], "..."] if len(shown) > _MAX_PROBLEMS else shown


def _options(part: Any, root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if not isinstance(part, dict):
        return
    node = cast(dict[str, Any], part)
    if "$ref" in node:
        node = root["$defs"][node["$ref"].removeprefix("#/$defs/")]
    yield node
    for option in node.get("anyOf", ()):
        yield from _options(option, root)
