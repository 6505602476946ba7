"""Input at bad moments: while a run ends, while it suspends, before its sender has the receipt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from loop.helpers import (
    Hold,
    Scripted,
    Spy,
    assert_settled,
    soon,
    spying,
    until_idle,
)
from wakeful import Agent, MemoryStore, Plugin, Runtime, SqliteStore, call
from wakeful.plugins import RunEnd
from wakeful.stores import Claims, Commit, Committed, ThreadView

from .test_busy_threads import busy, echo, echoing, said


class Lingers(Plugin):
    """Waits in `run_end`, the first time."""

    def __init__(self) -> None:
        self.hold = Hold()

    async def run_end(self, ctx: RunEnd) -> None:
        if not self.hold.times:
            await self.hold.here()


async def test_steering_at_run_end_is_handled_once() -> None:
    plugin = Lingers()
    runtime = echoing(plugins=[plugin])
    task = await busy(runtime, plugin.hold)
    await runtime.send("t", "wait", policy="steer")
    plugin.hold.released.set()
    result = await soon(task)
    assert result.text == "you said wait"
    await until_idle(runtime)
    assert await said(runtime) == ["one", "wait"]
    assert [m.role for m in await runtime.threads.messages("t")] == ["user", "assistant", "user", "assistant"]
    await assert_settled(runtime, "t")


async def test_answer_during_suspension_returns_to_its_caller(scripted: Scripted) -> None:
    plugin, spy = Lingers(), Spy()
    tools = [spying(spy, "ask", approval=True)]
    runtime = Runtime([Agent("agent", model=scripted(call("ask"), "done"), tools=tools, plugins=[plugin])])
    task = await busy(runtime, plugin.hold)
    (run,) = await runtime.runs.list(thread="t")
    (ticket,) = await runtime.store.tickets(run.id)
    answering = asyncio.create_task(runtime.resume(run.id, ticket.approve()))
    await asyncio.sleep(0)
    plugin.hold.released.set()
    result = await soon(answering)
    assert (result.status, result.text, spy.ran) == ("done", "done", ["ask"])
    await soon(task)
    await until_idle(runtime)
    await assert_settled(runtime, "t")


async def test_unacknowledged_input_is_taken_once() -> None:
    told, answering = Hold(), Hold()

    class Late(MemoryStore):
        async def commit(self, commit: Commit) -> Committed:
            committed = await super().commit(commit)
            if commit.inbox:
                await told.here()
            return committed

    runtime = Runtime([Agent("agent", model=echo(answering))], store=Late())
    sending = asyncio.create_task(runtime.send("t", "psst", agent="agent", policy="steer"))
    await soon(told.reached.wait())
    running = await busy(runtime, answering)
    told.released.set()
    await soon(sending)
    answering.released.set()
    await soon(running)
    await until_idle(runtime)
    assert await said(runtime) == ["one", "psst"]
    await assert_settled(runtime, "t")


class Overtaken(SqliteStore):
    """Somebody else does something in the moment in which tickets are read for the first time."""

    meanwhile: Callable[[], Awaitable[Any]] | None = None

    async def tickets(self, *args: Any, **options: Any) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await super().tickets(*args, **options)


async def test_waiting_result_keeps_its_tickets(tmp_path: Path, scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(call("act"), "done"), tools=[spying(Spy(), "act", approval=True)])
    here = Runtime([agent], store=tmp_path / "app.db")
    asked = await here.run("agent", "go", thread="t")
    store = Overtaken(tmp_path / "app.db")
    store.meanwhile = lambda: here.resume(asked.run_id, asked.tickets[0].approve())
    there = Runtime([agent], store=store)
    result = await there.wait(asked.run_id)
    assert (result.status, result.text, store.meanwhile) == ("done", "done", None)
    await there.close()
    await here.close()


Act = Callable[[], Awaitable[Any]]


class LooksAway(SqliteStore):
    """A store in which things happen behind the back of one that claims: before it reads the thread, and after."""

    def __init__(self, path: Path, before: Act, after: Act) -> None:
        super().__init__(path)
        self._acts: list[Act] = []
        self._planned = [after, before]

    async def claim(self, worker_id: str, **options: Any) -> Claims:
        claims = await super().claim(worker_id, **options)
        if claims.claimed and self._planned:
            await self._planned.pop()()
            self._acts = self._planned
        return claims

    async def load(self, thread_id: str) -> ThreadView | None:
        view = await super().load(thread_id)
        if self._acts:
            await self._acts.pop()()
        return view


async def test_input_during_delayed_release_is_not_delayed(tmp_path: Path) -> None:
    agent = Agent("agent", model=echo())
    front = Runtime([agent], store=tmp_path / "a.db", execute=False)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    await front.send("t", "tomorrow", agent="agent", at=tomorrow)
    await front.send("t", "never mind", agent="agent")
    _, mistake = await front.mail.pending("t")
    store = LooksAway(
        tmp_path / "a.db",
        before=lambda: front.mail.retract(mistake.id),
        after=lambda: front.send("t", "instead", agent="agent"),
    )
    async with Runtime([agent], store=store) as worker:
        await soon(_answered(worker))
        assert await said(worker) == ["instead"]
        assert [item.text for item in await worker.mail.pending("t")] == ["tomorrow"]
    await front.close()


async def _answered(runtime: Runtime) -> None:
    while len(await runtime.threads.messages("t")) < 2:
        await asyncio.sleep(0.01)
