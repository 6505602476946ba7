"""The driver: computes the next move of a run and performs it, until the run waits or is done.

A move gathers its changes in the draft; they are committed before the next hook, tool or model runs. So an answer
is durable before its calls run, a result before the next model call, and a step without hooks costs two commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ..errors import RuntimeClosed, StoreError
from ..plugins import Step
from ..types.runs import Failed
from .activation import Activation
from .boundaries import end_step, pass_on, poll, resolve_overdue, switch_agent, take
from .calls.lifecycle import await_calls, execute, interrupt, run_after_tool
from .calls.recovery import drop, recover
from .commits import flush
from .disclosure import disclose, note_error
from .endings import finish, pause, suspend, wait_for_tasks
from .inference.step import infer
from .moves import (
    AfterCalls,
    Await,
    Drop,
    EndStep,
    Execute,
    Finish,
    Infer,
    Interrupt,
    Move,
    Overdue,
    PassOn,
    Pause,
    Poll,
    Recover,
    SuspendRun,
    SwitchAgent,
    Take,
    WaitForTasks,
    next_move,
)
from .phases import run_phase
from .sources import load_sources

__all__ = ["Host", "drive"]

MAX_ERRORS_WHILE_ENDING = 8


class Host(Protocol):
    """The owner of activations: the dispatcher."""

    def began(self, act: Activation) -> None:
        """Register an activation; raises `Conflict` if its thread has another one."""

    def lost(self, act: Activation, error: BaseException) -> None:
        """Note that an activation stopped without ending its run."""

    def ended(self, act: Activation) -> None:
        """Remove an activation that has ended."""


async def drive(act: Activation, host: Host) -> None:
    """Execute a run until it waits or is done.

    Errors of hooks, tools and models end the run, which then has a durable outcome. Only store errors, a lost
    claim, the end of the process and a cancellation of the caller are raised.
    """
    host.began(act)
    driver = _Driver(act)
    cancellation, tracer, failure = act.cancellation, act.env.tracer, None
    if tracer is not None:
        act.span = tracer.begin_run(act)
    cancellation.bind()
    try:
        await driver.run()
    except BaseException as error:
        failure = error
        await _lose(act, host, error)
        raise
    finally:
        if act.span is not None:
            act.span.end(failure)
        if act.window is not None:
            act.window.cancel()
        cancellation.take_back()
        if act.watch is not None:
            act.watch.close()
        act.mark_over()
        host.ended(act)
    if act.stopping is not None and act.view.run.status == "running":
        raise _closed(act)


async def _lose(act: Activation, host: Host, error: BaseException) -> None:
    """Stop the calls of an activation that ends with an error; may raise another error in its place."""
    if act.executor is not None and act.view.live:
        act.executor.give_up()
    cancellation = act.cancellation
    if cancellation.requested and isinstance(error, Exception | asyncio.CancelledError):
        await cancellation.absorb()  # The request was for the run: the rest of the task must not be cancelled.
    host.lost(act, error)
    if cancellation.by_caller and isinstance(error, Exception):
        raise asyncio.CancelledError from error
    if act.stopping == "now" and not act.attached and isinstance(error, asyncio.CancelledError):
        raise _closed(act) from None


def _closed(act: Activation) -> RuntimeClosed:
    return RuntimeClosed(
        f"the runtime was closed before run {act.identity.run_id} ended; another process on the store continues it"
    )


class _Driver:
    """The loop around `next_move`, and its error handling."""

    __slots__ = ("_act", "_errors", "_raises")

    def __init__(self, act: Activation) -> None:
        self._act = act
        self._errors = 0
        # Raised once the run has its outcome: the end of the process, such as KeyboardInterrupt.
        self._raises: BaseException | None = None

    async def run(self) -> None:
        act = self._act
        if not act.hookless and (act.has_hooks("activate") or act.has_hooks("run_start")):
            try:
                await _start(act)
            except BaseException as error:
                self._handle(error)
        while not act.left:
            if act.stopping is not None and await _hand_over(act):
                break
            try:
                if act.view.tree.apart and _checks_budget(act):
                    await act.env.children.read_tree_usage(act)
                move = next_move(act.view, act.rules, act.now)
                if act.lacks_tools and (type(move) is Infer or not act.has_asked_sources):
                    await load_sources(act)
                if (performed := _PERFORM[type(move)](act, move)) is not None:
                    await performed
            except BaseException as error:
                self._handle(error)
                act.now = act.clock.now()
        if act.env.store.durable and act.cancellation.is_pending:
            await act.cancellation.absorb()
        if self._raises is not None:
            raise self._raises
        if act.cancellation.by_caller:
            raise asyncio.CancelledError

    def _handle(self, error: BaseException) -> None:
        """Turn an error of a move into the run's ending; raises errors that can't be recorded."""
        act = self._act
        if act.stopping == "now":
            raise error
        is_cancel = isinstance(error, asyncio.CancelledError)
        is_started = act.draft.claim is None
        if isinstance(error, StoreError) or not (is_started or (is_cancel and act.cancellation.requested)):
            # The store can't record a failure, or has no run yet: the caller gets the error.
            raise error
        if is_cancel:
            self._handle_cancel()
            return
        if isinstance(error, GeneratorExit):
            raise error  # The coroutine is being closed and can't await any more.
        if not isinstance(error, Exception):
            self._raises = error
        self._fail(error)

    def _handle_cancel(self) -> None:
        act, cancellation = self._act, self._act.cancellation
        requested = cancellation.requested
        cancellation.take_back()
        if cancellation.take_callers():
            if act.view.run.cancel is None:
                act.set_run(cancel="the caller was cancelled")
        elif not requested:
            self._fail(asyncio.CancelledError("an awaited task was cancelled, and nobody cancelled the run"))

    def _fail(self, error: BaseException) -> None:
        """End the run with an error; a second error while it ends is only logged."""
        act = self._act
        if isinstance(act.view.run.ending, Failed):
            self._errors += 1
            if self._errors > MAX_ERRORS_WHILE_ENDING:
                raise error
            note_error(act, error, "while the run was ending")
        else:
            act.failure = error
            message = disclose(act, error, "the loop").partition(": ")[2]
            act.set_run(ending=Failed(type(error).__name__, message))


async def _start(act: Activation) -> None:
    run = act.view.run
    if not run.steps and run.needs is None:  # A run that was paused before its first step was activated then.
        await run_phase(act, "activate", act.agent.hooks["activate"], Step)
    await run_phase(act, "run_start", act.agent.hooks["run_start"], Step)


def _checks_budget(act: Activation) -> bool:
    """Whether the next move depends on the usage of the tree."""
    run = act.view.run
    return run.stage == "between" and run.steps > 0 and run.ending is None


async def _hand_over(act: Activation) -> bool:
    """Release a stopping run at a step boundary: it is due at once for another process."""
    run = act.view.run
    if act.stopping == "now":
        raise asyncio.CancelledError
    if act.attached or run.stage != "between" or run.ending is not None or run.cancel is not None:
        return False
    await flush(act, release=True)
    act.left = True
    return True


Perform = Callable[[Activation, Any], Awaitable[None] | None]


def _timed(perform: Callable[[Activation, Any], Awaitable[None]]) -> Perform:
    """Read the clock after a move that takes time."""

    async def performed(act: Activation, move: Any) -> None:
        await perform(act, move)
        act.now = act.clock.now()

    return performed


# Performers that aren't `_timed` take no time, or read the clock themselves. One that needs no await returns None.
_PERFORM: dict[type[Move], Perform] = {
    Infer: infer,
    Execute: execute,
    Await: await_calls,
    EndStep: end_step,
    Finish: finish,
    Recover: _timed(recover),
    AfterCalls: _timed(run_after_tool),
    Drop: _timed(drop),
    Overdue: _timed(resolve_overdue),
    Interrupt: _timed(interrupt),
    Take: _timed(take),
    SwitchAgent: _timed(switch_agent),
    PassOn: _timed(pass_on),
    Poll: _timed(poll),
    SuspendRun: suspend,
    Pause: pause,
    WaitForTasks: wait_for_tasks,
}
