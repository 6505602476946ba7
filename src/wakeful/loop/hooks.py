"""Hooks and actions of a phase: they see one snapshot, and their commands merge in registration order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..agents import Hook
from ..errors import HookFailed, WakefulError, explain
from ..plugins import ActionQueue, Catalog, Handler, HookContext
from ..state import AnyKey, Command, ScheduledAction, State, conflicts
from ..types.content import clean_text

__all__ = ["MAX_ACTION_ROUNDS", "STRAY", "is_cancelled", "run_actions", "run_hooks"]

C = TypeVar("C", bound=HookContext)

MAX_ACTION_ROUNDS = 16

# Stands for a cancellation inside a plugin that nobody requested: an error like any other.
STRAY = asyncio.CancelledError("an awaited task was cancelled, and nobody cancelled the run")


async def run_hooks(
    phase: str,
    hooks: Sequence[Hook],
    context: Callable[[Hook], C],
    apply: Callable[[Command], None],
) -> list[C]:
    """Run a phase's hooks and apply their commands; returns their contexts in registration order.

    All hooks see the same snapshot. A hook that is not the first to write an exclusive key runs again, alone, on
    the state after the others.
    """
    contexts = [context(hook) for hook in hooks]
    await _gather(phase, hooks, contexts)
    written: set[AnyKey] = set()
    late: list[int] = []
    for index, done in enumerate(contexts):
        if conflicts(done.command, written):
            late.append(index)
            continue
        written.update(key for key, _ in done.command.updates)
        _merge(phase, hooks[index], done, apply)
    for index in late:
        contexts[index] = context(hooks[index])
        await _call(phase, hooks[index], contexts[index])
        _merge(phase, hooks[index], contexts[index], apply)
    return contexts


def _merge(phase: str, hook: Hook, context: HookContext, apply: Callable[[Command], None]) -> None:
    try:
        apply(context.command)
        context.close()
    except Exception as error:  # A reducer is application code.
        raise _failure(phase, hook, error) from error


async def _gather(phase: str, hooks: Sequence[Hook], contexts: Sequence[HookContext]) -> None:
    if len(hooks) == 1:
        await _call(phase, hooks[0], contexts[0])
        return
    calls = [_call(phase, hook, ctx) for hook, ctx in zip(hooks, contexts, strict=True)]
    # Wait for all, then raise the first error in registration order: no hook is left running.
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def _call(phase: str, hook: Hook, context: HookContext) -> None:
    try:
        await hook.function(context)
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise _failure(phase, hook, STRAY) from error
    except Exception as error:
        raise _failure(phase, hook, error) from error


def is_cancelled() -> bool:
    """Whether the current task itself was cancelled, and not something that it awaits."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _failure(phase: str, hook: Hook, error: BaseException) -> HookFailed:
    return HookFailed(f"plugin {hook.plugin!r} failed in {phase}: {explain(error)}")


async def run_actions(
    phase: str,
    catalog: Catalog,
    configs: Mapping[str, Any],
    state: State,
    context: Callable[[Hook], C],
    apply: Callable[[Command], None],
) -> tuple[list[C], list[str]]:
    """Run the actions scheduled for this phase, and those that they schedule in turn.

    An action is marked as done with the changes it made. A failed one is marked as failed, and the run continues.
    Returns the contexts of the actions that succeeded, and the errors of the others.
    """
    done: list[C] = []
    problems: list[str] = []
    for _ in range(MAX_ACTION_ROUNDS):
        due = [a for a in state.snapshot()[ActionQueue].pending if a.phase == phase]
        if not due:
            return done, problems
        for action in due:
            handler = catalog.actions.get(action.name)
            error = "no plugin handles it any more"
            if handler is not None:
                ctx = context(Hook(handler.plugin, handler.function, configs.get(handler.plugin)))
                error = await _run_action(action, handler, ctx, apply)
                if not error:
                    done.append(ctx)
            if error:
                problems.append(f"action {action.name!r}: {error}")
                apply(_mark_done(Command(), action, error))
    raise HookFailed(f"actions kept scheduling actions for {phase}: more than {MAX_ACTION_ROUNDS} rounds")


async def _run_action(
    action: ScheduledAction, handler: Handler, ctx: HookContext, apply: Callable[[Command], None]
) -> str:
    """Run an action and apply its changes; returns the error text, or an empty text."""
    try:
        await handler.function(handler.payload.decode(action.payload), ctx)
        apply(_mark_done(ctx.command, action, ""))
        ctx.close()
    except (msgspec.MsgspecError, WakefulError) as error:
        return str(error)
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        return explain(STRAY)
    except Exception as error:
        return explain(error)
    return ""


def _mark_done(command: Command, action: ScheduledAction, error: str) -> Command:
    command.updates.append((ActionQueue, ("ran", replace(action, error=clean_text(error)))))
    return command
