"""Checks of the agents that a runtime is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import signature
from typing import Any, cast

import msgspec
from msgspec import Struct

from ..agents import Agent, Delegate
from ..errors import ConfigurationError
from ..types.content import clean_text
from ..types.limits import CostBudget, Limits
from ..types.mail import MailPolicy
from ..types.requests import ModelSettings, ServerToolSpec, settings_problems

__all__ = ["check_agents"]

_LISTS = ("tools", "delegates", "handoffs", "plugins", "stop", "server_tools")
_KINDS: dict[str, type[Any]] = {
    "description": str,
    "settings": ModelSettings,
    "limits": Limits,
    "config": Mapping,
    "mail": MailPolicy,
}


def check_agents(agents: Any) -> list[Agent[Any]]:
    """The agents as a list; raises one `ConfigurationError` for all fields of a wrong type."""
    if isinstance(agents, Agent):
        raise ConfigurationError("Runtime takes a list of agents: Runtime([agent])")
    if isinstance(agents, str | Mapping) or not isinstance(agents, Iterable):
        raise ConfigurationError(f"Runtime takes a list of agents, not {agents!r:.80}")
    found = list(cast(Iterable[Any], agents))
    wrong: list[str] = []
    for agent in found:
        if isinstance(agent, Agent):
            wrong += _problems_of(cast(Agent[Any], agent))
        else:
            wrong.append(f"Runtime takes agents, not {agent!r:.80}")
    if wrong:
        raise ConfigurationError(wrong)
    return found


def _problems_of(agent: Agent[Any]) -> list[str]:
    if not isinstance(cast(Any, agent.id), str):
        return [f"an agent's id is a text, not {agent.id!r:.80}"]
    # A later check relies on the earlier ones.
    for check in _CHECKS:
        if found := [f"agent {agent.id!r}: {problem}" for problem in check(agent)]:
            return found
    return []


def _type_problems(agent: Agent) -> Iterator[str]:
    for name in _LISTS:
        value = getattr(agent, name)
        if value is not None and not isinstance(value, list | tuple):
            yield f"{name} is a list, not {value!r:.80}"
    for name, kind in _KINDS.items():
        value = getattr(agent, name)
        if not isinstance(value, kind):
            yield f"{name} is a {kind.__name__}, not {value!r:.80}"
        elif isinstance(value, str) and clean_text(value) != value:
            yield f"{name} has a lone surrogate (half a character) in it, {value!r:.80}; remove it"

    yield from _instruction_problems(agent.instructions)


def _instruction_problems(given: Any) -> Iterator[str]:
    if not isinstance(given, str | list | tuple) and not _is_function(given):
        yield f"instructions is a text, a function of a RunContext or a list of both, not {given!r:.80}"
        return
    parts: Iterable[Any] = cast(Iterable[Any], given) if isinstance(given, list | tuple) else [given]
    for part in parts:
        if isinstance(part, str):
            if clean_text(part) != part:
                yield f"instructions has a lone surrogate (half a character) in it, {part!r:.80}; remove it"
        elif not _is_function(part):
            yield f"instructions has {part!r:.80}; give texts and functions of a RunContext"
        else:
            try:
                signature(part).bind(None)
            except (TypeError, ValueError):
                name = getattr(part, "__name__", type(part).__name__)
                yield f"instructions function {name!r} is called with a RunContext; write `def {name}(ctx)`"


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)


def _setting_problems(agent: Agent) -> Iterator[str]:
    yield from settings_problems(agent.settings)


def _value_problems(agent: Agent) -> Iterator[str]:
    yield from _struct_problems(agent)
    for name in ("sequential", "expose_errors"):
        if not isinstance(value := getattr(agent, name), bool):
            yield f"{name} is True or False, not {value!r:.80}"
    for spec in agent.server_tools or ():
        if not isinstance(cast(Any, spec), ServerToolSpec):
            yield f"server_tools takes tools of the vendor such as WebSearch(), not {spec!r:.80}"
    for name in ("input", "output"):
        if getattr(agent, name) is object:
            yield f"{name} is object, which says nothing; give a type such as str or a dataclass"
    yield from _delegate_problems(agent)


def _struct_problems(agent: Agent) -> Iterator[str]:
    values: list[Any] = [
        agent.settings,
        agent.limits,
        agent.mail,
        *(agent.stop or ()),
        *(agent.server_tools or ()),
    ]
    for value in values:
        if not isinstance(value, Struct):
            yield f"stop takes policies such as WallTime(60), not {value!r:.80}"
            continue
        try:
            msgspec.convert(msgspec.to_builtins(value), type(value))
        except msgspec.ValidationError as error:
            hint = "; money is whole micro-units: half a dollar is 500_000" if type(value) is CostBudget else ""
            yield f"{type(value).__name__}: {error}{hint}"


def _delegate_problems(agent: Agent) -> Iterator[str]:
    ids: list[Any] = []
    for delegate in agent.delegates or ():
        if not isinstance(delegate, Delegate):
            ids.append(delegate)
            continue
        ids.append(delegate.agent)
        for name in ("durable", "background", "fork"):
            if not isinstance(value := getattr(delegate, name), bool):
                yield f"Delegate({delegate.agent!r}): {name} is True or False, not {value!r:.80}"
    for other in (*ids, *(agent.handoffs or ())):
        if not isinstance(other, str):
            hint = f"; give its id, {other.id!r:.80}" if isinstance(other, Agent) else ""
            yield f"delegates and handoffs are agents' ids, not {other!r:.80}{hint}"


_CHECKS: tuple[Callable[[Agent], Iterator[str]], ...] = (_type_problems, _setting_problems, _value_problems)
