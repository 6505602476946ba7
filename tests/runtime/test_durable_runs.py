"""Runs in a file: another process goes on with them, and repeating a request repeats nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, Spy, holding, soon, spying
from wakeful import (
    Agent,
    FunctionModel,
    Limits,
    Messages,
    Recipient,
    Runtime,
    SqliteStore,
    ToolContext,
    call,
    tool,
)
from wakeful.errors import (
    ConfigurationError,
    RunNotFailed,
    RunNotWaiting,
    StoreFull,
    StoreRefused,
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


@tool
async def send(to: str, ctx: ToolContext) -> str:
    """Send a message."""
    return (await ctx.send(Recipient.agent(f"{to}-thread", to), "hello")).status


def echo(hold: Hold | None = None) -> FunctionModel:
    async def answer(request: ModelRequest) -> str:
        if hold is not None and not hold.released.is_set():
            hold.reached.set()
            await hold.released.wait()
        return f"you said {request.messages[-1].text}"

    return FunctionModel(answer)


async def die(runtime: Runtime) -> None:
    """What the store sees when a process ends: its lease is over. What the runtime still does can't be written."""
    await runtime._shared.keeper._lease.close()


# -- syncing -------------------------------------------------------------------------------------------------


class Recorder(SqliteStore):
    """Keeps what it is told to write."""

    commits: list[Commit]

    async def commit(self, commit: Commit) -> Committed:
        self.commits.append(commit)
        return await super().commit(commit)


@pytest.mark.parametrize("watched", [False, True])
async def test_only_results_that_nobody_is_shown_may_be_synced_later(
    tmp_path: Path, scripted: Scripted, watched: bool
) -> None:
    store = Recorder(tmp_path / "app.db")
    store.commits = []
    model, may = scripted(call("note"), call("send", to="x"), "done"), Messages(to=("agent:x",))
    agent = Agent("agent", model=model, tools=[note, send], messages=may)
    other = Agent("x", model=echo(), messages=Messages(accept=("agent:agent",)))
    async with Runtime([agent, other], store=store) as runtime:
        if watched:
            async for _ in runtime.stream("agent", "go", thread="t"):
                pass
        else:
            await runtime.run("agent", "go", thread="t")
    unsynced = [commit for commit in store.commits if commit.unsynced]
    if watched:
        assert unsynced == []
    else:
        # Not the input, an answer, what is sent, or the end.
        assert [[c.name for c in commit.calls] for commit in unsynced] == [["note"]]
        assert [c.state for c in unsynced[0].calls] == ["finished"]


# -- what can't be written -----------------------------------------------------------------------------------


class Broken(SqliteStore):
    """Can't write results, and says so in its own words."""

    async def commit(self, commit: Commit) -> Committed:
        if any(call.state == "finished" for call in commit.calls):
            raise ValueError("no such thing")
        return await super().commit(commit)


async def test_a_run_whose_commits_all_fail_is_given_back_and_its_caller_hears_why(
    tmp_path: Path, scripted: Scripted
) -> None:
    store = Broken(tmp_path / "app.db")
    runtime = Runtime([Agent("agent", model=scripted(call("note")), tools=[note])], store=store)
    async with asyncio.timeout(30):
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


async def test_a_run_whose_end_could_not_be_written_once_ends_and_asks_nothing_more(
    tmp_path: Path, scripted: Scripted
) -> None:
    store = Faltering(tmp_path / "app.db")
    async with Runtime([Agent("agent", model=scripted("done"))], store=store) as runtime:
        result = await runtime.run("agent", "go", thread="t")
        kinds = [type(event).__name__ for event in await store.events("t")]
    assert result.status == "done"
    assert kinds.count("RunFinish") == 1


# -- stores by name ------------------------------------------------------------------------------------------


async def test_a_store_is_given_as_a_path_or_a_url(tmp_path: Path, scripted: Scripted) -> None:
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
def test_a_store_that_cannot_be_is_refused_at_once(given: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Runtime([Agent("agent", model=echo())], store=given)


def test_a_file_that_is_not_ours_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes")
    with pytest.raises(StoreRefused, match="isn't a SQLite database"):
        Runtime([Agent("agent", model=echo())], store=path)
    assert path.read_text() == "my notes"
    assert list(tmp_path.iterdir()) == [path]


# -- going on elsewhere --------------------------------------------------------------------------------------


async def test_a_conversation_goes_on_after_a_restart(opens: Opens) -> None:
    async with opens(Agent("agent", model=echo())) as runtime:
        await runtime.run("agent", "one", thread="t")
    async with opens(Agent("agent", model=echo())) as runtime:
        await runtime.run("agent", "two", thread="t")
        texts = [m.text for m in await runtime.messages("t")]
    assert texts == ["one", "you said one", "two", "you said two"]


async def test_a_waiting_run_is_answered_by_another_process(opens: Opens, scripted: Scripted) -> None:
    spy = Spy()
    tools = [spying(spy, "pay", approval=True)]
    async with opens(Agent("agent", model=scripted(call("pay")), tools=tools)) as runtime:
        waiting = await runtime.run("agent", "go", thread="t")
    async with opens(Agent("agent", model=scripted("paid"), tools=tools)) as runtime:
        (ticket,) = await runtime.tickets(status="open")
        assert (await runtime.resume(waiting.run_id, ticket.approve())).text == "paid"
        (decision,) = await runtime.decisions(ticket.id)
        assert decision.verdict == "approve"
    assert spy.ran == ["pay"]


async def test_a_run_whose_process_died_is_taken_over_by_one_that_serves(opens: Opens, scripted: Scripted) -> None:
    hold, spy = Hold(), Spy()
    tools = [holding(hold), spying(spy, "pay")]
    first = opens(Agent("agent", model=scripted([call("pay"), call("wait")]), tools=tools))
    lost = asyncio.create_task(first.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    await die(first)
    async with opens(Agent("agent", model=scripted("I will check"), tools=tools)) as second:
        (run,) = await second.list_runs()
        result = await soon(second.wait(run.id))
        assert result.text == "I will check"
        ledger = await second.ledger(run.id)
        assert [c.name for c in ledger.finished] == ["pay"]
        assert [c.name for c in ledger.unknown] == ["wait"]
        assert spy.ran == ["pay"]
        hold.released.set()
        assert (await soon(lost)).text == "I will check"
        types = [e.type async for e in second.events("t", follow=False)]
        assert types.count("run_finish") == 1
        assert await second._env.store.check() == []
    await first.close()


async def test_a_bare_runtime_leaves_other_threads_alone(opens: Opens, scripted: Scripted) -> None:
    hold = Hold()
    first = opens(Agent("agent", model=echo(hold)))
    lost = asyncio.create_task(first.run("agent", "one", thread="one"))
    await soon(hold.reached.wait())
    await die(first)
    second = opens(Agent("agent", model=echo()))
    assert (await second.run("agent", "two", thread="two")).text == "you said two"
    (run,) = await second.list_runs(thread="one")
    assert run.status == "running"
    assert (await soon(second.wait(run.id))).text == "you said one"
    hold.released.set()
    await soon(lost)
    await second.close()
    await first.close()


async def test_input_that_nobody_took_is_run_by_whoever_serves(opens: Opens) -> None:
    sender = opens(Agent("agent", model=echo()), execute=False)
    await sender.send("t", "hello", agent="agent")
    assert await sender.list_runs() == []
    handle = await sender.start("agent", "and this", thread="u")
    async with opens(Agent("agent", model=echo())):
        assert (await soon(handle.result())).text == "you said and this"
        while [r.status for r in await sender.list_runs(thread="t")] != ["done"]:
            await asyncio.sleep(0.01)
    assert [m.text for m in await sender.messages("t")] == ["hello", "you said hello"]
    await sender.close()


async def test_a_run_is_cancelled_from_another_process_while_it_works(opens: Opens, scripted: Scripted) -> None:
    hold = Hold()
    here = opens(Agent("agent", model=scripted([call("wait")]), tools=[holding(hold)]))
    there = opens(Agent("agent", model=echo()))
    work = asyncio.create_task(here.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    (run,) = await there.list_runs()
    assert await soon(there.cancel(run.id, "enough"))
    assert (await soon(work)).termination == Cancelled("enough")
    await there.close()
    await here.close()


async def test_leaving_at_any_event_and_coming_back_elsewhere_yields_the_same_transcript(
    opens: Opens, scripted: Scripted
) -> None:
    agent = Agent("agent", model=scripted(call("look"), "seen"), tools=[spying(Spy(), "look")])
    async with opens(agent) as runtime:
        await runtime.run("agent", "go", thread="t")
        whole = [e async for e in runtime.events("t", follow=False)]
    async with opens(agent) as runtime:
        for place, event in enumerate(whole):
            rest = [e async for e in runtime.events("t", after=event.cursor, follow=False)]
            assert whole[: place + 1] + rest == whole


# -- repeating -----------------------------------------------------------------------------------------------


async def test_a_request_that_is_repeated_runs_once(opens: Opens) -> None:
    async with opens(Agent("agent", model=echo())) as runtime:
        first = await runtime.run("agent", "one", thread="t", request_id="r1")
        again = await runtime.run("agent", "one", thread="t", request_id="r1")
    async with opens(Agent("agent", model=echo())) as runtime:
        later = await runtime.run("agent", "one", thread="t", request_id="r1")
        assert len(await runtime.list_runs()) == 1
    assert first == again == later


async def test_a_request_is_repeatable_in_a_thread_of_its_own(opens: Opens) -> None:
    async with opens(Agent("agent", model=echo())) as runtime:
        first = await runtime.run("agent", "one", request_id="r1")
        assert await runtime.run("agent", "one", request_id="r1") == first
        handle = await runtime.start("agent", "one", request_id="r1")
        assert handle.run_id == first.run_id
        assert len(await runtime.threads()) == 1


async def test_a_request_that_is_repeated_while_it_runs_or_waits_its_turn_joins_the_first(opens: Opens) -> None:
    hold = Hold()
    async with opens(Agent("agent", model=echo(hold))) as runtime:
        running = asyncio.create_task(runtime.run("agent", "one", thread="t", request_id="r1"))
        await soon(hold.reached.wait())
        calls = [runtime.run("agent", "one", thread="t", request_id="r1") for _ in range(2)]
        calls += [runtime.run("agent", "two", thread="t", request_id="r2") for _ in range(3)]
        work = [asyncio.create_task(c) for c in calls]
        while len((await runtime._env.store.load("t")).inbox) < 1:
            await asyncio.sleep(0.01)
        hold.released.set()
        results = [await soon(task) for task in [running, *work]]
        assert [r.text for r in results] == ["you said one"] * 3 + ["you said two"] * 3
        assert len({r.run_id for r in results}) == 2


async def test_a_request_is_finished_by_repeating_it_after_its_process_died(opens: Opens) -> None:
    hold = Hold()
    first = opens(Agent("agent", model=echo(hold)))
    lost = asyncio.create_task(first.run("agent", "one", thread="t", request_id="r1"))
    await soon(hold.reached.wait())
    await die(first)
    second = opens(Agent("agent", model=echo()))
    assert (await soon(second.run("agent", "one", thread="t", request_id="r1"))).text == "you said one"
    assert len(await second.list_runs()) == 1
    hold.released.set()
    await soon(lost)
    await second.close()
    await first.close()


async def test_sending_a_request_twice_leaves_one_message(opens: Opens) -> None:
    async with opens(Agent("agent", model=echo()), execute=False) as runtime:
        for _ in range(2):
            await runtime.send("t", "hello", agent="agent", request_id="m1")
        view = await runtime._env.store.load("t")
        assert [i.message.text for i in view.inbox] == ["hello"]


async def test_giving_the_same_decision_twice_does_no_harm(opens: Opens, scripted: Scripted) -> None:
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
async def test_a_request_id_is_a_short_text(opens: Opens, wrong: Any) -> None:
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


async def test_a_failed_run_goes_on_from_its_last_committed_step(opens: Opens) -> None:
    spy, model = Spy(), failing_once()
    async with opens(Agent("agent", model=model, tools=[spying(spy, "look")])) as runtime:
        failed = await runtime.run("agent", "go", thread="t")
        assert isinstance(failed.termination, Failed)
    async with opens(Agent("agent", model=model, tools=[spying(spy, "look")])) as runtime:
        result = await runtime.retry(failed.run_id)
        assert (result.text, result.termination, result.run_id) == ("done", NaturalEnd(), failed.run_id)
        assert spy.ran == ["look"]
        starts = [e.trigger async for e in runtime.events("t", follow=False) if e.type == "run_start"]
        assert starts == ["new", "retry"]
        assert await runtime._env.store.check() == []


async def test_a_failed_run_is_retried_by_those_who_run_its_agent(opens: Opens) -> None:
    spy, model = Spy(), failing_once()
    agent = Agent("agent", model=model, tools=[spying(spy, "look")])
    other = Agent("agent", model=FunctionModel(lambda request: "not here"), tools=[note])
    async with opens(agent) as worker, opens(other, execute=False) as front:
        failed = await worker.run("agent", "go", thread="t")
        assert isinstance(failed.termination, Failed)
        result = await soon(front.retry(failed.run_id))
        assert (result.text, result.termination, spy.ran) == ("done", NaturalEnd(), ["look"])
        assert await worker._env.store.check() == []


async def test_only_a_failed_run_that_is_its_threads_last_can_be_retried(opens: Opens) -> None:
    async with opens(Agent("agent", model=failing_once(), tools=[spying(Spy(), "look")])) as runtime:
        failed = await runtime.run("agent", "go", thread="t")
        done = await runtime.run("agent", "go on", thread="t")
        with pytest.raises(RunNotFailed, match="hasn't failed"):
            await runtime.retry(done.run_id)
        with pytest.raises(RunNotFailed, match="went on with another run"):
            await runtime.retry(failed.run_id)
        with pytest.raises(UnknownRun):
            await runtime.retry("nobody")


# -- tenants -------------------------------------------------------------------------------------------------


async def test_tenants_share_a_runtime_and_see_nothing_of_each_other(opens: Opens) -> None:
    async with opens(Agent("agent", model=echo())) as runtime:
        acme, other = runtime.tenant("acme"), runtime.tenant("other")
        mine = await acme.run("agent", "secret", thread="t")
        await other.run("agent", "public", thread="t")
        assert runtime.tenant("acme") is acme
        assert [m.text for m in await acme.messages("t")] == ["secret", "you said secret"]
        assert await runtime.messages("t") == []
        with pytest.raises(UnknownRun):
            await other.get_run(mine.run_id)
        with pytest.raises(UnknownRun):
            await other.cancel(mine.run_id)


async def test_what_is_due_for_a_tenant_is_taken_over_too(opens: Opens) -> None:
    sender = opens(Agent("agent", model=echo()), execute=False)
    await sender.tenant("acme").send("t", "hello", agent="agent")
    async with opens(Agent("agent", model=echo())) as runtime:
        while [r.status for r in await runtime.tenant("acme").list_runs()] != ["done"]:
            await asyncio.sleep(0.01)
    await sender.close()


async def test_a_runtime_on_a_tenants_store_is_that_tenants(tmp_path: Path, scripted: Scripted) -> None:
    """It is told what happens on its threads, and its other handles see what they say."""
    hold = Hold()
    agent = Agent("agent", model=scripted([call("wait")]), tools=[holding(hold)])
    here, there = [Runtime([agent], store=SqliteStore(tmp_path / "app.db", tenant="acme")) for _ in range(2)]
    work = asyncio.create_task(here.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    assert here.tenant("acme") is here
    assert await here.tenant("default").threads() == []
    (run,) = await there.list_runs()
    assert await soon(there.cancel(run.id, "enough"))
    assert (await soon(work)).termination == Cancelled("enough")
    await there.close()
    await here.close()


# -- history -------------------------------------------------------------------------------------------------


async def test_an_agent_with_a_limit_is_shown_the_last_whole_turns(opens: Opens, scripted: Scripted) -> None:
    model = scripted("1", call("look"), "2", "3")
    tools = [spying(Spy(), "look")]
    agent = Agent("agent", model=model, tools=tools, limits=Limits(history=3))
    async with opens(agent) as runtime:
        for text in ("one", "two", "three"):
            await runtime.run("agent", text, thread="t")
    shown = [[m.role for m in request.messages] for request in model.requests]
    assert shown[-1] == ["user", "assistant", "tool", "assistant", "user"]
    assert model.requests[-1].messages[0].text == "two"


async def test_parked_runs_are_in_the_file_and_nowhere_else(opens: Opens, scripted: Scripted) -> None:
    agent = Agent("agent", model=FunctionModel(lambda r: call("pay")), tools=[spying(Spy(), "pay", approval=True)])
    async with opens(agent) as runtime:
        for place in range(20):
            await runtime.run("agent", "go", thread=f"t{place}")
        assert not runtime._dispatch.active
        assert not runtime._dispatch.tasks
        assert not runtime._bus._channels
        assert len(await runtime.tickets(status="open")) == 20


async def test_an_answer_that_was_accepted_counts_before_new_input(opens: Opens, scripted: Scripted) -> None:
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


async def test_a_stream_follows_a_run_that_another_process_executes(opens: Opens) -> None:
    async with opens(Agent("agent", model=echo())):
        left = opens(Agent("agent", model=echo()), execute=False)
        for text in ("one", "two"):
            events = [e async for e in left.stream("agent", text, thread="t")]
            assert next(e.type for e in events if e.durable) == "run_start"
            assert [e.type for e in events if e.durable][-1] == "run_finish"
            assert len({e.run_id for e in events}) == 1
            assert len({e.seq for e in events if e.durable}) == sum(e.durable for e in events)
        await left.close()


async def test_a_run_goes_on_with_the_answer_that_was_left_when_it_is_answered_again(
    opens: Opens, scripted: Scripted
) -> None:
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


async def test_a_full_disk_fails_the_call_and_the_thread_goes_on_once_there_is_room(opens: Opens) -> None:
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
