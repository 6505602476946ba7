"""Callers of this process whose input is queued on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ..errors import Conflict, InputRetracted, RuntimeClosed, StaleFence
from ..types.inbox import InboxItem
from .results import RunResult

__all__ = ["Turns", "retracted"]


class Turns:
    """The futures of waiting callers, by the id of their inbox item."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[RunResult]] = {}

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._waiting

    def find(self, item_id: str) -> asyncio.Future[RunResult] | None:
        """The future of an item that a caller waits for."""
        return self._waiting.get(item_id)

    def add(self, item_id: str) -> asyncio.Future[RunResult]:
        """Register a caller; `remove` it when it stops waiting."""
        turn: asyncio.Future[RunResult] = asyncio.get_running_loop().create_future()
        turn.add_done_callback(_retrieve)
        self._waiting[item_id] = turn
        return turn

    def remove(self, item_id: str) -> None:
        """Forget a caller."""
        self._waiting.pop(item_id, None)

    def retract(self, thread_id: str, item_id: str) -> None:
        """Raise `InputRetracted` in the caller that waits for an item."""
        turn = self._waiting.get(item_id)
        if turn is not None and not turn.done():
            turn.set_exception(_retracted(thread_id, item_id))

    async def run(self, item: InboxItem, work: Callable[[], Coroutine[Any, Any, RunResult | None]]) -> None:
        """Do the work of an item and pass the result or the error to its caller.

        Errors are raised here too, so that the owner of the claim releases it. `Conflict` and `StaleFence` aren't
        passed on: the item will be run by another owner.
        """
        turn = self._waiting.get(item.id)
        try:
            result = await work()
        except (Conflict, StaleFence):
            raise
        except Exception as error:
            if turn is not None and not turn.done():
                turn.set_exception(error)
            raise
        if result is not None and turn is not None and not turn.done():
            turn.set_result(result)

    def close(self) -> None:
        """Raise `RuntimeClosed` in every waiting caller."""
        for turn in self._waiting.values():
            if not turn.done():
                turn.set_exception(RuntimeClosed("the runtime was closed; the input waits in its thread's inbox"))


def _retrieve(turn: asyncio.Future[RunResult]) -> None:
    """Mark the exception as retrieved: it is raised where the turn is awaited."""
    if not turn.cancelled():
        turn.exception()


def retracted(item: InboxItem) -> InputRetracted:
    """The error for callers whose input was retracted."""
    return _retracted(item.thread_id, item.id)


def _retracted(thread_id: str, item_id: str) -> InputRetracted:
    return InputRetracted(f"input {item_id!r} of thread {thread_id!r} was retracted before it ran")
