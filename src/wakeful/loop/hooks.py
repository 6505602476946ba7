"""Hooks and actions of a phase: they see one snapshot, and their commands merge in registration order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..agents import Hook
from ..errors import HookFailed, explain, quote
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
    done: Callable[[C], None] | None = None,
) -> list[C]:
    """Run a phase's hooks and apply their commands; returns their contexts in registration order.

    Hooks of concurrent plugins run first, side by side; the others are awaited in turn. All see the same state. A
    hook that is not the first to write an exclusive key runs again, alone, on the state after the others. `done`
    is called after each hook, before the context of the next one is made. If hooks fail, the others still run, and
    the first error in registration order is raised.
    """
    made: dict[int, C] = {}
    failed: dict[int, HookFailed] = {}
    if any(hook.is_concurrent for hook in hooks):
        made, failed = await _run_side_by_side(phase, hooks, context)
        if done is not None:
            for ctx in made.values():
                done(ctx)
    contexts: list[C] = []
    for index, hook in enumerate(hooks):
        if (ctx := made.get(index)) is None:
            ctx = context(hook)
            try:
                await hook.function(ctx)
            except (Exception, asyncio.CancelledError) as error:
                failed[index] = _caught(phase, hook, error)  # The other hooks of the phase still run.
            if done is not None:
                done(ctx)
        contexts.append(ctx)
    if failed:
        raise failed[min(failed)]
    if any(ctx.command for ctx in contexts):
        await _apply_all(phase, hooks, contexts, context, apply, done)
    for ctx in contexts:
        ctx.close()
    return contexts


async def _apply_all(
    phase: str,
    hooks: Sequence[Hook],
    contexts: list[C],
    context: Callable[[Hook], C],
    apply: Callable[[Command], None],
    done: Callable[[C], None] | None,
) -> None:
    """Apply the commands in order; a hook with a conflict runs again, and its context is replaced."""
    written: set[AnyKey] = set()
    late: list[int] = []
    for index, ctx in enumerate(contexts):
        if not ctx.command:
            continue
        if conflicts(ctx.command, written):
            late.append(index)
            continue
        written.update(key for key, _ in ctx.command.updates)
        _apply(phase, hooks[index], ctx, apply)
    for index in late:
        contexts[index].close()
        ctx = contexts[index] = context(hooks[index])
        await _call(phase, hooks[index], ctx)
        if done is not None:
            done(ctx)
        _apply(phase, hooks[index], ctx, apply)


def _apply(phase: str, hook: Hook, context: HookContext, apply: Callable[[Command], None]) -> None:
    try:
        if context.command is not None:
            apply(context.command)
    except Exception as error:  # A reducer is application code.
        raise _failure(phase, hook, error) from error


async def _run_side_by_side(
    phase: str, hooks: Sequence[Hook], context: Callable[[Hook], C]
) -> tuple[dict[int, C], dict[int, HookFailed]]:
    """Run the hooks of concurrent plugins; returns their contexts and errors by position."""
    contexts = {index: context(hook) for index, hook in enumerate(hooks) if hook.is_concurrent}
    calls = [_call(phase, hooks[index], ctx) for index, ctx in contexts.items()]
    failed: dict[int, HookFailed] = {}
    # Wait for all: no hook is left running.
    for index, outcome in zip(contexts, await asyncio.gather(*calls, return_exceptions=True), strict=True):
        if isinstance(outcome, HookFailed):
            failed[index] = outcome
        elif outcome is not None:
            raise outcome
    return contexts, failed


async def _call(phase: str, hook: Hook, context: HookContext) -> None:
    try:
        await hook.function(context)
    except (Exception, asyncio.CancelledError) as error:
        raise _caught(phase, hook, error) from error


def _caught(phase: str, hook: Hook, error: BaseException) -> HookFailed:
    """The failure of a hook that raised; raises the cancellation of the current task itself."""
    if not isinstance(error, asyncio.CancelledError):
        return _failure(phase, hook, error)
    if is_cancelled():
        raise error
    return _failure(phase, hook, STRAY)


def is_cancelled() -> bool:
    """Whether the current task itself was cancelled, and not something that it awaits."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _failure(phase: str, hook: Hook, error: BaseException) -> HookFailed:
    return quote(HookFailed, f"plugin {hook.plugin!r} failed in {phase}", error)


async def run_actions(
    phase: str,
    catalog: Catalog,
    configs: Mapping[str, Any],
    state: State,
    context: Callable[[Hook], C],
    apply: Callable[[Command], None],
    disclose: Callable[[BaseException, str], str],
    done: Callable[[C], None] | None = None,
) -> tuple[list[C], list[str]]:
    """Run the actions scheduled for this phase, and those that they schedule in turn.

    An action is marked as done with the changes it made. A failed one is marked as failed, and the run continues.
    Returns the contexts of the actions that succeeded, and the errors of the others.
    """
    ran: list[C] = []
    problems: list[str] = []
    for _ in range(MAX_ACTION_ROUNDS):
        due = [a for a in state.snapshot()[ActionQueue].pending if a.phase == phase]
        if not due:
            return ran, problems
        for action in due:
            handler = catalog.actions.get(action.name)
            error = "no plugin handles it any more"
            if handler is not None:
                ctx = context(Hook(handler.plugin, handler.function, configs.get(handler.plugin)))
                error = await _run_action(action, handler, ctx, apply, disclose)
                if not error:
                    ran.append(ctx)
                    if done is not None:
                        done(ctx)
            if error:
                problems.append(f"action {action.name!r}: {error}")
                apply(_mark_done(Command(), action, error))
    raise HookFailed(f"actions kept scheduling actions for {phase}: more than {MAX_ACTION_ROUNDS} rounds")


async def _run_action(
    action: ScheduledAction,
    handler: Handler,
    ctx: HookContext,
    apply: Callable[[Command], None],
    disclose: Callable[[BaseException, str], str],
) -> str:
    """Run an action and apply its changes; returns the error text, or an empty text."""
    try:
        payload = handler.payload.decode(action.payload)
    except msgspec.MsgspecError as error:
        return str(error)
    try:
        await handler.function(payload, ctx)
        apply(_mark_done(ctx.command or Command(), action, ""))
        ctx.close()
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        return explain(STRAY)
    except Exception as error:
        return disclose(error, f"action {action.name!r}")
    return ""


def _mark_done(command: Command, action: ScheduledAction, error: str) -> Command:
    command.updates.append((ActionQueue, ("ran", replace(action, error=clean_text(error)))))
    return command
