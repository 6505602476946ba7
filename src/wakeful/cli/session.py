"""Runs for a terminal: started from the main thread, shown as they happen, cancelled by ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing, contextmanager
from types import TracebackType
from typing import Any, NoReturn, cast

from ..errors import InputRetracted
from ..runtime import Runtime
from ..types.events import AnyEvent, RunFinish
from ..types.runs import RunRecord, Waiting
from ..types.tickets import Decision, Ticket
from .exit_codes import ExitCode
from .loop_thread import LoopThread

__all__ = ["Session", "Turn"]


class Turn:
    """The state of one prompt, from its run's events."""

    def __init__(self) -> None:
        self.run_id = ""
        self.thread_id = ""
        self.agent_id = ""
        self.finish: RunFinish | None = None
        # The run that the prompt queues behind; whether ctrl-C was pressed, and whether it withdrew the prompt.
        self.behind: RunRecord | None = None
        self.cancelled = self.withdrawn = False
        self.opened = asyncio.Event()
        self.finished = asyncio.Event()
        # The reason why the run waits, and the tickets of it and of runs below it.
        self.waiting: Waiting | None = None
        self.tickets: tuple[Ticket, ...] = ()

    def see(self, event: AnyEvent) -> None:
        """Record an event; events of agents below are ignored."""
        if event.run.depth:
            return
        self.run_id, self.thread_id, self.agent_id = event.run_id, event.thread_id, event.run.agent_id
        self.behind = None
        self.opened.set()
        match event:
            case RunFinish():
                self.finish = event
                self.finished.set()
            case _:
                pass


class Session:
    """A runtime on a loop thread. `show` gets every event, `queued` the run that a prompt queues behind;
    `cancelling` is called once on ctrl-C."""

    def __init__(
        self,
        runtime: Runtime,
        show: Callable[[AnyEvent], None],
        queued: Callable[[RunRecord], None],
        cancelling: Callable[[Turn], None],
    ) -> None:
        self._runtime = runtime
        self._show = show
        self._queued = queued
        self._cancelling = cancelling
        self._loop = LoopThread()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._loop.start(self._runtime.close()).result()
            self._loop.close()
        except KeyboardInterrupt:
            _leave_at_once()

    def prompt(self, agent: str, text: str, thread: str | None) -> Turn:
        """Run an agent until its run waits or is done."""
        turn = Turn()
        self._wait(self._prompt(turn, agent, text, thread), turn)
        return turn

    def answer(self, turn: Turn, decision: Decision) -> None:
        """Answer a ticket of a waiting turn, and continue its run."""
        self._wait(self._answer(turn, decision), turn)

    def waiting(self, thread: str) -> Turn | None:
        """The thread's waiting run, if there is one."""
        return self._loop.start(self._waiting(thread)).result()

    def last_run(self, thread: str) -> RunRecord | None:
        """The thread's latest run."""
        runs = self._loop.start(self._runtime.runs.list(thread=thread, limit=1)).result()
        return runs[0] if runs else None

    def _wait(self, work: Coroutine[Any, Any, None], turn: Turn) -> None:
        pressed = False

        def cancel() -> None:
            nonlocal pressed
            if pressed:
                _leave_at_once()
            pressed = True
            self._loop.start(self._cancel(turn))

        with _on_interrupt(cancel):
            self._loop.start(work).result()

    async def _cancel(self, turn: Turn) -> None:
        self._cancelling(turn)
        turn.cancelled = True
        await turn.opened.wait()
        await self._runtime.cancel(turn.run_id, "cancelled from the terminal")

    async def _prompt(self, turn: Turn, agent: str, text: str, thread: str | None) -> None:
        if thread is not None and await self._open_run(thread) is not None:
            turn.thread_id = thread
            after = await self._runtime.store.head(thread)
            await self._follow(turn, after, self._take_turn(turn, agent, text))
            return
        async with aclosing(_closable(self._runtime.stream(agent, text, thread=thread, check=False))) as events:
            async for event in events:
                turn.see(event)
                self._show(event)
        await self._ask(turn)

    async def _take_turn(self, turn: Turn, agent: str, text: str) -> None:
        """Send a prompt to a thread with an open run: it replaces that run, joins it, or queues behind it."""
        handle = await self._runtime.start(agent, text, thread=turn.thread_id)
        turn.run_id, turn.agent_id = handle.run_id, agent
        if any(one.id == handle.run_id for one in await self._runtime.mail.pending(turn.thread_id)):
            turn.behind = await self._open_run(turn.thread_id)
        if turn.behind is not None:
            self._queued(turn.behind)
        turn.opened.set()
        try:
            await handle.result(check=False)
        except InputRetracted:
            if not turn.cancelled:
                raise
            turn.withdrawn = True

    async def _open_run(self, thread: str) -> RunRecord | None:
        runs = await self._runtime.runs.list(thread=thread, limit=1)
        return next((run for run in runs if run.status != "done"), None)

    async def _answer(self, turn: Turn, decision: Decision) -> None:
        async def resume() -> None:
            await self._runtime.resume(turn.run_id, decision, check=False)

        await self._follow(turn, turn.finish.seq if turn.finish is not None else 0, resume())

    async def _follow(self, turn: Turn, after: int, work: Coroutine[Any, Any, None]) -> None:
        """Show the events of some work on the turn's thread, after a cursor."""
        # The reader subscribes before the run continues.
        reader = asyncio.create_task(self._read(turn, after))
        try:
            await work
            if turn.withdrawn:
                return
            await self._ask(turn)
            # A run below may have been answered and ask again, without an event of this run.
            last = await self._last_finish(turn, after)
            while last and (turn.finish is None or turn.finish.seq < last) and not reader.done():
                turn.finished.clear()
                seen = asyncio.create_task(turn.finished.wait())
                await asyncio.wait([reader, seen], return_when=asyncio.FIRST_COMPLETED)
                seen.cancel()
        finally:
            reader.cancel()
            await asyncio.wait([reader])

    async def _last_finish(self, turn: Turn, after: int) -> int:
        log = self._runtime.events(turn.thread_id, after=after, follow=False)
        return max([e.seq async for e in log if isinstance(e, RunFinish) and e.run_id == turn.run_id], default=0)

    async def _ask(self, turn: Turn) -> None:
        """Read the reason why the run waits."""
        turn.waiting = (await self._runtime.runs.get(turn.run_id)).waiting
        turn.tickets = () if turn.waiting is None else (await self._runtime.runs.result(turn.run_id)).tickets

    async def _read(self, turn: Turn, after: int) -> None:
        """Show the events of the thread after a cursor."""
        async with aclosing(_closable(self._runtime.events(turn.thread_id, after=after))) as events:
            async for event in events:
                await turn.opened.wait()
                if event.run.root_run_id == turn.run_id:
                    turn.see(event)
                    self._show(event)

    async def _waiting(self, thread: str) -> Turn | None:
        runs = await self._runtime.runs.list(thread=thread, status="waiting", limit=1)
        if not runs:
            return None
        turn = Turn()
        async for event in self._runtime.events(thread, after=runs[0].first_seq - 1, follow=False):
            if event.run_id == runs[0].id:
                turn.see(event)
        await self._ask(turn)
        return turn


@contextmanager
def _on_interrupt(handle: Callable[[], None]) -> Generator[None, None, None]:
    """Call a function on ctrl-C, in place of a KeyboardInterrupt that could be raised anywhere.

    Where ctrl-C is ignored, as in a shell's background, it stays ignored.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda _signal, _frame: handle())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _closable(events: Any) -> AsyncGenerator[AnyEvent]:
    return cast("AsyncGenerator[AnyEvent]", events)


def _leave_at_once() -> NoReturn:
    """End the process without cleanup; committed work is safe."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ExitCode.CANCELLED)
