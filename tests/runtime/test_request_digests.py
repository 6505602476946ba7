"""A request's id with a digest: repeated it has no effect, with another digest it is refused, by every verb."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import Hold, soon
from wakeful import (
    Agent,
    FunctionModel,
    MemoryStore,
    ModelError,
    ModelRequest,
    RunFailed,
    Runtime,
    SqliteStore,
    call,
    tool,
)
from wakeful.errors import RequestReused, TicketClosed
from wakeful.types import Request

FIRST, SAME, OTHER = Request("q", "abc"), "q", Request("q", "xyz")


@tool(approval=True)
async def act() -> str:
    """Act, if somebody approves."""
    return "acted"


class Office:
    """A runtime with agents that answer, ask and fail. `broken` says whether the last ones still do."""

    def __init__(self, store: Any) -> None:
        self.broken = True
        self.hold = Hold()
        agents = [
            Agent("echo", model=FunctionModel(lambda request: f"you said {request.messages[-1].text}")),
            Agent("asks", model=FunctionModel(self._ask), tools=[act]),
            Agent("fails", model=FunctionModel(self._fail)),
            Agent("holds", model=FunctionModel(self._hold)),
        ]
        self.runtime = Runtime(agents, store=store)

    def _ask(self, request: ModelRequest) -> Any:
        return "done" if request.messages[-1].role == "tool" else call("act")

    def _fail(self, request: ModelRequest) -> Any:
        if self.broken:
            raise ModelError("it broke")
        return "mended"

    async def _hold(self, request: ModelRequest) -> str:
        await self.hold.here()
        return "held"

    async def ticket(self) -> str:
        """The open ticket of a run that asks."""
        result = await self.runtime.run("asks", "go", thread="asks", request_id="ask")
        (ticket,) = result.tickets or await self.runtime.tickets.list(result.run_id)
        return ticket.id

    async def failed(self) -> str:
        """A failed run, which won't fail again."""
        with pytest.raises(RunFailed) as caught:
            await self.runtime.run("fails", "go", thread="fails", request_id="fail")
        self.broken = False
        return caught.value.result.run_id


Opens = Callable[[], Any]
Verb = Callable[[Office, Any], Awaitable[Any]]


@pytest.fixture(params=["memory", "sqlite"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Opens:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Office]:
        office = Office(MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "app.db"))
        async with office.runtime:
            yield office

    return opened


async def _run(office: Office, request: Any) -> str:
    return (await office.runtime.run("echo", "go", thread="t", request_id=request)).run_id


async def _start(office: Office, request: Any) -> str:
    handle = await office.runtime.start("echo", "go", thread="t", request_id=request)
    return (await handle.result()).run_id


async def _start_later(office: Office, request: Any) -> str:
    return (await office.runtime.start("echo", "go", thread="t", delay=3600, request_id=request)).run_id


async def _send(office: Office, request: Any) -> str:
    return (await office.runtime.send("t", "go", agent="echo", request_id=request)).message_id


async def _spawn(office: Office, request: Any) -> str:
    return (await office.runtime.tasks.spawn("echo", "go", request_id=request)).id


async def _spawn_owned(office: Office, request: Any) -> str:
    return (await office.runtime.tasks.spawn("echo", "go", thread="t", request_id=request)).id


async def _fork(office: Office, request: Any) -> str:
    await office.runtime.run("echo", "go", thread="t", request_id="base")
    return await office.runtime.threads.fork("t", request_id=request)


async def _schedule(office: Office, request: Any) -> Any:
    return await office.runtime.schedules.put("s", "echo", "go", delay=3600, request_id=request)


VERBS: dict[str, Verb] = {
    "run": _run,
    "start": _start,
    "start later": _start_later,
    "send": _send,
    "spawn": _spawn,
    "spawn owned": _spawn_owned,
    "fork": _fork,
    "schedule": _schedule,
}


@pytest.mark.parametrize("name", VERBS)
async def test_reused_request_is_refused_by_verb(opens: Opens, name: str) -> None:
    verb = VERBS[name]
    async with opens() as office:
        first = await soon(verb(office, FIRST))
        assert await soon(verb(office, FIRST)) == first
        assert await soon(verb(office, SAME)) == first
        with pytest.raises(RequestReused, match="'q' was made before"):
            await soon(verb(office, OTHER))


async def test_reused_request_is_refused_while_first_one_waits(opens: Opens) -> None:
    async with opens() as office:
        runtime, hold = office.runtime, office.hold
        running = asyncio.create_task(runtime.run("holds", "go", thread="t"))
        await soon(hold.reached.wait())
        calls = [
            asyncio.create_task(runtime.run("holds", "more", thread="t", request_id=request))
            for request in (FIRST, OTHER, FIRST, OTHER)
        ]
        while await runtime.store.item("q") is None:
            await asyncio.sleep(0)
        hold.released.set()
        done = await soon(asyncio.gather(*calls, return_exceptions=True))
        assert sorted(type(one).__name__ for one in done) == [*["RequestReused"] * 2, *["RunResult"] * 2]
        await running


async def test_reused_request_of_a_retry_is_refused(opens: Opens) -> None:
    async with opens() as office:
        run_id = await office.failed()
        first = await office.runtime.runs.retry(run_id, request_id=FIRST)
        assert first.text == "mended"
        assert await office.runtime.runs.retry(run_id, request_id=SAME) == first
        with pytest.raises(RequestReused):
            await office.runtime.runs.retry(run_id, request_id=OTHER)
        other = await office.runtime.run("echo", "go")
        with pytest.raises(RequestReused):
            await office.runtime.runs.retry(other.run_id, request_id=FIRST)


async def test_reused_request_of_an_answer_is_refused(opens: Opens) -> None:
    async with opens() as office:
        ticket = await office.ticket()
        first = await office.runtime.tickets.answer(ticket, True, request_id=FIRST)
        assert first.text == "done"
        for same in (FIRST, SAME):
            assert (await office.runtime.tickets.answer(ticket, True, request_id=same)).text == "done"
        with pytest.raises(RequestReused):
            await office.runtime.tickets.answer(ticket, False, request_id=OTHER)
        with pytest.raises(RequestReused):
            await office.runtime.resume(first.run_id, answers={ticket: False}, request_id=OTHER)
        with pytest.raises(TicketClosed):
            await office.runtime.tickets.answer(ticket, False, request_id="another")


async def test_reused_request_of_a_reassignment_is_refused(opens: Opens) -> None:
    async with opens() as office:
        ticket = await office.ticket()
        await office.runtime.tickets.reassign(ticket, "ann", request_id=FIRST)
        assert (await office.runtime.tickets.reassign(ticket, "ann", request_id=SAME)).assignee == "ann"
        with pytest.raises(RequestReused):
            await office.runtime.tickets.reassign(ticket, "bob", request_id=OTHER)
        assert (await office.runtime.tickets.get(ticket)).assignee == "ann"


async def test_schedule_request_is_kept_when_nothing_changes(opens: Opens) -> None:
    async with opens() as office:
        first = await _schedule(office, None)
        assert await _schedule(office, FIRST) == first
        with pytest.raises(RequestReused):
            await office.runtime.schedules.put("s", "echo", "else", delay=3600, request_id=OTHER)
        with pytest.raises(RequestReused):
            await office.runtime.schedules.put("other", "echo", "go", delay=3600, request_id=FIRST)
