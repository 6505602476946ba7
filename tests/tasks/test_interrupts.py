"""Input that interrupts a run: what the run itself does is stopped, and what works for it in the background is the
next run's, as if that had begun it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from delegation.helpers import ask, told, until_true
from loop.helpers import Hold, Scripted, Spy, holding, outcomes, soon, spying, until
from messaging.helpers import send, to_agent
from postgres_server import fresh_database
from wakeful import Agent, Delegate, FunctionModel, MailPolicy, ModelRequest, RunHandle, Runtime, call, tool
from wakeful.stores import Commit
from wakeful.types.runs import Cancelled, NaturalEnd, RunRecord

from .conftest import Place
from .helpers import assert_quiet, task_of

WHY = "interrupted by new input"


class Office:
    """A lead with a worker in the background, who is at work, and something that keeps the lead itself busy."""

    def __init__(self, *then: Any, busy: Any = None, **options: Any) -> None:
        self.work, self.hold, self.asked = Hold(), Hold(), list[ModelRequest]()
        self._turns = [ask(background=True), busy or call("wait"), *then]
        self._options = options

    def lead(self, request: ModelRequest) -> Any:
        """The next answer of the lead."""
        self.asked.append(request)
        return self._turns[len(self.asked) - 1]

    def agents(self) -> list[Agent]:
        """The agents of the shop."""
        busy = [holding(self.hold, effect="pure")]
        return [
            Agent(
                "lead",
                FunctionModel(self.lead),
                tools=busy,
                delegates=[Delegate("worker", background=True), Delegate("aide")],
                **self._options,
            ),
            Agent("worker", FunctionModel(_worker), tools=[holding(self.work, "work", effect="pure")]),
            Agent("aide", FunctionModel(lambda _: call("wait")), tools=[holding(self.hold, effect="pure")]),
        ]

    async def begin(self, runtime: Runtime) -> RunHandle:
        """Let the lead begin, until it and the worker are busy."""
        handle = await runtime.start("lead", "go", thread="t")
        await soon(self.work.reached.wait())
        await soon(self.hold.reached.wait())
        return handle


def _worker(request: ModelRequest) -> Any:
    return "worked" if request.messages[-1].role == "tool" else call("work")


async def newest(runtime: Runtime) -> RunRecord:
    """The run that a thread began last."""
    return (await runtime.runs.list(thread="t"))[0]


async def handed_over(runtime: Runtime, first: str) -> RunRecord:
    """The run after the first, once it has its task."""
    async with asyncio.timeout(120):
        while (run := await newest(runtime)).id == first:
            await asyncio.sleep(0.002)
    task = await task_of(runtime)
    assert (task.status, task.run_id) == ("running", run.id)
    return run


async def assert_heard(runtime: Runtime, run: RunRecord) -> None:
    """The run got the report of the worker, and ended after that by itself."""
    await soon(runtime.wait(run.id))
    done = await runtime.runs.get(run.id)
    assert done.outcome is not None
    assert done.outcome.termination == NaturalEnd()
    (said,) = await told(runtime)
    assert 'kind="completed"' in said
    assert "worked" in said
    assert (await task_of(runtime)).status == "completed"
    await assert_quiet(runtime)


async def test_background_tasks_pass_to_next_run(place: Place) -> None:
    office = Office("waiting for it", "all done")
    async with Runtime(office.agents(), store=place()) as runtime:
        first = await office.begin(runtime)
        await soon(runtime.send("t", "new", policy="interrupt"))
        assert (await soon(first.result())).termination == Cancelled(WHY)
        assert await outcomes(runtime, first.run_id) == {"agent_run_worker": "ok", "wait": "cancelled"}
        second = await handed_over(runtime, first.run_id)
        # It doesn't end before what it was handed has.
        await until_true(lambda: _waits(runtime, second.id))
        office.work.released.set()
        await assert_heard(runtime, second)
        assert office.work.times == 1


async def _waits(runtime: Runtime, run_id: str) -> bool:
    waiting = (await runtime.runs.get(run_id)).waiting
    return waiting is not None and waiting.reason == "awaiting_tasks"


async def test_awaited_child_is_stopped_on_interrupt(place: Place) -> None:
    office = Office("waiting for it", "all done", busy=ask("aide"))
    async with Runtime(office.agents(), store=place()) as runtime:
        first = await office.begin(runtime)
        await soon(runtime.send("t", "new", policy="interrupt"))
        tasks = {task.agent_id: task for task in await runtime.tasks.list("t")}
        assert tasks["aide"].status == "cancelled"
        assert tasks["worker"].status == "running"
        (aide,) = await runtime.runs.list(agent="aide")
        assert aide.status == "done"
        second = (await soon(_successor(runtime, first.run_id))).id
        office.work.released.set()
        assert (await soon(runtime.wait(second))).text == "all done"
        await assert_quiet(runtime)


async def _successor(runtime: Runtime, first: str) -> RunRecord:
    while (run := await newest(runtime)).id == first:
        await asyncio.sleep(0.002)
    return run


async def test_run_waiting_for_tasks_hands_them_over(place: Place) -> None:
    office = Office("waiting for it", "all done", busy="done but for that")
    async with Runtime(office.agents(), store=place()) as runtime:
        first = await runtime.start("lead", "go", thread="t")
        await soon(office.work.reached.wait())
        await until_true(lambda: _waits(runtime, first.run_id))
        await soon(runtime.send("t", "new", policy="interrupt"))
        assert (await soon(runtime.wait(first.run_id))).termination == Cancelled(WHY)
        second = await handed_over(runtime, first.run_id)
        office.work.released.set()
        await assert_heard(runtime, second)


async def test_cancel_of_next_run_stops_inherited_tasks(place: Place) -> None:
    office = Office("waiting for it")
    async with Runtime(office.agents(), store=place()) as runtime:
        first = await office.begin(runtime)
        await soon(runtime.send("t", "new", policy="interrupt"))
        second = await handed_over(runtime, first.run_id)
        assert not await soon(runtime.cancel(first.run_id))
        assert (await task_of(runtime)).status == "running"
        assert await soon(runtime.cancel(second.id))
        (worker,) = await runtime.runs.list(agent="worker")
        assert worker.status == "done"  # It was waited for.
        assert (await task_of(runtime)).status == "cancelled"
        await assert_quiet(runtime)


async def test_repeated_interrupts_hand_over_all_tasks(place: Place) -> None:
    office = Office(ask(background=True), call("wait"), "waiting for both", "one is done", "all done")
    async with Runtime(office.agents(), store=place()) as runtime:
        first = await office.begin(runtime)
        await soon(runtime.send("t", "second", policy="interrupt"))
        await until(lambda: office.hold.times == 2 and office.work.times == 2)
        await soon(runtime.send("t", "third", policy="interrupt"))
        await until_true(lambda: _is_third(runtime))
        third = await newest(runtime)
        assert third.id != first.run_id
        assert [(task.status, task.run_id) for task in await runtime.tasks.list("t")] == [
            ("running", third.id)
        ] * 2
        office.work.released.set()
        await soon(runtime.wait(third.id))
        assert [task.status for task in await runtime.tasks.list("t")] == ["completed"] * 2
        await assert_quiet(runtime)


async def _is_third(runtime: Runtime) -> bool:
    return len(await runtime.runs.list(thread="t")) == 3


async def test_cancel_of_interrupted_run_stops_all(place: Place) -> None:
    office = Office("next")
    stubborn = Hold()

    async def linger() -> str:
        """Take its time to stop."""
        try:
            await office.hold.here()
        except asyncio.CancelledError:
            await stubborn.here()
            raise
        return "never"

    lead, *others = office.agents()
    lead = replace(lead, tools=[tool(name="wait", effect="pure")(linger)])
    async with Runtime([lead, *others], store=place()) as runtime:
        first = await office.begin(runtime)
        sent = asyncio.create_task(runtime.send("t", "new", policy="interrupt"))
        await soon(stubborn.reached.wait())
        cancelled = asyncio.create_task(runtime.cancel(first.run_id))
        await until(lambda: not runtime._scope.dispatch.active["t"].view.run.leaves_tasks)
        stubborn.released.set()
        await soon(asyncio.gather(sent, cancelled))
        assert (await task_of(runtime)).status == "cancelled"
        await soon(runtime.wait((await _successor(runtime, first.run_id)).id))
        await assert_quiet(runtime)


async def test_report_before_next_run_reaches_next_run(place: Place) -> None:
    office = Office("heard it")
    async with Runtime(office.agents(), store=place()) as runtime:
        first = await office.begin(runtime)
        later = datetime.now(UTC) + timedelta(hours=1)
        await soon(runtime.send("t", "later", policy="interrupt", at=later))
        assert (await task_of(runtime)).run_id == first.run_id
        office.work.released.set()
        (worker,) = await runtime.runs.list(agent="worker")
        await soon(runtime.wait(worker.id))
        assert await told(runtime) == []
        assert (await soon(runtime.run("lead", "now", thread="t"))).text == "heard it"
        (said,) = await told(runtime)
        assert "worked" in said
        (item,) = await runtime.mail.pending("t")
        await runtime.mail.retract(item.id)
        await assert_quiet(runtime)


async def test_interrupting_message_keeps_tasks(place: Place, scripted: Scripted) -> None:
    accepts = MailPolicy(accept=("agent:*",), arriving="interrupt")
    office = Office("waiting for it", "all done", mail=accepts)
    writer = Agent("writer", scripted(send(to_agent("t")), "sent"), mail=MailPolicy(to=("agent:*",)))
    async with Runtime([*office.agents(), writer], store=place()) as runtime:
        first = await office.begin(runtime)
        await soon(runtime.run("writer", "write"))
        second = await handed_over(runtime, first.run_id)
        office.work.released.set()
        await assert_heard(runtime, second)


@asynccontextmanager
async def asking_behind(place: Place, scripted: Scripted, spy: Spy) -> AsyncIterator[tuple[Runtime, RunRecord]]:
    """A run that was interrupted while its task asks something, and the run that has the task now."""
    office = Office("waiting for it", "all done")
    lead, _, aide = office.agents()
    asks = Agent("worker", scripted(call("pay"), "worked"), tools=[spying(spy, "pay", approval=True)])
    async with Runtime([lead, asks, aide], store=place()) as runtime:
        first = await runtime.start("lead", "go", thread="t")
        await soon(office.hold.reached.wait())
        await until_true(runtime.tickets.list)
        await soon(runtime.send("t", "new", policy="interrupt"))
        yield runtime, await handed_over(runtime, first.run_id)


async def test_question_of_inherited_task_belongs_to_next_run(place: Place, scripted: Scripted) -> None:
    spy = Spy()
    async with asking_behind(place, scripted, spy) as (runtime, second):
        result = await soon(runtime.wait(second.id))
        (ticket,) = result.tickets
        assert (await soon(runtime.resume(second.id, ticket.approve()))).run_id == second.id
        await assert_heard(runtime, second)
        assert spy.ran == ["pay"]


async def test_answer_of_inherited_task_reaches_next_run(place: Place, scripted: Scripted) -> None:
    spy = Spy()
    async with asking_behind(place, scripted, spy) as (runtime, second):
        await soon(runtime.wait(second.id))
        (ticket,) = await runtime.tickets.list()
        result = await soon(runtime.tickets.answer(ticket.id, True))
        assert (result.run_id, result.text) == (second.id, "all done")


# -- restarts ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is that outlives those who open it."""
    return str(tmp_path / "store.db") if request.param == "sqlite" else fresh_database()


async def test_restart_between_runs_loses_no_tasks(durable: str) -> None:
    office = Office("waiting for it", "all done")
    later = datetime.now(UTC) + timedelta(hours=1)
    runtime = Runtime(office.agents(), store=durable)
    first = await office.begin(runtime)
    await soon(runtime.send("t", "later", policy="interrupt", at=later))
    assert (await soon(first.result())).termination == Cancelled(WHY)
    await runtime.close(grace=0)
    async with Runtime(office.agents(), store=durable) as second:
        task = await task_of(second)
        assert (task.status, task.run_id) == ("running", first.run_id)
        await until(lambda: office.work.times == 2)  # The worker goes on by itself.
        handle = await second.start("lead", "now", thread="t")
        successor = await handed_over(second, first.run_id)
        assert successor.id == handle.run_id
        office.work.released.set()
        (item,) = await second.mail.pending("t")
        await second.mail.retract(item.id)
        await assert_heard(second, successor)


async def test_orphan_lost_during_interrupt_keeps_tasks(durable: str) -> None:
    office = Office("waiting for it", "all done")
    runtime = Runtime(office.agents(), store=durable)
    first = await office.begin(runtime)
    await runtime.close(grace=0)
    async with Runtime(office.agents(), store=durable, execute=False) as front:
        store = front.store
        view = await store.load("t")
        assert view is not None
        assert view.run is not None
        lost = replace(view.run, cancel=WHY, leaves_tasks=True)
        await store.commit(Commit("t", lost.identity, version=view.thread.version, runs=[lost]))
        async with Runtime(office.agents(), store=durable) as second:
            assert (await soon(second.wait(first.run_id))).termination == Cancelled(WHY)
            assert (await task_of(second)).status == "running"
            handle = await second.start("lead", "now", thread="t")
            successor = await handed_over(second, first.run_id)
            assert successor.id == handle.run_id
            office.work.released.set()
            await assert_heard(second, successor)


async def test_interrupt_of_remote_run_keeps_tasks(durable: str) -> None:
    office = Office("waiting for it", "all done")
    async with (
        Runtime(office.agents(), store=durable) as worker,
        Runtime(office.agents(), store=durable, execute=False) as front,
    ):
        first = await office.begin(worker)
        await soon(front.send("t", "new", policy="interrupt"))
        second = await handed_over(front, first.run_id)
        office.work.released.set()
        await soon(front.wait(second.id))
        await assert_heard(worker, second)
