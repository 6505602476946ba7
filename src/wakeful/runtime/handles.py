"""Handles of work that was started: it is in the store and continues without its caller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct

from ..dispatch import RunResult, cancel, cancel_task, find_task, wait_for_run
from ..types.content import require_text
from ..types.events import AnyEvent
from ..types.runs import TaskRecord
from .events import thread_events
from .scope import Scope

__all__ = ["RunHandle", "TaskHandle"]


class RunHandle(Struct, frozen=True, eq=False):
    """A started run."""

    run_id: str
    thread_id: str
    _scope: Scope

    async def result(self) -> RunResult:
        """Wait until the run waits or is done, whichever process executes it."""
        self._scope.bind()
        return await wait_for_run(self._scope.dispatch, self.run_id)

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

    async def record(self) -> TaskRecord:
        """The task's record as it is now."""
        self._scope.bind()
        return await find_task(self._scope.env.store, self.id)

    async def result(self) -> RunResult:
        """Wait until the task is done or waits for a person, whichever process executes it."""
        task = await self.record()
        await self._scope.dispatch.start_if_due(task.target_thread)
        return await wait_for_run(self._scope.dispatch, task.target)

    async def value(self) -> Any:
        """Wait for the task's value: a function's return value, or an agent's typed output or text. Raises
        `RunFailed` if it failed."""
        task, result = await self.record(), await self.result()
        result.raise_for_failure()
        if task.function is not None:
            return result.raw
        return result.text if result.output is None else result.output

    async def cancel(self, reason: str = "cancelled by request") -> bool:
        """Cancel the task with everything below it; False if it was done before."""
        reason = require_text(reason, "the reason to cancel")
        return await cancel_task(self._scope.dispatch, await self.record(), reason)
