"""Phases: a run's hooks and scheduled actions at one point of the loop, on committed state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ..agents import Hook
from ..plugins import HookContext
from .activation import ACTIONS, Activation
from .commits import flush
from .disclosure import disclose, note_error
from .hooks import run_actions, run_hooks

__all__ = ["run_phase"]

H = TypeVar("H", bound=HookContext)


async def run_phase(
    act: Activation,
    name: str,
    hooks: Sequence[Hook],
    kind: type[H],
    prepare: Callable[[H], None] | None = None,
    done: Callable[[H], None] | None = None,
    *,
    with_actions: bool = True,
) -> list[H]:
    """Commit the draft, then run the hooks and actions of a phase; returns their contexts.

    `prepare` completes each context, `done` is called with it after its hook.
    """
    has_actions = with_actions and ACTIONS in act.state.values
    if not hooks and not has_actions:
        return []
    await flush(act)
    catalog, deps = act.env.registry.catalog, act.env.deps.value

    def make_context(hook: Hook) -> H:
        run = act.view.run
        ctx = kind(act.identity, run.steps, act.state.snapshot(), run.principal, catalog, hook.config, deps)
        if prepare is not None:
            prepare(ctx)
        return ctx

    contexts: list[H] = []
    if hooks:
        contexts = await run_hooks(name, hooks, make_context, act.apply, done)
        act.now = act.clock.now()
    if with_actions and ACTIONS in act.state.values:
        ran, problems = await run_actions(
            name, catalog, act.agent.configs, act.state, make_context, act.apply, partial(disclose, act), done
        )
        contexts += ran
        for problem in problems:
            note_error(act, problem, name)
    return contexts
