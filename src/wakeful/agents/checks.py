"""Validation of an agent's limits, policies and dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from inspect import signature
from math import isnan
from typing import Any, cast

from ..context import window_problems
from ..errors import ConfigurationError, UnknownModel, WakefulError
from ..models import ModelRegistry, RetryPolicy
from ..plugins import Guardrail, Plugin
from ..tools import Tool, declared_deps, valid_name
from ..types.limits import ContentMatch, LoopDetection, StopOnTool, StopPolicy
from ..types.tickets import ASKERS
from .agent import Agent
from .resolved import ResolvedAgent

__all__ = [
    "compaction_problems",
    "deps_needs",
    "model_problems",
    "policy_problems",
    "section_problems",
    "tool_hint",
]

_MAY_BE_ZERO = ("repairs", "continuations", "handoffs")


def model_problems(agent: Agent, models: ModelRegistry) -> Sequence[str]:
    """List what is wrong with the model of an agent that the local loop executes."""
    if agent.model == "":
        return [
            "it has neither a model nor a backend; give it one of them"
            if agent.backend is None
            else "its backend is the local loop, which needs a model; give it one"
        ]
    try:
        models.check(agent.model)
    except UnknownModel as error:
        return [str(error)]
    except ConfigurationError as error:
        return error.problems
    return []


def compaction_problems(agent: Agent, models: ModelRegistry) -> Sequence[str]:
    """List the problems of an agent's window, and of the model that writes its summaries."""
    problems = window_problems(agent.window)
    compaction = None if problems or agent.window is None else agent.window.compaction
    if compaction is not None and compaction.model is not None:
        try:
            models.check(compaction.model)
        except WakefulError as error:
            return [f"compaction.model: {error}"]
    return problems


def section_problems(agent: Agent, plugins: Sequence[Plugin]) -> Iterator[str]:
    """Yield the problems of the plugins' names, and of config sections that belong to none of them."""
    labels = [plugin.label for plugin in plugins]
    for label in sorted({label for label in labels if labels.count(label) > 1}):
        yield f"two plugins are named {label!r}; give one another `name`"
    for section in agent.config:
        if not any(p.label == section and p.config is not None for p in plugins):
            yield f"config section {section!r} belongs to none of its plugins"
    for label in labels:
        if label in ASKERS:
            yield f"a plugin can't be named {label!r}, which is reserved; give it another `name`"


def policy_problems(agent: Agent) -> list[str]:
    """List the problems of an agent's retry policy, limits, validators, guardrails and stop policies."""
    found: list[str] = []
    if not isinstance(cast(Any, agent.retry), RetryPolicy | None):
        found.append(f"retry is a RetryPolicy, not {agent.retry!r:.80}")
    for name in agent.limits.__struct_fields__:
        lowest = 0 if name in _MAY_BE_ZERO else 1
        value = getattr(agent.limits, name)
        if value is not None and value < lowest:
            found.append(f"limits.{name} must be at least {lowest}")
    found += [problem for validator in agent.validators for problem in _validator_problems(validator)]
    found += [problem for guardrail in agent.guardrails for problem in _guardrail_problems(guardrail)]
    for policy in agent.stop:
        kind = str(policy.__struct_config__.tag)
        found += [f"stop policy {kind}: {problem}" for problem in _stop_problems(policy)]
    return found


def _validator_problems(validator: Any) -> Iterator[str]:
    written = "def validator(output, ctx), which raises OutputRejected"
    if not callable(validator) or isinstance(validator, type):
        yield f"validators has {validator!r:.80}; write `{written}`"
        return
    try:
        signature(validator).bind(None, None)
    except (TypeError, ValueError):
        name = getattr(validator, "__name__", type(validator).__name__)
        yield f"validator {name!r} is called with the output and a context; write `{written}`"


def _guardrail_problems(guardrail: Any) -> Iterator[str]:
    if not isinstance(guardrail, Guardrail):
        yield f"guardrails has {guardrail!r:.80}; write Guardrail(name, input=..., output=...)"
        return
    checks = {"input": guardrail.input, "output": guardrail.output}
    given = {side: check for side, check in checks.items() if check is not None}
    if not given:
        yield f"guardrail {guardrail.name!r} judges nothing; give it an input or an output function"
    for side, check in given.items():
        try:
            signature(check).bind(None, None)
        except (TypeError, ValueError):
            yield (
                f"guardrail {guardrail.name!r}: {side} is called with a message and a context; write "
                f"`def {side}(message, ctx)`"
            )


def _stop_problems(policy: StopPolicy) -> Iterator[str]:
    if isinstance(policy, ContentMatch):
        try:
            re.compile(policy.pattern)
        except re.error as error:
            yield f"bad pattern: {error}"
    # A client may bring a tool that the agent doesn't have, so only the form of the name is checked.
    if isinstance(policy, StopOnTool) and not valid_name(policy.tool):
        yield f"no tool can be named {policy.tool!r:.80}: a name has 1 to 64 letters, digits, '_' or '-'"
    lowest = 2 if isinstance(policy, LoopDetection) else 0
    first = getattr(policy, policy.__struct_fields__[0])
    if isinstance(first, int | float) and not (first > 0 and first >= lowest):
        yield f"{first!r} {'is no number' if isnan(first) else 'is too small'}"


def deps_needs(agent: ResolvedAgent) -> list[tuple[str, Any]]:
    """List the functions of an agent that declare dependencies, each with the type it needs."""
    where = f"agent {agent.id!r}"
    needs = [(f"{where}: tool {name!r}", tool.deps_type) for name, tool in agent.tools.items()]
    needs += [(f"{where}: a validator", declared_deps(check)) for check in agent.agent.validators]
    functions = [part for part in agent.parts if not isinstance(part, str)]
    needs += [(f"{where}: an instructions function", declared_deps(part)) for part in functions]
    for guardrail in agent.agent.guardrails:
        checks = [check for check in (guardrail.input, guardrail.output) if check is not None]
        needs += [(f"{where}: guardrail {guardrail.name!r}", declared_deps(check)) for check in checks]
    for phase, hooks in agent.hooks.items():
        needs += [(f"{where}, plugin {h.plugin!r}: {phase}", declared_deps(h.function)) for h in hooks]
    return needs


def tool_hint(entry: Any) -> str:
    """Suggest what to give instead of something that isn't a tool."""
    if isinstance(entry, type) and issubclass(entry, Tool):
        return f"give an instance of it: {entry.__name__}(...)"
    if isinstance(entry, Agent):
        return f"an agent that others call is named in delegates: [{entry.id!r}]"
    return "give a function, a Tool or a name"
