"""Handles of work that was started: it is in the store and continues without its caller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Generic

from msgspec import Struct

from ..dispatch import RunResult, await_run, cancel, cancel_task, find_task
from ..types.content import require_text
from ..types.events import AnyEvent
from ..types.generics import Output
from ..types.runs import TaskRecord
from .events import thread_events
from .scope import Scope

__all__ = ["RunHandle", "TaskHandle"]


class RunHandle(Struct, Generic[Output], frozen=True, eq=False):
    """A started run."""

    run_id: str
    thread_id: str
    _scope: Scope

    def __repr__(self) -> str:
        return f"RunHandle(run_id={self.run_id!r}, thread_id={self.thread_id!r})"

    async def result(self, *, check: bool = True) -> RunResult[Output]:
        """Wait until the run waits or is done, whichever process executes it.

        Raises `RunFailed` if the run failed; with `check=False` the result says so.
        """
        self._scope.bind()
        return await await_run(self._scope.dispatch, self.run_id, check=check)

    async def cancel(self, reason: str = "cancelled by request") -> bool:
        """Cancel the run with everything below it; False if it was done before."""
        self._scope.bind()
        reason = require_text(reason, "the reason to cancel")
        return await cancel(self._scope.dispatch, self.run_id, reason)

    def events(self, *, after: int | str = 0) -> AsyncIterator[AnyEvent]:
        """The thread's events after a cursor, as they happen."""
        return thread_events(self._scope, self.thread_id, after=after)


class TaskHandle(Struct, frozen=True, eq=False):
    """A started task. `thread_id` is the thread that owns it."""

    id: str
    thread_id: str | None
    _scope: Scope

    def __repr__(self) -> str:
        return f"TaskHandle(id={self.id!r}, thread_id={self.thread_id!r})"

    async def record(self) -> TaskRecord:
        """The task's record as it is now."""
        self._scope.bind()
        return await find_task(self._scope.env.store, self.id)

    async def result(self, *, check: bool = True) -> RunResult[Any]:
        """Wait until the task is done or waits for a person, whichever process executes it.

        Raises `RunFailed` if the task failed; with `check=False` the result says so.
        """
        task, dispatch = await self.record(), self._scope.dispatch
        await dispatch.start_if_due(task.target_thread)
        return await await_run(dispatch, task.target, check=check)

    async def value(self) -> Any:
        """Wait for the task's value: a function's return value, or an agent's output. Raises `RunFailed` if it
        failed, was stopped or cancelled."""
        task, result = await self.record(), await self.result()
        result.raise_for_failure()
        return result.output if task.function is None else result.raw

    async def cancel(self, reason: str = "cancelled by request") -> bool:
        """Cancel the task with everything below it; False if it was done before."""
        reason = require_text(reason, "the reason to cancel")
        return await cancel_task(self._scope.dispatch, await self.record(), reason)
