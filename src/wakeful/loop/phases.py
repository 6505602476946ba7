"""Phases: a run's hooks and scheduled actions at one point of the loop, on committed state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..agents import Hook
from ..plugins import HookContext
from .activation import ACTIONS, Activation
from .commits import flush
from .hooks import run_actions, run_hooks

__all__ = ["run_phase"]

H = TypeVar("H", bound=HookContext)


async def run_phase(
    act: Activation,
    name: str,
    hooks: Sequence[Hook],
    kind: type[H],
    prepare: Callable[[H], None] | None = None,
) -> list[H]:
    """Commit the draft, then run the hooks and actions of a phase; returns their contexts."""
    if not hooks and ACTIONS not in act.state.values:
        return []
    await flush(act)
    catalog = act.env.registry.catalog

    def make_context(hook: Hook) -> H:
        run = act.view.run
        ctx = kind(act.identity, run.steps, act.state.snapshot(), run.principal, catalog, hook.config)
        if prepare is not None:
            prepare(ctx)
        return ctx

    contexts: list[H] = []
    if hooks:
        contexts = await run_hooks(name, hooks, make_context, act.apply)
        act.now = act.clock.now()
    if ACTIONS in act.state.values:
        done, problems = await run_actions(name, catalog, act.agent.configs, act.state, make_context, act.apply)
        contexts += done
        for problem in problems:
            act.note(problem, name)
    return contexts
