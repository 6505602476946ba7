"""Input that waits its turn on a thread, and those in this process who wait for what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import Conflict, InputRetracted, RuntimeClosed, StaleFence, UnknownInput
from ..messaging import retract
from ..stores import InboxItem
from ._results import NewRun, RunResult, item_of
from ._trees import settle
from ._waiting import Watch

if TYPE_CHECKING:
    from ._local import Dispatcher

__all__ = ["Turns", "retracted"]


class Turns:
    """Those who wait here for input of one tenant, by the input's id."""

    def __init__(self, dispatch: Dispatcher) -> None:
        self._dispatch = dispatch
        self._waiting: dict[str, asyncio.Future[RunResult]] = {}

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._waiting

    async def wait(self, new: NewRun, begun: asyncio.Future[None] | None) -> RunResult:
        """Wait in the thread's inbox for the run that takes this input, and for what it comes to."""
        item = item_of(new, "queue")
        if (same := self._waiting.get(item.id)) is not None:
            try:
                return await asyncio.shield(same)
            except _CallerLeft:
                return await self.wait(new, begun)  # The input is still there: wait for it from here on.
        turn: asyncio.Future[RunResult] = asyncio.get_running_loop().create_future()
        turn.add_done_callback(_heard)
        self._waiting[item.id] = turn
        try:
            result = await self._turn_of(new, item, turn, begun)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self._withdraw(item, new)
                error = _CallerLeft()
            if not turn.done():
                turn.set_exception(error)
            raise
        finally:
            self._waiting.pop(item.id, None)
        if not turn.done():
            turn.set_result(result)
        return await self._dispatch.whole(result)

    async def _turn_of(
        self,
        new: NewRun,
        item: InboxItem,
        turn: asyncio.Future[RunResult],
        begun: asyncio.Future[None] | None,
    ) -> RunResult:
        dispatch = self._dispatch
        await dispatch.check_room()
        if dispatch.execute or not await dispatch.offer(item, ask=True):
            await dispatch.deliver(item)
        if begun is not None and not begun.done():
            begun.set_result(None)
        if dispatch.execute:
            await dispatch.pump(new.thread_id, at_once=dispatch.within())
        with Watch(dispatch, new.thread_id) as watch:
            while not turn.done():
                if new.thread_id in dispatch.active:
                    await asyncio.wait({turn}, timeout=1)  # Its end is heard of.
                else:
                    await watch.news(turn)
                run_id = None if turn.done() else await self._begun(item)
                if not turn.done() and new.thread_id not in dispatch.active:
                    if run_id is not None:
                        return await settle(dispatch, run_id, watch)
                    if dispatch.execute:
                        await dispatch.pump(new.thread_id, at_once=dispatch.within())
        return turn.result()

    async def _begun(self, item: InboxItem) -> str | None:
        """The run that took an input in, or would have, where its thread was deleted. A caller whose input was
        retracted is told that there is nothing to wait for."""
        stored = await self._dispatch.env.store.item(item.id)
        if stored is not None and stored.status == "retracted":
            raise retracted(stored)
        return item.run_id if stored is None else stored.taken_by

    def withdrawn(self, thread_id: str, item_id: str) -> None:
        """Input was taken back: who waits for it here is told, and a run of the thread looks at its inbox anew."""
        turn = self._waiting.get(item_id)
        if turn is not None and not turn.done():
            turn.set_exception(_retracted(thread_id, item_id))
        if thread_id in self._dispatch.active:
            self._dispatch.wake(thread_id)

    def _withdraw(self, item: InboxItem, new: NewRun) -> None:
        """The caller left: its run is cancelled if it had its turn, else its input is taken back. A request stays:
        whoever made it may make it again, and have what came of it."""
        act = self._dispatch.active.get(new.thread_id)
        if new.request_id is not None and (act is None or act.view.run.id != new.run_id):
            return
        if act is None:
            self._dispatch.track(asyncio.get_running_loop().create_task(self._take_back(item)))
        elif act.view.run.id == new.run_id:
            act.cancel("the caller was cancelled")
        elif item.id in act.view.inbox:
            del act.view.inbox[item.id]
            act.take(item.id)

    async def _take_back(self, item: InboxItem) -> None:
        with suppress(UnknownInput):  # A run has it.
            await retract(self._dispatch.env.store, item.id, None)

    async def take(self, item: InboxItem, work: Callable[[], Coroutine[Any, Any, RunResult | None]]) -> None:
        """Do the work that an input waits for, and tell who waits here for what comes of it. What goes wrong is
        raised all the same: who claimed the thread for it has to give it back."""
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

    def stop(self) -> None:
        """Tell everybody that nothing will be begun any more."""
        for turn in self._waiting.values():
            if not turn.done():
                turn.set_exception(RuntimeClosed("the runtime was closed; the input waits in its thread's inbox"))


def _heard(turn: asyncio.Future[RunResult]) -> None:
    """What went wrong in a turn is raised where it was waited for, and need not be reported again."""
    if not turn.cancelled():
        turn.exception()


def retracted(item: InboxItem) -> InputRetracted:
    """What is said to those who wait for input that was taken back."""
    return _retracted(item.thread_id, item.id)


def _retracted(thread_id: str, item_id: str) -> InputRetracted:
    return InputRetracted(f"input {item_id!r} of thread {thread_id!r} was retracted before it ran")


class _CallerLeft(Exception):
    """Whoever made a request first doesn't wait for it any more."""
