"""Checks of rules against the tools of the agents that they apply to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

from ...tools import Tool
from .evaluation import CompiledPolicy
from .facts import facts_of
from .matches import ToolFacts, selects
from .patterns import Condition, Step, write_path
from .policy import CompiledRule

__all__ = ["lint"]

# How deep references in a schema are followed.
MAX_REFERENCES = 20

_ORDERED = ("<", "<=", ">", ">=")
_TEXTUAL = ("~", "!~", "=~", "!=~")
_JSON_TYPES: dict[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("integer", "number"),
    str: ("string",),
    type(None): ("null",),
}


def lint(policy: CompiledPolicy, tools: Mapping[str, Tool], layer: str) -> Iterator[str]:
    """Yield what is wrong with the rules of a layer, given all tools that the layer applies to.

    Tools of MCP servers are found later, so rules about them are left out.
    """
    known = {name: facts_of(tool) for name, tool in tools.items()}
    for rule in policy.rules:
        if rule.layer != layer:
            continue
        selected = [name for name, facts in known.items() if selects(rule.pattern, facts)]
        if not selected:
            if (problem := _unmatched(rule, known)) is not None:
                yield f"{rule.text!r}: {problem}"
            continue
        schemas = [tools[name].spec.parameters for name in selected]
        for part, clause in (("", rule.pattern.clause), ("unless ", rule.pattern.exception)):
            for condition in () if clause is None else clause.fields:
                if (problem := _condition_problem(condition, schemas)) is not None:
                    yield f"{rule.text!r}: {part}{problem}, of {_named(selected)}"
        if (stricter := _overruled_by(rule, policy, [known[name] for name in selected])) is not None:
            yield f"{rule.text!r}: it never decides, because {stricter!r} decides on all its calls; remove one"


def _named(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"any of {', '.join(names[:5])}"


def _unmatched(rule: CompiledRule, known: Mapping[str, ToolFacts]) -> str | None:
    name = rule.pattern.selector
    if rule.pattern.kind != "name" or name.startswith("mcp__") or name == "*":
        return None
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"the tools are {', '.join(sorted(known)[:20]) or 'none'}"
    return f"no tool is named {name!r}; {hint}"


def _overruled_by(rule: CompiledRule, policy: CompiledPolicy, tools: Sequence[ToolFacts]) -> str | None:
    """The unconditional rules of a stricter tier that decide on every call of these tools."""
    stricter = {"deny": (), "ask": ("deny",), "allow": ("deny", "ask")}[rule.tier]
    found: list[str] = []
    for tool in tools:
        by = next((r.text for r in policy.for_tool(tool) if r.tier in stricter and r.holds is None), None)
        if by is None:
            return None
        found.append(by)
    return " and ".join(dict.fromkeys(found))


# -- schemas -------------------------------------------------------------------------------------------------


def _condition_problem(condition: Condition, schemas: Sequence[Mapping[str, Any]]) -> str | None:
    """The problem of a condition that fits none of the schemas; None if it fits one."""
    problems: list[str] = []
    for schema in schemas:
        found = list(_nodes(schema, schema, condition.path))
        if not found:
            problems.append(_no_field(condition, schema))
        elif all((types := _types(schema, node)) is not None and not _fits(condition, types) for node in found):
            types = sorted({kind for node in found for kind in _types(schema, node) or ()})
            problems.append(
                f"{str(condition)!r} never has a clear answer: the field is of type {' or '.join(types)}"
            )
        else:
            return None
    return problems[0]


def _no_field(condition: Condition, schema: Mapping[str, Any]) -> str:
    properties = cast(Mapping[str, Any], schema.get("properties") or {})
    close = get_close_matches(str(condition.path[0].name), properties, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"the arguments are {', '.join(properties) or 'none'}"
    return f"no argument {write_path(condition.path)!r}; {hint}"


def _fits(condition: Condition, types: frozenset[str]) -> bool:
    if condition.operator in _ORDERED:
        wanted: tuple[str, ...] = ("integer", "number")
    elif condition.operator in _TEXTUAL:
        wanted = ("string", "integer", "number", "boolean")
    else:
        wanted = _JSON_TYPES[type(condition.value)]
    if condition.value is None:
        return True  # Schemas of optional fields don't list null.
    return not types.isdisjoint(wanted)


def _resolved(root: Mapping[str, Any], node: Any) -> Iterator[Mapping[str, Any]]:
    """A schema node without references and alternatives."""
    waiting, count = [node], 0
    while waiting and count < MAX_REFERENCES:
        count += 1
        one = waiting.pop()
        if not isinstance(one, Mapping):
            continue
        schema = cast(Mapping[str, Any], one)
        if isinstance(reference := schema.get("$ref"), str):
            target: Any = root
            for part in reference.removeprefix("#/").split("/"):
                target = cast(Any, target).get(part) if isinstance(target, Mapping) else None
            waiting.append(target)
            continue
        alternatives = [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ()), *(schema.get("allOf") or ())]
        if alternatives:
            waiting += alternatives
        else:
            yield schema


def _nodes(root: Mapping[str, Any], node: Any, path: Sequence[Step]) -> Iterator[Mapping[str, Any]]:
    """The schemas of the values at a path; an empty schema where anything may be."""
    for schema in _resolved(root, node):
        if not path:
            yield schema
        elif "type" not in schema and "properties" not in schema:
            yield {}
        else:
            for below in _below(schema, path[0]):
                yield from _nodes(root, below, path[1:])


def _below(schema: Mapping[str, Any], step: Step) -> Iterator[Any]:
    properties = cast(Mapping[str, Any], schema.get("properties") or {})
    others: Any = schema.get("additionalProperties", schema.get("type") == "object" and not properties)
    others = {} if others is True else others
    if step.name is not None:
        if step.name in properties:
            yield properties[step.name]
        elif isinstance(others, Mapping):
            yield cast(Any, others)
        return
    if step.index is None:
        yield from properties.values()
        if isinstance(others, Mapping):
            yield cast(Any, others)
    yield from schema.get("prefixItems") or ()
    if "array" in (schema.get("type") or ()):
        yield schema.get("items") or {}


def _types(root: Mapping[str, Any], node: Mapping[str, Any]) -> frozenset[str] | None:
    """The JSON types that a schema admits; None if they aren't known."""
    given = node.get("type")
    if given is None:
        values: list[Any] = node.get("enum") or ([node["const"]] if "const" in node else [])
        kinds = [_JSON_TYPES.get(cast(Any, type(value)), ("object", "array")) for value in values]
        return frozenset([kind for each in kinds for kind in each]) if values else None
    return frozenset([given] if isinstance(given, str) else given)
