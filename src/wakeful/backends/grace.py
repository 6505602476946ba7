"""Bounded waits: a backend's work gets the cancel grace to stop, and is then abandoned."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ..errors import explain
from .contract import can_abort
from .requests import abort_request

if TYPE_CHECKING:
    from ..loop import Activation

__all__ = ["abandon", "abort", "retrieve_exception", "wait"]

_log = logging.getLogger("wakeful")


async def abort(act: Activation) -> None:
    """Stop the remote work of a run within the cancel grace; a failure is logged, not raised."""
    backend = act.agent.backend
    if backend is None or not can_abort(backend.capabilities.cancellation):
        return
    try:
        await _run_within_grace(act, backend.abort(abort_request(act)))
    except Exception as error:
        _log.warning("agent %r: aborting run %s failed: %s", act.agent.id, act.identity.run_id, explain(error))


async def _run_within_grace(act: Activation, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine, and abandon it when the grace is over."""
    task = asyncio.get_running_loop().create_task(work)
    if not await wait(act, task, act.env.grace):
        abandon(act, task)
        raise TimeoutError(f"it took longer than the cancel grace of {act.env.grace:g} s")
    task.result()


async def wait(act: Activation, task: asyncio.Task[Any], seconds: float | None) -> bool:
    """Wait up to `seconds` by the runtime's clock; returns whether the task is done."""
    if seconds is None:
        await asyncio.wait({task})
        return True
    late: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = act.clock.call_later(seconds, _resolve, late)
    try:
        await asyncio.wait({task, late}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        late.cancel()
    return task.done()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def abandon(act: Activation, task: asyncio.Task[Any]) -> None:
    """Cancel a task without waiting for it; it counts as abandoned until it ends."""
    if not task.cancelling():
        task.cancel()
    act.env.abandoned.add(task)
    task.add_done_callback(act.env.abandoned.discard)
    task.add_done_callback(retrieve_exception)


def retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Mark a task's exception as seen."""
    if not task.cancelled():
        task.exception()
