"""Cancellation of a run at any point: it ends as cancelled, and the thread stays usable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from wakeful import (
    Agent,
    Delegate,
    FunctionModel,
    Limits,
    MemoryStore,
    ModelRequest,
    Plugin,
    Runtime,
    SqliteStore,
    ToolContext,
    call,
    tool,
)
from wakeful.errors import UnknownRun
from wakeful.models import CallChunk, Chunk, ReasoningChunk, StopChunk, TextChunk
from wakeful.plugins import RunEnd, Step
from wakeful.stores import Commit, Committed
from wakeful.stores.jobs import settled
from wakeful.types import RunRecord
from wakeful.types.events import InferenceComplete, RunFinish, StepEnd, StepStart
from wakeful.types.ids import new_id
from wakeful.types.inbox import CancelItem
from wakeful.types.runs import Cancelled, Failed

from .helpers import (
    Hold,
    Scripted,
    Spy,
    assert_cancelled,
    assert_settled,
    events_of,
    log_of,
    outcomes,
    replies_on,
    soon,
    spying,
    until,
)


class Slow:
    """A model that streams these chunks, waits, and answers plainly ever after."""

    def __init__(self, *chunks: Chunk) -> None:
        self.hold = Hold()
        self._chunks = chunks
        self.model = FunctionModel(self._answer)

    def _answer(self, request: ModelRequest) -> Any:
        return self._stream() if not self.hold.times else "hello again"

    async def _stream(self) -> AsyncIterator[Chunk]:
        for chunk in self._chunks:
            yield chunk
        await self.hold.here()
        yield TextChunk(" never")
        yield StopChunk("end_turn")


async def begin(runtime: Runtime, reached: asyncio.Event) -> tuple[asyncio.Task[Any], str]:
    """Run on thread `t` in the background until it reaches that place; the run's id besides."""
    task = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    await soon(reached.wait())
    (run,) = await runtime.runs.list(thread="t")
    return task, run.id


async def goes_on(runtime: Runtime, text: str = "hello again") -> None:
    """The thread takes a new prompt."""
    assert (await soon(runtime.run("agent", "hello?", thread="t"))).text == text
    await assert_settled(runtime, "t")


# -- by request ----------------------------------------------------------------------------------------------


class Starting(Plugin):
    """Waits in `run_start`, the first time."""

    def __init__(self) -> None:
        self.hold = Hold()

    async def run_start(self, ctx: Step) -> None:
        if not self.hold.times:
            await self.hold.here()


async def test_cancel_before_first_step(scripted: Scripted) -> None:
    plugin = Starting()
    runtime = Runtime([Agent("agent", model=scripted("hello again"), plugins=[plugin])])
    task, run_id = await begin(runtime, plugin.hold.reached)
    assert await soon(runtime.cancel(run_id, "enough")) is True
    result = await soon(task)
    assert (result.status, result.termination, result.steps) == ("done", Cancelled("enough"), 0)
    await assert_cancelled(runtime, "t", "enough")
    assert not await events_of(runtime, "t", StepStart)
    await goes_on(runtime)


async def test_cancel_before_first_chunk() -> None:
    slow = Slow()
    runtime = Runtime([Agent("agent", model=slow.model)])
    task, run_id = await begin(runtime, slow.hold.reached)
    await soon(runtime.cancel(run_id))
    assert (await soon(task)).text == ""
    await assert_cancelled(runtime, "t", "cancelled by request")
    assert [m.role for m in await runtime.threads.messages("t")] == ["user"]
    assert len(await events_of(runtime, "t", StepEnd)) == 1
    await goes_on(runtime)


async def test_cancel_during_answer_keeps_text_but_not_calls() -> None:
    slow = Slow(ReasoningChunk("hm"), TextChunk("I will"), CallChunk("act", {}), TextChunk(" and then"))
    spy = Spy()
    runtime = Runtime([Agent("agent", model=slow.model, tools=[spying(spy, "act")])])
    task, run_id = await begin(runtime, slow.hold.reached)
    await soon(runtime.cancel(run_id))
    result = await soon(task)
    assert result.text == "I will and then"
    await assert_cancelled(runtime, "t")
    assert spy.ran == []
    assert (await runtime.threads.messages("t"))[-1].calls == ()
    (complete,) = await events_of(runtime, "t", InferenceComplete)
    assert complete.stop == "cancelled"
    assert (await runtime.runs.get(run_id)).answer_id == complete.message_id
    await goes_on(runtime)


async def test_cancel_during_parallel_tools(scripted: Scripted) -> None:
    hold, spy = Hold(), Spy()

    async def slow(name: str) -> str:
        """Take time."""
        await hold.here()
        return name

    tools = [tool(effect="pure")(slow), spying(spy, "quick"), spying(spy, "ask", approval=True)]
    calls = [call("quick"), call("slow", name="a"), call("slow", name="b"), call("ask"), call("slow", name="c")]
    agent = Agent("agent", model=scripted(calls, "hello again"), tools=tools, limits=Limits(parallel=2))
    runtime = Runtime([agent])
    task, run_id = await begin(runtime, hold.reached)
    await until(lambda: hold.times == 2)
    await soon(runtime.cancel(run_id, "enough"))
    result = await soon(task)
    assert result.termination == Cancelled("enough")
    assert hold.times == 2
    ledger = await runtime.runs.calls(run_id)
    assert [c.outcome for c in ledger] == ["ok", "cancelled", "cancelled", "cancelled", "cancelled"]
    assert [t.status for t in await runtime.store.tickets(run_id)] in (["cancelled"], [])
    await assert_cancelled(runtime, "t", "enough")
    await goes_on(runtime)


HOOKS = ["step_start", "before_inference", "after_inference", "gate_tool", "before_tool", "after_tool", "step_end"]


@pytest.mark.parametrize("phase", HOOKS)
async def test_cancel_during_hook(scripted: Scripted, phase: str) -> None:
    hold, spy = Hold(), Spy()

    async def hook(self: Plugin, ctx: Any) -> None:
        if not hold.times:
            await hold.here()

    plugins = [type("Waits", (Plugin,), {phase: hook})(), type("Idle", (Plugin,), {phase: _nothing})()]
    late = phase not in ("step_start", "before_inference")
    turns = [call("act"), "hello again"] if late else ["hello again"]
    agent = Agent("agent", model=scripted(*turns), tools=[spying(spy, "act")], plugins=plugins)
    runtime = Runtime([agent])
    task, run_id = await begin(runtime, hold.reached)
    await soon(runtime.cancel(run_id))
    await soon(task)
    await assert_cancelled(runtime, "t")
    assert spy.ran == (["act"] if phase in ("after_tool", "step_end") else [])
    await goes_on(runtime)


async def test_cancel_during_run_end(scripted: Scripted) -> None:
    hold = Hold()

    class Ending(Plugin):
        async def run_end(self, ctx: Any) -> None:
            if not hold.times:
                await hold.here()

    runtime = Runtime([Agent("agent", model=scripted("so far", "hello again"), plugins=[Ending()])])
    task, run_id = await begin(runtime, hold.reached)
    await soon(runtime.cancel(run_id))
    assert (await soon(task)).text == "so far"
    await assert_cancelled(runtime, "t")
    assert len(await events_of(runtime, "t", RunFinish)) == 1
    await goes_on(runtime)


async def _nothing(self: Plugin, ctx: Any) -> None:
    return None


async def test_cancel_while_waiting_on_tickets(scripted: Scripted) -> None:
    spy = Spy()
    model = scripted([call("ask"), call("act")], "hello again")
    runtime = Runtime([Agent("agent", model=model, tools=[spying(spy, "ask", approval=True), spying(spy, "act")])])
    result = await runtime.run("agent", "go", thread="t")
    assert await runtime.cancel(result.run_id, "enough") is True
    await assert_cancelled(runtime, "t", "enough")
    assert await outcomes(runtime, result.run_id) == {"ask": "cancelled", "act": "ok"}
    assert spy.ran == ["act"]
    assert [f.status for f in await events_of(runtime, "t", RunFinish)] == ["waiting", "done"]
    await goes_on(runtime)


class Held(SqliteStore):
    """A store on whose way to the disk the commit that leaves a thread waits for the test, once."""

    hold: Hold

    async def commit(self, commit: Commit) -> Committed:
        if commit.release and commit.runs and not self.hold.times:
            return await settled(asyncio.ensure_future(self._late(commit)))
        return await super().commit(commit)

    async def _late(self, commit: Commit) -> Committed:
        await self.hold.here()
        return await super().commit(commit)


@pytest.fixture
def held(tmp_path: Path) -> Held:
    store = Held(tmp_path / "app.db")
    store.hold = Hold()
    return store


async def test_cancel_during_suspension_commit(scripted: Scripted, held: Held) -> None:
    tools = [spying(Spy(), "ask", approval=True)]
    async with Runtime([Agent("agent", model=scripted(call("ask")), tools=tools)], store=held) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(held.hold.reached.wait())
        cancelled = asyncio.create_task(handle.cancel("enough"))
        await until(lambda: runtime._scope.dispatch.active["t"].view.run.cancel)
        held.hold.released.set()
        assert await soon(cancelled) is True
        await assert_cancelled(runtime, "t", "enough")


async def test_cancel_item_during_suspension_commit(scripted: Scripted, held: Held) -> None:
    tools = [spying(Spy(), "ask", approval=True)]
    async with Runtime([Agent("agent", model=scripted(call("ask")), tools=tools)], store=held) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(held.hold.reached.wait())
        item = CancelItem(id=new_id(), thread_id="t", run_id=handle.run_id, reason="enough")
        await soon(runtime._scope.dispatch.deliver(item))
        held.hold.released.set()
        assert (await soon(handle.result())).termination == Cancelled("enough")
        await assert_cancelled(runtime, "t", "enough")


async def test_cancel_item_found_in_run_end_hooks(scripted: Scripted) -> None:
    @tool
    async def tell(ctx: ToolContext) -> str:
        """Have another process put it into the inbox."""
        item = CancelItem(id=new_id(), thread_id="t", run_id=ctx.run.run_id, reason="enough")
        await store.commit(Commit("t", inbox=[item]))
        return "told"

    class Ends(Plugin):
        async def run_end(self, ctx: RunEnd) -> None:
            seen.append(ctx.status)

    seen: list[str] = []
    store, model = MemoryStore(), scripted([call("ask"), call("tell")])
    tools = [spying(Spy(), "ask", approval=True), tell]
    runtime = Runtime([Agent("agent", model=model, tools=tools, plugins=[Ends()])], store=store)
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert (result.termination, seen) == (Cancelled("enough"), ["waiting", "done"])
    await assert_cancelled(runtime, "t", "enough")


async def test_cancel_item_during_read_of_tree_usage(scripted: Scripted) -> None:
    class Counted(MemoryStore):
        async def runs(self, *, root_run_id: str | None = None, **how: Any) -> list[RunRecord]:
            act = runtime._scope.dispatch.active.get("t")
            if act is not None and act.cancellation.task is asyncio.current_task() and not hold.times:
                await hold.here()
            return await super().runs(root_run_id=root_run_id, **how)

    hold = Hold()
    agents = [
        Agent(
            "agent",
            model=scripted(call("agent_run_child", prompt="do it")),
            delegates=[Delegate("child", durable=True)],
        ),
        Agent("child", model=scripted(call("ask"), "done"), tools=[spying(Spy(), "ask", approval=True)]),
    ]
    async with Runtime(agents, store=Counted()) as runtime:
        result = await soon(runtime.run("agent", "go", thread="t"))
        answered = asyncio.create_task(runtime.resume(result.run_id, result.tickets[0].approve()))
        await soon(hold.reached.wait())
        assert await soon(runtime.cancel(result.run_id, "enough")) is True
        assert (await soon(answered)).termination == Cancelled("enough")
        await assert_cancelled(runtime, "t", "enough")


async def test_cancel_is_idempotent() -> None:
    slow = Slow(TextChunk("so"))
    runtime = Runtime([Agent("agent", model=slow.model)])
    task, run_id = await begin(runtime, slow.hold.reached)
    both = await soon(asyncio.gather(runtime.cancel(run_id, "first"), runtime.cancel(run_id, "second")))
    assert both == [True, True]
    assert (await soon(task)).termination == Cancelled("first")
    assert await runtime.cancel(run_id) is False
    assert len(await events_of(runtime, "t", RunFinish)) == 1
    await assert_cancelled(runtime, "t", "first")
    await goes_on(runtime)


async def test_cancel_of_done_or_unknown_run(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted("done"))])
    result = await runtime.run("agent", "go", thread="t")
    before = await log_of(runtime, "t")
    assert await runtime.cancel(result.run_id) is False
    assert await log_of(runtime, "t") == before
    with pytest.raises(UnknownRun, match="nope"):
        await runtime.cancel("nope")


async def test_cancel_by_own_tool(scripted: Scripted) -> None:
    @tool
    async def quit_now(ctx: ToolContext) -> str:
        """Cancel the run from inside."""
        await runtime.cancel(ctx.run.run_id, "from inside")
        return "never"

    runtime = Runtime([Agent("agent", model=scripted(call("quit_now"), "hello again"), tools=[quit_now])])
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert result.termination == Cancelled("from inside")
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "interrupted"
    await goes_on(runtime)


# -- by cancelling the caller --------------------------------------------------------------------------------


async def test_caller_timeout_cancels_run() -> None:
    slow = Slow(TextChunk("half an"))
    runtime = Runtime([Agent("agent", model=slow.model)])

    async def impatient() -> None:
        async with asyncio.timeout(None) as limit:
            limits.append(limit)
            await runtime.run("agent", "go", thread="t")

    limits: list[asyncio.Timeout] = []
    task = asyncio.create_task(impatient())
    await soon(slow.hold.reached.wait())
    limits[0].reschedule(asyncio.get_running_loop().time())
    with pytest.raises(TimeoutError):
        await soon(task)
    await assert_cancelled(runtime, "t", "the caller was cancelled")
    assert (await runtime.threads.messages("t"))[-1].text == "half an"
    await goes_on(runtime)


async def test_cancelled_caller_gets_cancelled_error() -> None:
    slow = Slow()
    runtime = Runtime([Agent("agent", model=slow.model)])
    task, _ = await begin(runtime, slow.hold.reached)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert task.cancelled()
    await assert_cancelled(runtime, "t")
    await goes_on(runtime)


async def test_caller_cancelled_repeatedly_ends_run_cleanly(scripted: Scripted) -> None:
    hold = Hold()

    class Ending(Plugin):
        async def run_end(self, ctx: Any) -> None:
            if hold.times < 2:
                await hold.here()

    slow = Slow()
    runtime = Runtime([Agent("agent", model=slow.model, plugins=[Ending()])])
    task, _ = await begin(runtime, slow.hold.reached)
    task.cancel()
    await soon(hold.reached.wait())
    task.cancel()
    await until(lambda: hold.times == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    await assert_cancelled(runtime, "t")
    await goes_on(runtime)


async def test_cancel_by_request_and_by_caller_at_once() -> None:
    slow = Slow()
    runtime = Runtime([Agent("agent", model=slow.model)])
    task, run_id = await begin(runtime, slow.hold.reached)
    cancelling = asyncio.create_task(runtime.cancel(run_id, "enough"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert await soon(cancelling) is True
    await assert_cancelled(runtime, "t", "enough")
    await goes_on(runtime)


async def test_cancel_by_request_does_not_cancel_caller_task(scripted: Scripted) -> None:
    swallowed = Hold()

    class Deaf(Plugin):
        async def step_start(self, ctx: Step) -> None:
            if not swallowed.times:
                try:
                    await swallowed.here()
                except asyncio.CancelledError:
                    pass

    runtime = Runtime([Agent("agent", model=scripted("hello again"), plugins=[Deaf()])])

    async def caller() -> int:
        result = await runtime.run("agent", "go", thread="t")
        assert isinstance(result.termination, Cancelled)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    task = asyncio.create_task(caller())
    await soon(swallowed.reached.wait())
    (run,) = await runtime.runs.list(thread="t")
    await soon(runtime.cancel(run.id))
    assert await soon(task) == 0
    await goes_on(runtime)


async def test_hook_raising_cancelled_error_fails_run_only(
    scripted: Scripted,
) -> None:
    class Odd(Plugin):
        async def step_start(self, ctx: Step) -> None:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

    runtime = Runtime([Agent("agent", model=scripted(), plugins=[Odd()])])
    result = await soon(runtime.run("agent", "go", thread="t", check=False))
    assert isinstance(result.termination, Failed)
    assert "nobody cancelled the run" in result.termination.message
    await assert_settled(runtime, "t")


async def test_leaving_stream_does_not_cancel_run() -> None:
    slow = Slow(TextChunk("half"))
    runtime = Runtime([Agent("agent", model=slow.model)])
    stream = runtime.stream("agent", "go", thread="t")
    async for event in stream:
        if event.type == "text_delta":
            break
    await stream.aclose()  # type: ignore[attr-defined]
    slow.hold.released.set()
    await until(lambda: not runtime._scope.dispatch.tasks)
    assert (await runtime.threads.messages("t"))[-1].text == "half never"
    await assert_settled(runtime, "t")


# -- in the moment in which a run comes to wait ---------------------------------------------------------------


class AtTheWait(MemoryStore):
    """Lets something happen right before the first commit by which a run comes to wait, or right after it."""

    def __init__(self, *, before: bool) -> None:
        super().__init__()
        self.happens: Callable[[str], Awaitable[Any]] | None = None
        self._before = before

    async def commit(self, commit: Commit) -> Committed:
        waits = commit.more and any(run.status == "waiting" for run in commit.runs)
        if not waits or self.happens is None:
            return await super().commit(commit)
        happens, self.happens = self.happens, None
        if self._before:
            await happens(commit.runs[0].id)
            return await super().commit(commit)
        committed = await super().commit(commit)
        await happens(commit.runs[0].id)
        return committed


def _asks(store: MemoryStore, scripted: Scripted) -> Runtime:
    pay = spying(Spy(), "pay", approval=True)
    return Runtime([Agent("agent", scripted(call("pay")), tools=[pay])], store=store)


async def test_cancel_while_run_suspends_ends_run(scripted: Scripted) -> None:
    store = AtTheWait(before=False)
    runtime = _asks(store, scripted)
    cancelling: list[asyncio.Task[bool]] = []

    async def happens(run_id: str) -> None:
        cancelling.append(asyncio.create_task(runtime.cancel(run_id, "enough")))
        for _ in range(5):
            await asyncio.sleep(0)

    store.happens = happens
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert await soon(cancelling[0])
    assert (await runtime.runs.result(result.run_id)).termination == Cancelled("enough")
    await assert_settled(runtime, "t")


async def test_stop_while_run_suspends_ends_run(scripted: Scripted) -> None:
    store = AtTheWait(before=True)
    runtime = _asks(store, scripted)

    async def happens(run_id: str) -> None:
        await runtime._scope.dispatch.deliver(
            CancelItem(id=new_id(), thread_id="t", run_id=run_id, reason="enough")
        )

    store.happens = happens
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert result.termination == Cancelled("enough")
    await assert_settled(runtime, "t")


async def test_cancel_during_read_of_tree_usage(scripted: Scripted) -> None:
    class Slowly(MemoryStore):
        async def runs(self, **wanted: Any) -> Sequence[RunRecord]:
            if hold is not None and wanted.get("root_run_id") is not None:
                await hold.here()
            return await super().runs(**wanted)

    hold: Hold | None = None
    ask = call("agent_run_child", prompt="go")
    lead = Agent("lead", scripted(ask), delegates=[Delegate("child", durable=True)])
    pay = spying(Spy(), "pay", approval=True)
    child = Agent("child", scripted(call("pay")), tools=[pay])
    runtime = Runtime([lead, child], store=Slowly())
    waiting = await soon(runtime.run("lead", "go", thread="t"))
    hold = Hold()
    answering = asyncio.create_task(runtime.resume(waiting.run_id, waiting.tickets[0].approve()))
    await soon(hold.reached.wait())
    slow, hold = hold, None
    assert await soon(runtime.cancel(waiting.run_id, "enough"))
    slow.released.set()
    assert (await soon(answering)).termination == Cancelled("enough")
    await assert_settled(runtime, "t")
