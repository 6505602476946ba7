"""Matching calls with compiled patterns: pure functions of a call's arguments and the facts about its run.

A pattern is compiled to *catch* calls (deny and ask) or to *admit* them (allow and grants). Where a test has no
clear answer, both are strict: a catching pattern matches, an admitting one doesn't. That is so when the type of a
value doesn't fit the operator, and when a value is too long for a regular expression. A path with `*` catches if
one of its values does, and admits if all of them do. A missing field, and null, fail a test, but satisfy a
negative operator of a catching pattern. The exception of a pattern is compiled the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from ...types.base import Data
from ...types.calls import Effect
from .patterns import Clause, Condition, Pattern, Step, glob_pieces

__all__ = ["Facts", "Matcher", "ToolFacts", "compile_pattern", "matches_glob", "selects"]

# The longest value that a regular expression is tried on, in characters.
MAX_REGEX = 10_000


class ToolFacts(Data):
    """The facts about a tool that selectors refer to."""

    name: str
    effect: Effect = "once"
    hints: frozenset[str] = frozenset()


class Facts(Data):
    """The facts about a run that conditions refer to; `values` has agent, depth, origin and principal."""

    values: Mapping[str, Any]
    tainted: bool = False


Matcher = Callable[[Mapping[str, Any], Facts], bool]
_Test = Callable[[Any], bool]
_MISSING: Final = object()


def selects(pattern: Pattern, tool: ToolFacts) -> bool:
    """Whether the pattern's selector admits a tool."""
    match pattern.kind:
        case "name":
            return matches_glob(glob_pieces(pattern.selector), tool.name)
        case "effect":
            return tool.effect == pattern.selector
        case "hint":
            return pattern.selector in tool.hints
        case "server":
            return tool.name.startswith(f"mcp__{pattern.selector}__")


def compile_pattern(pattern: Pattern, *, admits: bool) -> Matcher | None:
    """The test of a pattern's conditions; None if every call of its tools matches."""
    if pattern.is_unconditional:
        return None
    holds = _compile_clause(pattern.clause, admits=admits)
    if pattern.exception is None:
        return holds
    excepted = _compile_clause(pattern.exception, admits=not admits)
    return lambda arguments, facts: holds(arguments, facts) and not excepted(arguments, facts)


def _compile_clause(clause: Clause, *, admits: bool) -> Matcher:
    fields = tuple([_compile_condition(one, admits) for one in clause.fields])
    facts_tests = tuple([_compile_condition(one, admits) for one in clause.facts])
    named = frozenset([str(one.path[0].name) for one in clause.fields]) if clause.only else None
    tainted = clause.tainted

    def holds(arguments: Mapping[str, Any], facts: Facts) -> bool:
        if tainted is not None and facts.tainted is not tainted:
            return False
        if named is not None and not _has_only(arguments, named):
            return False
        for test in fields:
            if not test(arguments):
                return False
        values = facts.values
        return all(test(values) for test in facts_tests)

    return holds


def _has_only(arguments: Mapping[str, Any], named: frozenset[str]) -> bool:
    return all(name in named or value is None for name, value in arguments.items())


def _compile_condition(condition: Condition, admits: bool) -> _Test:
    path, test = condition.path, _compile_test(condition, admits)
    if len(path) == 1 and (name := path[0].name) is not None:
        return lambda arguments: test(arguments.get(name, _MISSING))
    if all(step.name is not None or step.index is not None for step in path):
        return lambda arguments: test(next(_values(arguments, path, 0)))
    if admits:
        return lambda arguments: all(test(value) for value in _values(arguments, path, 0))
    return lambda arguments: any(test(value) for value in _values(arguments, path, 0))


def _values(value: Any, path: tuple[Step, ...], at: int) -> Iterator[Any]:
    """The values at a path, and `_MISSING` where there is none."""
    if at == len(path):
        yield value
        return
    step = path[at]
    if step.name is not None:
        found = cast(Mapping[str, Any], value).get(step.name, _MISSING) if isinstance(value, Mapping) else _MISSING
    elif step.index is not None:
        entries = cast(list[Any], value) if isinstance(value, list) else []
        found = entries[step.index] if step.index < len(entries) else _MISSING
    else:
        yield from _fan_out(value, path, at)
        return
    if found is _MISSING:
        yield _MISSING
    else:
        yield from _values(found, path, at + 1)


def _fan_out(value: Any, path: tuple[Step, ...], at: int) -> Iterator[Any]:
    entries: list[Any] = []
    if isinstance(value, Mapping):
        entries = [*cast(Mapping[str, Any], value).values()]
    elif isinstance(value, list):
        entries = cast(list[Any], value)
    if not entries:
        yield _MISSING
    for entry in entries:
        yield from _values(entry, path, at + 1)


def matches_glob(pieces: tuple[str, ...], text: str) -> bool:
    """Whether a text is the pieces of a glob with any text between them; takes linear time for each piece."""
    if len(pieces) == 1:
        return text == pieces[0]
    first, *middle, last = pieces
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


# -- tests of one value --------------------------------------------------------------------------------------


def _compile_test(condition: Condition, admits: bool) -> _Test:
    operator, expected = condition.operator, condition.value
    is_negative, unclear = operator.startswith("!"), not admits
    if operator in ("=", "!="):
        return _equality(expected, is_negative, admits)
    # True or False, or None if there is no clear answer.
    decide = _comparison(operator, expected) if operator[0] in "<>" else _text_test(operator, str(expected))
    if_missing = is_negative and not admits

    def test(value: Any) -> bool:
        if value is _MISSING or value is None:
            return if_missing
        found = decide(value)
        return unclear if found is None else found is not is_negative

    return test


def _equality(expected: Any, is_negative: bool, admits: bool) -> _Test:
    expected_kind = _kind(expected)
    if_missing = is_negative and not admits

    def test(value: Any) -> bool:
        if value is _MISSING or (value is None and expected is not None):
            return if_missing
        return (_kind(value) == expected_kind and value == expected) is not is_negative

    return test


def _kind(value: Any) -> str:
    """The JSON type of a value; 1 and 1.0 are of one type, 1 and true are not."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return type(value).__name__


def _comparison(operator: str, expected: Any) -> Callable[[Any], bool | None]:
    def decide(value: Any) -> bool | None:
        if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
            return None
        match operator:
            case "<":
                return value < expected
            case "<=":
                return value <= expected
            case ">":
                return value > expected
            case _:
                return value >= expected

    return decide


def _text_test(operator: str, expected: str) -> Callable[[Any], bool | None]:
    if operator.endswith("=~"):
        regex = re.compile(expected, re.DOTALL)

        def fits(text: str) -> bool | None:
            return None if len(text) > MAX_REGEX else regex.fullmatch(text) is not None
    else:
        pieces = glob_pieces(expected)

        def fits(text: str) -> bool | None:
            return matches_glob(pieces, text)

    def decide(value: Any) -> bool | None:
        if isinstance(value, str):
            return fits(value)
        if isinstance(value, bool):
            return fits("true" if value else "false")
        return fits(repr(value)) if isinstance(value, int | float) else None

    return decide
