"""Validation of plugins, before any run uses them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction, signature
from typing import Any, cast, get_type_hints

from ..state import json_problem
from ..tools import Shape
from .catalog import PHASES
from .plugin import Plugin

__all__ = ["config_problems", "part_problems", "plugin_problems"]

_HOOKS = (*PHASES, "activate", "deactivate")
_PHASE_LIKE = re.compile(r"(before|after|gate|on)_|.*_(start|end)$")


def plugin_problems(plugin: Plugin) -> list[str]:
    """List the problems of a plugin's hooks and handlers."""
    found = [
        problem
        for phase in _HOOKS
        if getattr(type(plugin), phase) is not getattr(Plugin, phase)
        for problem in _signature_problems(getattr(plugin, phase), phase, "ctx")
    ]
    for member in _members(plugin):
        marked = getattr(plugin, member)
        if hasattr(marked, "_wakeful_action"):
            found += _signature_problems(marked, member, "payload", "ctx")
        elif hasattr(marked, "_wakeful_notice"):
            found += _signature_problems(marked, member, "payload")
        elif callable(marked) and _takes(marked, 1):
            found += _phase_name_problems(member, marked)
    return found


def part_problems(plugin: Plugin) -> list[str]:
    """List the problems of a plugin's name, keys, tools and payload types."""
    found: list[str] = []
    if not isinstance(cast(Any, plugin.name), str):
        found.append(f"name is a text, not {plugin.name!r:.80}")
    keys: Any = plugin.keys
    if not isinstance(keys, Iterable) or isinstance(keys, str):
        found.append(f"keys is a list of state keys, not {keys!r:.80}")
    tools: Any = plugin.tools
    brought = tools() if callable(tools) else tools
    if not callable(tools) or not isinstance(brought, Iterable):
        found.append(f"tools is a method that returns a list of tools; {brought!r:.80} is none")
    for member in _members(plugin):
        marked = getattr(plugin, member)
        if hasattr(marked, "_wakeful_action") or hasattr(marked, "_wakeful_notice"):
            try:
                hints = get_type_hints(marked)
                problem = json_problem(hints.get(next(iter(signature(marked).parameters), ""), Any))
            except (NameError, TypeError) as error:
                problem = f"its annotations can't be read: {error}"
            if problem:
                found.append(f"{member}: {problem}")
    return found


def config_problems(config: Any, section: Any) -> list[str]:
    """List the names in a config section that the plugin doesn't have."""
    shape = Shape(config).schema
    known: dict[str, Any] = shape.get("properties", {})
    if not isinstance(section, dict) or not known or shape.get("additionalProperties"):
        return []
    found: list[str] = []
    for name in cast(dict[str, Any], section):
        if name not in known:
            from difflib import get_close_matches  # Slow to import, and needed for errors only.

            close = get_close_matches(str(name), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
            found.append(f"it has no {name!r}; {hint}")
    return found


def _members(plugin: Plugin) -> list[str]:
    kind = type(plugin)
    names = [name for name in dir(kind) if not name.startswith("_") and not hasattr(Plugin, name)]
    return [name for name in names if not isinstance(getattr(kind, name), property)]


def _signature_problems(function: Any, name: str, *given: str) -> list[str]:
    written = f"async def {name}(self, {', '.join(given)})"
    if not iscoroutinefunction(function):
        return [f"{name} must be `{written}`, which is awaited and doesn't yield"]
    if not _takes(function, len(given)):
        takes = ", ".join(signature(function).parameters)
        return [f"{name}({takes}) is called with {' and '.join(given)}; write `{written}`"]
    return []


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # A builtin without a signature.
        pass
    return True


def _phase_name_problems(name: str, function: Callable[..., Any]) -> list[str]:
    """Report a method that looks like a phase but would never be called."""
    from difflib import get_close_matches

    if close := get_close_matches(name, _HOOKS, n=1, cutoff=0.85):
        return [f"{name} is no phase; did you mean {close[0]}?"]
    if _PHASE_LIKE.match(name) and iscoroutinefunction(function) and [*signature(function).parameters] == ["ctx"]:
        return [f"{name} is no phase; the phases are {', '.join(_HOOKS)}"]
    return []
