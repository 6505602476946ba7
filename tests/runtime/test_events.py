"""Observers: the order of events, the log behind them, and readers that join late, leave or lag."""

from __future__ import annotations

from typing import Any

from loop.helpers import Scripted, Spy, assert_settled, log_of, soon, spying
from wakeful import Agent, Plugin, Runtime, StateKey, ToolContext, Turn, call, tool
from wakeful.models import CallDeltaChunk, CallStartChunk, ReasoningChunk, StopChunk, TextChunk
from wakeful.plugins import RunEnd
from wakeful.testing import Recorder
from wakeful.types.events import (
    Event,
    MessageAdded,
    ReasoningDelta,
    RunStart,
    StateDelta,
    TextDelta,
    ToolCallDelta,
    ToolOutput,
    ToolProgress,
)


class Count(StateKey[int, int]):
    """A number of the thread."""

    name, scope, default = "count", "thread", 0

    def apply(self, value: int, update: int) -> int:
        return value + update


@tool
async def act(ctx: ToolContext, x: int = 0) -> str:
    """Show what it does, and count."""
    ctx.stream("working")
    ctx.progress(0.5, message="half way")
    ctx.update(Count, 1)
    return f"act {x}"


def counting(model: Any, **options: Any) -> Runtime:
    """A runtime whose agent can act."""
    return Runtime([Agent("agent", model=model, tools=[act], **options)], keys=[Count])


async def record(runtime: Runtime, text: str = "go", thread: str = "t") -> Recorder:
    """Everything that one run shows."""
    return await soon(Recorder().record(runtime.stream("agent", text, thread=thread)))


# -- order ---------------------------------------------------------------------------------------------------


async def test_order_of_single_answer(scripted: Scripted) -> None:
    recorder = await record(counting(scripted(Turn(text=["Hel", "lo"], thinking="hm"))))
    assert recorder.types == [
        "run_start",
        "message",
        "step_start",
        "reasoning_delta",
        "text_delta",
        "text_delta",
        "message",
        "inference_complete",
        "step_end",
        "run_finish",
    ]


async def test_order_of_step_with_tools(scripted: Scripted) -> None:
    recorder = await record(counting(scripted(Turn(text="So: ", calls=[call("act")]), "done")))
    assert recorder.types == [
        "run_start",
        "message",
        "step_start",
        "text_delta",
        "tool_call_start",
        "message",
        "inference_complete",
        "tool_call_ready",
        "tool_output",
        "tool_progress",
        "message",
        "tool_call_done",
        "step_end",
        "step_start",
        "state_delta",
        "text_delta",
        "message",
        "inference_complete",
        "step_end",
        "run_finish",
    ]
    assert recorder.one(StateDelta).changes == {"count": 1}
    assert recorder.one(ToolOutput).delta == "working"
    assert recorder.one(ToolProgress).fraction == 0.5


async def test_run_finish_is_last_event_after_state_write(scripted: Scripted) -> None:
    class Ending(Plugin):
        async def run_end(self, ctx: RunEnd) -> None:
            ctx.update(Count, 1)

    recorder = await record(counting(scripted("done"), plugins=[Ending()]))
    assert recorder.types[-2:] == ["state_delta", "run_finish"]

    asks = spying(Spy(), "ask", approval=True)
    agent = Agent("agent", model=scripted([call("act"), call("ask")]), tools=[act, asks])
    recorder = await record(Runtime([agent], keys=[Count]))
    assert recorder.types[-2:] == ["state_delta", "run_finish"]


async def test_every_event_has_its_run_identity(scripted: Scripted) -> None:
    recorder = await record(counting(scripted(call("act"), "done")))
    first = recorder.one(RunStart)
    for event in recorder.events:
        assert (event.run_id, event.thread_id, event.run.agent_id) == (first.run_id, "t", "agent")
        assert (event.run.root_run_id, event.run.parent_run_id, event.run.depth) == (first.run_id, None, 0)
        assert event.at > 0


async def test_event_is_logged_before_it_is_shown(scripted: Scripted) -> None:
    runtime = counting(scripted(call("act"), "done"))
    async for event in runtime.stream("agent", "go", thread="t"):
        stored = await runtime.store.load("t")
        assert stored is not None
        assert event.seq <= stored.thread.head
        if event.durable:
            assert (await runtime.store.events("t", after=event.seq - 1))[0] == event


# -- deltas --------------------------------------------------------------------------------------------------


async def test_deltas_have_absolute_offsets_and_join_to_message(scripted: Scripted) -> None:
    chunks = [
        ReasoningChunk("let "),
        ReasoningChunk("me"),
        TextChunk("Hé"),
        TextChunk("llo"),
        CallStartChunk(0, "act"),
        CallDeltaChunk(0, '{"x"'),
        CallDeltaChunk(0, ": 1}"),
        TextChunk(" there"),
        StopChunk("tool_use"),
    ]
    recorder = await record(counting(scripted(Turn(chunks=chunks), "done")))
    answer = recorder.of(MessageAdded)[1].message
    for kind, text in ((TextDelta, "Héllo there"), (ReasoningDelta, "let me"), (ToolCallDelta, '{"x": 1}')):
        joined = ""
        for delta in recorder.of(kind):
            if delta.message_id == answer.id:
                assert delta.offset == len(joined)
                joined += delta.delta
        assert joined == text
    assert answer.text == "Héllo there"


async def test_deltas_are_not_made_without_reader(scripted: Scripted) -> None:
    runtime = counting(scripted("done"))
    await runtime.run("agent", "go", thread="t")
    assert all(event.durable for event in await log_of(runtime, "t"))


# -- the log -------------------------------------------------------------------------------------------------


async def busy_thread(scripted: Scripted) -> Runtime:
    """A runtime whose thread `t` has seen all sorts of things."""
    ask = spying(Spy(), "ask", approval=True)
    model = scripted([call("act"), call("ask")], "one", [call("act"), call("ask")], "two", OSError("no"))
    runtime = Runtime([Agent("agent", model=model, tools=[act, ask])], keys=[Count])
    first = await runtime.run("agent", "go", thread="t")
    await runtime.resume(first.run_id, first.tickets[0].approve())
    await runtime.run("agent", "again", thread="t")
    await runtime.run("agent", "supersede", thread="t")
    await runtime.run("agent", "fail", thread="t", check=False)
    return runtime


async def test_log_has_no_gaps_and_every_cursor_gives_same_tail(scripted: Scripted) -> None:
    runtime = await busy_thread(scripted)
    log = await log_of(runtime, "t")
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    for after in range(len(log) + 1):
        assert [e async for e in runtime.events("t", after=after, follow=False)] == log[after:]
        if after:
            cursor = log[after - 1].cursor
            assert [e async for e in runtime.events("t", after=cursor, follow=False)] == log[after:]
    await assert_settled(runtime, "t")


async def test_messages_have_log_positions(scripted: Scripted) -> None:
    runtime = await busy_thread(scripted)
    added = [e for e in await log_of(runtime, "t") if isinstance(e, MessageAdded)]
    assert [e.message for e in added] == await runtime.threads.messages("t")
    assert all(e.seq == e.message.seq for e in added)


async def test_streamed_durable_events_equal_log(scripted: Scripted) -> None:
    runtime = counting(scripted(call("act"), "one", call("act"), "two"))
    shown: list[Event] = []
    for _ in range(2):
        shown += [e for e in (await record(runtime)).events if e.durable]
    assert shown == await log_of(runtime, "t")
