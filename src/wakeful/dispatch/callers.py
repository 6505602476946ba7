"""Callers that wait for runs: they get failures, which are logged otherwise."""

from __future__ import annotations

import asyncio
from typing import Any

from ..types.runs import Failed
from .dispatcher import Dispatcher
from .host import log_failure
from .results import RunResult
from .waits import settle, wait_for_run

__all__ = ["Caller", "await_run", "check_result", "raise_if_failed"]


class Caller:
    """A caller that waits for the runs that it opens, inside a `with` block."""

    __slots__ = ("_dispatch", "_is_closed", "_runs")

    def __init__(self, dispatch: Dispatcher, *runs: str) -> None:
        self._dispatch = dispatch
        self._is_closed = False
        self._runs: tuple[str, ...] = ()
        for run_id in runs:
            self.opened(run_id)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop waiting."""
        self._is_closed = True
        for run_id in self._runs:
            self._dispatch.remove_caller(run_id)
        self._runs = ()

    def leave(self, work: asyncio.Task[RunResult]) -> None:
        """Stop waiting for the run of this task; log its failure if it has failed."""
        self.close()
        if work.done() and not work.cancelled() and work.exception() is None:
            result = work.result()
            if isinstance(result.termination, Failed):
                log_failure(result.run_id, result.agent_id, result.termination)

    def opened(self, run_id: str) -> None:
        """Wait for this run, too."""
        if self._is_closed:
            return
        self._runs = (*self._runs, run_id)
        self._dispatch.add_caller(run_id)


async def check_result(dispatch: Dispatcher, result: RunResult, *, check: bool) -> RunResult[Any]:
    """Return a result once its tree is quiet, or the grace of a cancellation is over.

    With `check`, raise `RunFailed` if the run failed.
    """
    if result.tasks and result.status == "done":
        result = await settle(dispatch, result)
    if check:
        raise_if_failed(dispatch, result)
    return result


def raise_if_failed(dispatch: Dispatcher, result: RunResult) -> None:
    """Raise `RunFailed` if the run failed, from its exception if that is known."""
    if type(result.termination) is Failed:
        raise result.failure() from dispatch.failure(result.run_id)


async def await_run(dispatch: Dispatcher, run_id: str, *, check: bool) -> RunResult[Any]:
    """Wait for a run as `wait_for_run` does, for a caller that gets its failure."""
    with Caller(dispatch, run_id):
        result = await wait_for_run(dispatch, run_id)
    return await check_result(dispatch, result, check=check)
