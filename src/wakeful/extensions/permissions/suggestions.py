"""Suggested patterns for a grant: generalised from the arguments of a call, the narrowest first."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from ...tools import Tool
from .patterns import MAX_TEXT, Clause, Condition, Pattern, PatternError, Step, parse_pattern

__all__ = ["suggest"]

MAX_VALUE = 200


def suggest(tool: Tool, arguments: Mapping[str, Any], *, widest: bool) -> tuple[str, ...]:
    """The patterns that a grant for this call may have: these arguments, those of its scope, and the whole tool.

    The whole tool is suggested if `widest`, and never for a tool with the hint `destructive`.
    """
    exact = _conditions(arguments, list(arguments))
    scope = _scope_of(tool)
    kept = _conditions(arguments, [name for name in arguments if name in scope])
    found: list[Pattern] = []
    if exact is not None:
        found.append(Pattern("name", tool.spec.name, Clause(tuple(exact), only=True)))
    if kept:
        found.append(Pattern("name", tool.spec.name, Clause(tuple(kept))))
    if widest and "destructive" not in tool.hints:
        found.append(Pattern("name", tool.spec.name))
    return tuple(dict.fromkeys([text for pattern in found if (text := _written(pattern)) is not None]))


def _written(pattern: Pattern) -> str | None:
    """The text of a pattern; None if it can't be read back."""
    text = str(pattern)
    try:
        return text if len(text) <= MAX_TEXT and parse_pattern(text) == pattern else None
    except PatternError:
        return None


def _scope_of(tool: Tool) -> frozenset[str]:
    """The arguments that a grant keeps: those of `grant_by`, else those that have a closed set of values."""
    if tool.grant_by:
        return frozenset(tool.grant_by)
    properties = cast(Mapping[str, Any], tool.spec.parameters.get("properties") or {})
    return frozenset([name for name, schema in properties.items() if _is_closed(schema)])


def _is_closed(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    given = cast(Mapping[str, Any], schema)
    return any(word in given for word in ("enum", "const", "format")) or given.get("type") == "boolean"


def _conditions(arguments: Mapping[str, Any], names: list[str]) -> list[Condition] | None:
    """Conditions that these arguments have these values; None if that can't be written."""
    found: list[Condition] = []
    for name in names:
        value = arguments[name]
        if value is None:
            continue
        path, entries = (Step(name),), cast(list[Any], value) if isinstance(value, list) else None
        if entries is not None:
            if not entries or not all(isinstance(entry, str) for entry in entries):
                return None
            path, value = (*path, Step()), "|".join([re.escape(entry) for entry in dict.fromkeys(entries)])
            condition = Condition(path, "=~", value)
            if len(set(entries)) == 1:
                condition = Condition(path, "=", entries[0])
        elif isinstance(value, str | int | float | bool):
            condition = Condition(path, "=", value)
        else:
            return None
        if len(str(condition.value)) > MAX_VALUE:
            return None
        found.append(condition)
    return found
