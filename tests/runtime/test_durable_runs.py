"""Runs in a file: another process continues them, and a repeated request has no effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, Spy, holding, soon, spying
from wakeful import Agent, FunctionModel, Limits, Runtime, SqliteStore, call, tool
from wakeful.errors import (
    ConfigurationError,
    InvalidStore,
    RunNotFailed,
    RunNotWaiting,
    StoreFull,
    StoreUnavailable,
    UnknownRun,
    UsageError,
)
from wakeful.models import ModelRequest
from wakeful.stores import Commit, Committed
from wakeful.types.runs import Cancelled, Failed, NaturalEnd

Opens = Callable[..., Runtime]


@pytest.fixture
def opens(tmp_path: Path) -> Iterator[Opens]:
    """Opens runtimes on one file, each as another process would."""

    def open_one(*agents: Agent, **options: Any) -> Runtime:
        return Runtime(agents, store=SqliteStore(tmp_path / "app.db", synchronous="NORMAL"), **options)

    return open_one


@tool
async def note() -> str:
    """Take a note."""
    return "noted"


def echo(hold: Hold | None = None) -> FunctionModel:
    async def answer(request: ModelRequest) -> str:
        if hold is not None and not hold.released.is_set():
            hold.reached.set()
            await hold.released.wait()
        return f"you said {request.messages[-1].text}"

    return FunctionModel(answer)


async def die(runtime: Runtime) -> None:
    """End the lease of a runtime, as the end of its process does; its later commits are refused."""
    await runtime._scope.shared.worker.state.lease.close()


# -- what can't be written -----------------------------------------------------------------------------------


class Broken(SqliteStore):
    """Can't write results, and says so in its own words."""

    async def commit(self, commit: Commit) -> Committed:
        if any(call.state == "finished" for call in commit.calls):
            raise ValueError("no such thing")
        return await super().commit(commit)


async def test_run_is_released_when_all_commits_fail(tmp_path: Path, scripted: Scripted) -> None:
    store = Broken(tmp_path / "app.db")
    runtime = Runtime([Agent("agent", model=scripted(call("note")), tools=[note])], store=store)
    async with asyncio.timeout(120):
        with pytest.raises(ValueError, match="no such thing"):
            async for _ in runtime.stream("agent", "go", thread="t"):
                pass
        while (found := await store.thread("t")) is None or found.claimed:
            pass
    assert found.open_run_id is not None
    await runtime.close()


class Faltering(SqliteStore):
    """Fails once to write the end of a run, and says so in its own words."""

    failed = False

    async def commit(self, commit: Commit) -> Committed:
        if commit.release and not self.failed:
            self.failed = True
            raise ValueError("not now")
        return await super().commit(commit)


async def test_run_end_is_retried_without_another_model_call(tmp_path: Path, scripted: Scripted) -> None:
    store = Faltering(tmp_path / "app.db")
    async with Runtime([Agent("agent", model=scripted("done"))], store=store) as runtime:
        result = await runtime.run("agent", "go", thread="t", check=False)
        kinds = [type(event).__name__ for event in await store.events("t")]
    assert result.status == "done"
    assert kinds.count("RunFinish") == 1


# -- stores by name ------------------------------------------------------------------------------------------


async def test_store_is_given_as_path_or_url(tmp_path: Path, scripted: Scripted) -> None:
    for place, given in enumerate([str(tmp_path / "a.db"), tmp_path / "b.db", f"sqlite://{tmp_path}/c.db"]):
        async with Runtime([Agent("agent", model=scripted(str(place)))], store=given) as runtime:
            assert (await runtime.run("agent", "go")).text == str(place)
    assert {p.name for p in tmp_path.glob("*.db")} == {"a.db", "b.db", "c.db"}  # noqa: ASYNC240


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ("mysql://host/db", ConfigurationError, "not a 'mysql' address"),
        ("", ConfigurationError, "path is empty"),
        (7, ConfigurationError, "must be a Store, a path or a URL"),
        ("/no/such/folder/app.db", StoreUnavailable, "folder that doesn't exist"),
        (":memory:", StoreUnavailable, "use MemoryStore"),
    ],
)
def test_invalid_store_is_refused_at_once(given: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Runtime([Agent("agent", model=echo())], store=given)


def test_foreign_file_is_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes")
    with pytest.raises(InvalidStore, match="isn't a SQLite database"):
        Runtime([Agent("agent", model=echo())], store=path)
    assert path.read_text() == "my notes"
    assert list(tmp_path.iterdir()) == [path]


# -- going on elsewhere --------------------------------------------------------------------------------------


async def test_conversation_goes_on_after_restart(opens: Opens) -> None:
    async with opens(Agent("agent", model=echo())) as runtime:
        await runtime.run("agent", "one", thread="t")
    async with opens(Agent("agent", model=echo())) as runtime:
        await runtime.run("agent", "two", thread="t")
        texts = [m.text for m in await runtime.threads.messages("t")]
    assert texts == ["one", "you said one", "two", "you said two"]


async def test_waiting_run_is_answered_by_another_process(opens: Opens, scripted: Scripted) -> None:
    spy = Spy()
    tools = [spying(spy, "pay", approval=True)]
    async with opens(Agent("agent", model=scripted(call("pay")), tools=tools)) as runtime:
        waiting = await runtime.run("agent", "go", thread="t")
    async with opens(Agent("agent", model=scripted("paid"), tools=tools)) as runtime:
        (ticket,) = await runtime.tickets.list(status="open")
        assert (await runtime.resume(waiting.run_id, ticket.approve())).text == "paid"
        (decision,) = await runtime.tickets.decisions(ticket.id)
        assert decision.verdict == "approve"
    assert spy.ran == ["pay"]


async def test_orphaned_run_is_taken_over_by_worker(opens: Opens, scripted: Scripted) -> None:
    hold, spy = Hold(), Spy()
    tools = [holding(hold), spying(spy, "pay")]
    first = opens(Agent("agent", model=scripted([call("pay"), call("wait")]), tools=tools))
    lost = asyncio.create_task(first.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    await die(first)
    async with opens(Agent("agent", model=scripted("I will check"), tools=tools)) as second:
        (run,) = await second.runs.list()
        result = await soon(second.wait(run.id))
        assert result.text == "I will check"
        ledger = await second.runs.ledger(run.id)
        assert [c.name for c in ledger.finished] == ["pay"]
        assert [c.name for c in ledger.unknown] == ["wait"]
        assert spy.ran == ["pay"]
        hold.released.set()
        assert (await soon(lost)).text == "I will check"
        types = [e.type async for e in second.events("t", follow=False)]
        assert types.count("run_finish") == 1
        assert await second.store.check() == []
    await first.close()


async def test_non_serving_runtime_takes_over_nothing(opens: Opens, scripted: Scripted) -> None:
    hold = Hold()
    first = opens(Agent("agent", model=echo(hold)))
    lost = asyncio.create_task(first.run("agent", "one", thread="one"))
    await soon(hold.reached.wait())
    await die(first)
    second = opens(Agent("agent", model=echo()))
    assert (await second.run("agent", "two", thread="two")).text == "you said two"
    (run,) = await second.runs.list(thread="one")
    assert run.status == "running"
    assert (await soon(second.wait(run.id))).text == "you said one"
    hold.released.set()
    await soon(lost)
    await second.close()
    await first.close()


async def test_pending_input_is_run_by_worker(opens: Opens) -> None:
    sender = opens(Agent("agent", model=echo()), execute=False)
    await sender.send("t", "hello", agent="agent")
    assert await sender.runs.list() == []
    handle = await sender.start("agent", "and this", thread="u")
    async with opens(Agent("agent", model=echo())):
        assert (await soon(handle.result())).text == "you said and this"
        while [r.status for r in await sender.runs.list(thread="t")] != ["done"]:
            await asyncio.sleep(0.01)
    assert [m.text for m in await sender.threads.messages("t")] == ["hello", "you said hello"]
    await sender.close()


async def test_run_is_cancelled_from_another_process_while_it_works(opens: Opens, scripted: Scripted) -> None:
    hold = Hold()
    here = opens(Agent("agent", model=scripted([call("wait")]), tools=[holding(hold)]))
    there = opens(Agent("agent", model=echo()))
    work = asyncio.create_task(here.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    (run,) = await there.runs.list()
    assert await soon(there.cancel(run.id, "enough"))
    assert (await soon(work)).termination == Cancelled("enough")
    await there.close()
    await here.close()


async def test_reader_resumes_elsewhere_at_any_cursor(opens: Opens, scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted(call("look"), "seen"), tools=[spying(Spy(), "look")])
    async with opens(agent) as runtime:
        await runtime.run("agent", "go", thread="t")
        whole = [e async for e in runtime.events("t", follow=False)]
    async with opens(agent) as runtime:
        for place, event in enumerate(whole):
            rest = [e async for e in runtime.events("t", after=event.cursor, follow=False)]
            assert whole[: place + 1] + rest == whole


# -- repeating -----------------------------------------------------------------------------------------------


async def test_repeated_request_runs_once(opens: Opens) -> None:
    async with opens(Agent("agent", model=echo())) as runtime:
        first = await runtime.run("agent", "one", thread="t", request_id="r1")
        again = await runtime.run("agent", "one", thread="t", request_id="r1")
    async with opens(Agent("agent", model=echo())) as runtime:
        later = await runtime.run("agent", "one", thread="t", request_id="r1")
        assert len(await runtime.runs.list()) == 1
    assert first == again == later


async def test_repeated_request_without_thread_runs_once(opens: Opens) -> None:
    async with opens(Agent("agent", model=echo())) as runtime:
        first = await runtime.run("agent", "one", request_id="r1")
        assert await runtime.run("agent", "one", request_id="r1") == first
        handle = await runtime.start("agent", "one", request_id="r1")
        assert handle.run_id == first.run_id
        assert len(await runtime.threads.list()) == 1


async def test_repeated_request_joins_open_run(opens: Opens) -> None:
    hold = Hold()
    async with opens(Agent("agent", model=echo(hold))) as runtime:
        running = asyncio.create_task(runtime.run("agent", "one", thread="t", request_id="r1"))
        await soon(hold.reached.wait())
        calls = [runtime.run("agent", "one", thread="t", request_id="r1") for _ in range(2)]
        calls += [runtime.run("agent", "two", thread="t", request_id="r2") for _ in range(3)]
        work = [asyncio.create_task(c) for c in calls]
        while len((await runtime.store.load("t")).inbox) < 1:
            await asyncio.sleep(0.01)
        hold.released.set()
        results = [await soon(task) for task in [running, *work]]
        assert [r.text for r in results] == ["you said one"] * 3 + ["you said two"] * 3
        assert len({r.run_id for r in results}) == 2


async def test_repeated_request_finishes_orphaned_run(opens: Opens) -> None:
    hold = Hold()
    first = opens(Agent("agent", model=echo(hold)))
    lost = asyncio.create_task(first.run("agent", "one", thread="t", request_id="r1"))
    await soon(hold.reached.wait())
    await die(first)
    second = opens(Agent("agent", model=echo()))
    assert (await soon(second.run("agent", "one", thread="t", request_id="r1"))).text == "you said one"
    assert len(await second.runs.list()) == 1
    hold.released.set()
    await soon(lost)
    await second.close()
    await first.close()


async def test_repeated_send_leaves_one_message(opens: Opens) -> None:
    async with opens(Agent("agent", model=echo()), execute=False) as runtime:
        for _ in range(2):
            await runtime.send("t", "hello", agent="agent", request_id="m1")
        view = await runtime.store.load("t")
        assert [i.message.text for i in view.inbox] == ["hello"]


async def test_repeated_decision_is_harmless(opens: Opens, scripted: Scripted) -> None:
    spy = Spy()
    async with opens(
        Agent("agent", model=scripted(call("pay"), "paid"), tools=[spying(spy, "pay", approval=True)])
    ) as runtime:
        waiting = await runtime.run("agent", "go", thread="t")
        decision = waiting.tickets[0].approve()
        results = [await runtime.resume(waiting.run_id, decision) for _ in range(2)]
        assert [r.text for r in results] == ["paid", "paid"]
    assert spy.ran == ["pay"]


@pytest.mark.parametrize("wrong", ["", 7, "x" * 201])
async def test_request_id_is_short_text(opens: Opens, wrong: Any) -> None:
    async with opens(Agent("agent", model=echo())) as runtime:
        with pytest.raises(UsageError, match="request id"):
            await runtime.run("agent", "go", request_id=wrong)


# -- retrying ------------------------------------------------------------------------------------------------


def failing_once() -> FunctionModel:
    state = {"failed": False}

    def answer(request: ModelRequest) -> Any:
        if request.messages[-1].reply is None:
            return call("look")
        if not state["failed"]:
            state["failed"] = True
            raise RuntimeError("the vendor is down")
        return "done"

    return FunctionModel(answer)


async def test_failed_run_retries_from_last_committed_step(opens: Opens) -> None:
    spy, model = Spy(), failing_once()
    async with opens(Agent("agent", model=model, tools=[spying(spy, "look")])) as runtime:
        failed = await runtime.run("agent", "go", thread="t", check=False)
        assert isinstance(failed.termination, Failed)
    async with opens(Agent("agent", model=model, tools=[spying(spy, "look")])) as runtime:
        result = await runtime.runs.retry(failed.run_id)
        assert (result.text, result.termination, result.run_id) == ("done", NaturalEnd(), failed.run_id)
        assert spy.ran == ["look"]
        starts = [e.trigger async for e in runtime.events("t", follow=False) if e.type == "run_start"]
        assert starts == ["new", "retry"]
        assert await runtime.store.check() == []


async def test_failed_run_is_retried_by_worker_of_its_agent(opens: Opens) -> None:
    spy, model = Spy(), failing_once()
    agent = Agent("agent", model=model, tools=[spying(spy, "look")])
    other = Agent("agent", model=FunctionModel(lambda request: "not here"), tools=[note])
    async with opens(agent) as worker, opens(other, execute=False) as front:
        failed = await worker.run("agent", "go", thread="t", check=False)
        assert isinstance(failed.termination, Failed)
        result = await soon(front.runs.retry(failed.run_id))
        assert (result.text, result.termination, spy.ran) == ("done", NaturalEnd(), ["look"])
        assert await worker.store.check() == []


async def test_only_last_failed_run_of_thread_can_be_retried(opens: Opens) -> None:
    async with opens(Agent("agent", model=failing_once(), tools=[spying(Spy(), "look")])) as runtime:
        failed = await runtime.run("agent", "go", thread="t", check=False)
        done = await runtime.run("agent", "go on", thread="t")
        with pytest.raises(RunNotFailed, match="hasn't failed"):
            await runtime.runs.retry(done.run_id)
        with pytest.raises(RunNotFailed, match="went on with another run"):
            await runtime.runs.retry(failed.run_id)
        with pytest.raises(UnknownRun):
            await runtime.runs.retry("nobody")


# -- tenants -------------------------------------------------------------------------------------------------


async def test_tenants_of_one_runtime_are_isolated(opens: Opens) -> None:
    async with opens(Agent("agent", model=echo())) as runtime:
        acme, other = runtime.tenant("acme"), runtime.tenant("other")
        mine = await acme.run("agent", "secret", thread="t")
        await other.run("agent", "public", thread="t")
        assert [m.text for m in await acme.threads.messages("t")] == ["secret", "you said secret"]
        assert await runtime.threads.messages("t") == []
        with pytest.raises(UnknownRun):
            await other.runs.get(mine.run_id)
        with pytest.raises(UnknownRun):
            await other.cancel(mine.run_id)


async def test_orphaned_run_of_tenant_is_taken_over(opens: Opens) -> None:
    sender = opens(Agent("agent", model=echo()), execute=False)
    await sender.tenant("acme").send("t", "hello", agent="agent")
    async with opens(Agent("agent", model=echo())) as runtime:
        while [r.status for r in await runtime.tenant("acme").runs.list()] != ["done"]:
            await asyncio.sleep(0.01)
    await sender.close()


async def test_runtime_on_tenant_store_belongs_to_tenant(tmp_path: Path, scripted: Scripted) -> None:
    """It is told what happens on its threads, and its other handles see what they say."""
    hold = Hold()
    agent = Agent("agent", model=scripted([call("wait")]), tools=[holding(hold)])
    here, there = [Runtime([agent], store=SqliteStore(tmp_path / "app.db", tenant="acme")) for _ in range(2)]
    work = asyncio.create_task(here.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    assert [run.thread_id for run in await here.tenant("acme").runs.list()] == ["t"]
    assert await here.tenant("default").threads.list() == []
    (run,) = await there.runs.list()
    assert await soon(there.cancel(run.id, "enough"))
    assert (await soon(work)).termination == Cancelled("enough")
    await there.close()
    await here.close()


# -- history -------------------------------------------------------------------------------------------------


async def test_window_limit_shows_last_whole_turns(opens: Opens, scripted: Scripted) -> None:
    model = scripted("1", call("look"), "2", "3")
    tools = [spying(Spy(), "look")]
    agent = Agent("agent", model=model, tools=tools, limits=Limits(history=3))
    async with opens(agent) as runtime:
        for text in ("one", "two", "three"):
            await runtime.run("agent", text, thread="t")
    shown = [[m.role for m in request.messages] for request in model.requests]
    assert shown[-1] == ["user", "assistant", "tool", "assistant", "user"]
    assert model.requests[-1].messages[0].text == "two"


async def test_parked_runs_hold_no_memory(opens: Opens, scripted: Scripted) -> None:
    agent = Agent("agent", model=FunctionModel(lambda r: call("pay")), tools=[spying(Spy(), "pay", approval=True)])
    async with opens(agent) as runtime:
        for place in range(20):
            await runtime.run("agent", "go", thread=f"t{place}")
        assert not runtime._scope.dispatch.active
        assert not runtime._scope.dispatch.tasks
        assert not runtime._scope.bus._channels
        assert len(await runtime.tickets.list(status="open")) == 20


async def test_accepted_answer_counts_before_new_input(opens: Opens, scripted: Scripted) -> None:
    spy = Spy()
    agent = Agent("agent", model=scripted(call("pay"), "paid", "hello"), tools=[spying(spy, "pay", approval=True)])
    async with opens(agent) as runtime:
        waiting = await runtime.run("agent", "go", thread="t")
        ticket = waiting.tickets[0]
    left = opens(agent, execute=False)
    answer = asyncio.create_task(left.resume(waiting.run_id, ticket.approve()))
    while not (await left.store.load("t")).inbox:
        await asyncio.sleep(0.01)
    runtime = opens(agent)
    assert (await soon(runtime.run("agent", "hi", thread="t"))).text == "hello"
    assert (await soon(answer)).text == "paid"
    assert spy.ran == ["pay"]
    await left.close()
    await runtime.close()


async def test_stream_follows_run_that_another_process_executes(opens: Opens) -> None:
    async with opens(Agent("agent", model=echo())):
        left = opens(Agent("agent", model=echo()), execute=False)
        for text in ("one", "two"):
            events = [e async for e in left.stream("agent", text, thread="t")]
            assert next(e.type for e in events if e.durable) == "run_start"
            assert [e.type for e in events if e.durable][-1] == "run_finish"
            assert len({e.run_id for e in events}) == 1
            assert len({e.seq for e in events if e.durable}) == sum(e.durable for e in events)
        await left.close()


async def test_second_answer_resumes_with_submitted_one(opens: Opens, scripted: Scripted) -> None:
    spy = Spy()
    agent = Agent("agent", model=scripted(call("pay"), "paid"), tools=[spying(spy, "pay", approval=True)])
    async with opens(agent) as runtime:
        waiting = await runtime.run("agent", "go", thread="t")
        ticket = waiting.tickets[0]
    left = opens(agent, execute=False)
    answer = asyncio.create_task(left.resume(waiting.run_id, ticket.approve()))
    while not (await left.store.load("t")).inbox:
        await asyncio.sleep(0.01)
    runtime = opens(agent)
    with pytest.raises(RunNotWaiting):
        await soon(runtime.resume(waiting.run_id, ticket.deny("too late")))
    assert (await soon(answer)).text == "paid"
    assert spy.ran == ["pay"]
    await left.close()
    await runtime.close()


async def test_full_disk_fails_call_until_space_is_free(opens: Opens) -> None:
    runtime = opens(Agent("agent", model=FunctionModel(lambda r: "x" * 500_000)))
    await runtime.run("agent", "one", thread="warm")
    writing = runtime.store._database._writing
    (pages,) = writing.execute("PRAGMA page_count").fetchone()
    writing.execute(f"PRAGMA max_page_count = {pages + 60}")
    with pytest.raises(StoreFull, match="no room left"):
        await runtime.run("agent", "two", thread="t")
    writing.execute("PRAGMA max_page_count = 1073741823")
    result = await soon(runtime.run("agent", "three", thread="t"))
    assert result.status == "done"
    assert await runtime.store.check() == []
    await runtime.close()
