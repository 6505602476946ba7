"""Compaction: position, protected messages, failures, and forks before a summary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from wakeful import (
    Agent,
    Compaction,
    FunctionModel,
    Limits,
    ModelError,
    ModelRequest,
    Runtime,
    SqliteStore,
    Usage,
    WindowPolicy,
    call,
    tool,
)
from wakeful.context import Span
from wakeful.errors import ModelOverloaded, RateLimited
from wakeful.events import Compacted, StepEnd
from wakeful.loop.inference.summaries import discard_reason
from wakeful.models import Chunk, TextChunk, Turn
from wakeful.testing import FakeClock
from wakeful.types.messages import user_message

from .helpers import Reader, facts_in
from .test_long_conversations import WORDS, agent, events_of, known


async def talk(runtime: Runtime, turns: int, thread: str = "t") -> None:
    for turn in range(turns):
        await runtime.run("a", f"fact-{turn}. {WORDS}", thread=thread)


async def test_summary_is_internal_and_covers_its_span() -> None:
    runtime = Runtime([agent(Reader(known))])
    await talk(runtime, 10)
    log = await runtime.threads.messages("t")
    (summary,) = [message for message in log if message.covers is not None]
    (event,) = await events_of(runtime, Compacted)
    assert summary.role == "user"
    assert summary.visibility == "internal"
    assert summary.text.startswith("<conversation-summary>\nfact-0 fact-1")
    assert summary.covers == (1, event.last)
    assert event.last < summary.seq
    assert (event.outcome, event.message_id, event.model) == ("done", summary.id, "reader")
    assert event.summary_tokens < event.tokens * 0.7
    covered = [message for message in log if message.seq <= event.last]
    assert covered[-1].role == "assistant"
    assert len(covered) == 12


async def test_summary_counts_in_the_run_usage() -> None:
    runtime = Runtime([agent(Reader(known))])
    usage = [(await runtime.run("a", f"fact-{turn}. {WORDS}", thread="t")).usage for turn in range(10)]
    assert usage.count(Usage(100, 10)) == 1
    assert usage.count(Usage()) == 9


async def test_last_user_message_is_never_summarised() -> None:
    """Edge case 51, also if the run itself is long."""
    model = Reader(lambda request: call("look", at=WORDS) if len(model.requests) < 20 else "done")

    @tool(effect="pure")
    async def look(at: str) -> str:
        """Look."""
        return WORDS

    runtime = Runtime([Agent("a", model=model, tools=[look])])
    result = await runtime.run("a", "fact-1: do it all.", thread="t")
    assert result.text == "done"
    assert model.summaries
    assert all("fact-1: do it all." in [m.text for m in request.messages] for request in model.requests)
    assert not any("fact-1: do it all" in request.messages[0].text for request in model.summaries)
    log = await runtime.threads.messages("t")
    assert all(message.covers[0] > log[0].seq for message in log if message.covers is not None)


class Slow(Reader):
    """A model whose summaries wait for an event."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        if "<conversation>" in request.messages[0].text:
            self.begun.set()
            await self.go.wait()
        async for chunk in super().stream(request):
            yield chunk


async def test_summary_is_written_beside_the_run() -> None:
    model = Slow(lambda request: f"ok {WORDS}")
    steps = 0

    @tool(effect="pure")
    async def look() -> str:
        """Look."""
        nonlocal steps
        steps += 1
        if steps == 3:
            await model.begun.wait()
            model.go.set()
            await asyncio.sleep(0)  # The summary is being written.
        return "seen"

    runtime = Runtime([Agent("a", model=model, tools=[look], window=WindowPolicy())])
    await talk(runtime, 8)
    assert not model.begun.is_set()
    model._say = lambda request: call("look") if steps < 4 else "done"
    result = await runtime.run("a", f"Now look. {WORDS * 2}", thread="t")
    assert result.text == "done"
    log = await runtime.store.events("t")
    (place,) = [n for n, event in enumerate(log) if isinstance(event, Compacted)]
    assert log[place].outcome == "done"
    assert isinstance(log[place - 2], StepEnd)
    assert len(model.summaries) == 1
    assert facts_in(model.requests[-1]) >= {"fact-0", "fact-3"}


async def test_run_end_waits_for_its_summary() -> None:
    model = Slow(known)
    runtime = Runtime([agent(model)])
    await talk(runtime, 8)
    last = asyncio.create_task(runtime.run("a", f"fact-9. {WORDS}", thread="t"))
    await model.begun.wait()
    assert not last.done()
    model.go.set()
    assert (await last).status == "done"
    assert [event.outcome for event in await events_of(runtime, Compacted)] == ["done"]


async def test_cancelled_run_leaves_its_summary_to_the_next() -> None:
    # Edge case 50: a summary belongs to its run, so a stale one has no effect.
    model = Slow(known)
    runtime = Runtime([agent(model)])
    await talk(runtime, 8)
    handle = await runtime.start("a", f"fact-8. {WORDS}", thread="t")
    await model.begun.wait()
    await runtime.cancel(handle.run_id)
    assert await events_of(runtime, Compacted) == []
    model.go.set()
    await talk(runtime, 1)
    assert [event.outcome for event in await events_of(runtime, Compacted)] == ["done"]


async def test_closed_runtime_leaves_no_summary_task() -> None:
    model = Slow(known)
    runtime = Runtime([agent(model)])
    await talk(runtime, 8)
    await runtime.start("a", f"fact-8. {WORDS}", thread="t")
    await model.begun.wait()
    await runtime.close()
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("summary")] == []


async def test_failed_summary_is_reported_and_the_run_continues() -> None:
    class Failing(Reader):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            if "<conversation>" in request.messages[0].text:
                raise ModelError("no summaries today")
            async for chunk in super().stream(request):
                yield chunk

    runtime = Runtime([agent(Failing(known))])
    await talk(runtime, 20)
    (event,) = await events_of(runtime, Compacted)
    assert event.outcome == "failed"
    assert "no summaries today; it isn't tried again for 60 s" in event.reason


class Sick(Reader):
    """A model whose summaries fail while it has an error."""

    error: ModelError | None = ModelOverloaded("no capacity")
    tries = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        if "<conversation>" in request.messages[0].text:
            self.tries += 1
            if self.error is not None:
                raise self.error
        async for chunk in super().stream(request):
            yield chunk


async def test_failed_summaries_back_off_across_restarts(
    tmp_path: Any,
) -> None:
    clock, model = FakeClock(), Sick(known)

    def opened() -> Runtime:
        # Entries at the fake clock's time would be pruned by age.
        return Runtime([agent(model)], store=SqliteStore(tmp_path / "a.db"), clock=clock, retention=None)

    async with opened() as runtime:
        await talk(runtime, 12)
    assert model.tries == 1
    for pause in (60, 120, 240, 480, 960, 1920, 3600, 3600):
        before = model.tries
        await clock.advance(pause - 1)
        async with opened() as runtime:
            await talk(runtime, 1)
            assert model.tries == before, f"within {pause} s"
            await clock.advance(1)
            await talk(runtime, 3)
            assert model.tries == before + 1, f"after {pause} s"
    model.error = None
    await clock.advance(3600)
    async with opened() as runtime:
        await talk(runtime, 1)
        assert (await events_of(runtime, Compacted))[-1].outcome == "done"
        model.error = ModelOverloaded("again")
        await talk(runtime, 12)
        assert "for 60 s" in (await events_of(runtime, Compacted))[-1].reason


async def test_failed_summary_respects_retry_after() -> None:
    clock, model = FakeClock(), Sick(known)
    model.error = RateLimited("slow down", retry_after=50.0)
    runtime = Runtime([agent(model)], clock=clock)
    await talk(runtime, 12)
    model.error = RateLimited("slow down", retry_after=500.0)
    await clock.advance(60)
    await talk(runtime, 1)
    assert [event.reason[-5:] for event in await events_of(runtime, Compacted)] == [" 60 s", "500 s"]
    await clock.advance(499)
    await talk(runtime, 1)
    assert model.tries == 2


async def test_invalid_summary_model_fails_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_COMPATIBLE_BASE_URL", raising=False)
    compaction = Compaction(model="openai-compatible:small")
    runtime = Runtime([agent(Reader(known), compaction=compaction)])
    await talk(runtime, 12)
    (event,) = await events_of(runtime, Compacted)
    assert (event.outcome, event.model) == ("failed", "openai-compatible:small")
    assert "needs a base URL" in event.reason


async def test_summary_with_small_savings_is_skipped() -> None:
    """It saves nothing, and later runs don't pay for the same span again."""

    class Wordy(Reader):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            if "<conversation>" in request.messages[0].text:
                self.summaries.append(request)
                yield TextChunk("word " * 3000)
                return
            async for chunk in super().stream(request):
                yield chunk

    model = Wordy(known)
    runtime = Runtime([agent(model)])
    await talk(runtime, 12)
    events = await events_of(runtime, Compacted)
    assert {event.outcome for event in events} == {"skipped"}
    assert "save too little" in events[0].reason
    assert len(model.summaries) == len({event.last for event in events})
    assert not any(message.covers for message in await runtime.threads.messages("t"))


async def test_summary_may_use_another_model_and_prompt() -> None:
    asked: list[ModelRequest] = []

    def write(request: ModelRequest) -> str:
        asked.append(request)
        return "All is well, fact-0."

    compaction = Compaction(model="writer:small", prompt="Be terse.", max_tokens=100)
    model = Reader(known)
    runtime = Runtime(
        [agent(model, compaction=compaction)], models={"writer:small": FunctionModel(write, name="writer:small")}
    )
    await talk(runtime, 10)
    assert model.summaries == []
    assert (asked[0].system, asked[0].settings.max_tokens, asked[0].tools) == ("Be terse.", 100, ())
    assert [event.model for event in await events_of(runtime, Compacted)] == ["writer:small"]


async def test_older_messages_are_cut_without_compaction() -> None:
    model = Reader(known)
    runtime = Runtime([agent(model, compaction=None)])
    await talk(runtime, 20)
    assert model.summaries == []
    assert "fact-0" not in facts_in(model.requests[-1])
    assert "not shown" in model.requests[-1].messages[0].text
    starts = [request.messages[1].id for request in model.requests if len(request.messages) > 1]
    assert len(set(starts[10:])) < 6  # Several requests share a prefix, which vendors cache.


async def test_fork_before_a_summary_has_all_messages(tmp_path: Any) -> None:
    model = Reader(known)
    runtime = Runtime([agent(model)], store=SqliteStore(tmp_path / "a.db"))
    await talk(runtime, 10)
    (event,) = await events_of(runtime, Compacted)
    before = await runtime.threads.fork("t", at=event.last, into="before")
    model.requests.clear()
    await runtime.run("a", "And?", thread=before)
    assert not any(message.covers for message in model.requests[0].messages)
    covered = [message for message in await runtime.threads.messages("t") if message.seq <= event.last]
    assert [message.text for message in model.requests[0].messages[:-1]] == [message.text for message in covered]
    after = await runtime.threads.fork("t", into="after")
    await runtime.run("a", "And?", thread=after)
    assert [bool(message.covers) for message in model.requests[1].messages][:2] == [True, False]
    await runtime.close()


async def test_export_and_import_keep_a_summary(tmp_path: Any) -> None:
    runtime = Runtime([agent(Reader(known))])
    await talk(runtime, 10)
    lines = [line async for line in runtime.threads.export("t")]
    model = Reader(known)
    other = Runtime([agent(model)], store=SqliteStore(tmp_path / "b.db"))
    await other.threads.import_(lines)
    await other.run("a", "And?", thread="t")
    assert [bool(message.covers) for message in model.requests[0].messages][:2] == [True, False]
    assert len(model.requests[0].messages) < 12
    await other.close()


async def test_forked_delegate_sees_the_summary() -> None:
    from wakeful import Delegate

    seen: list[ModelRequest] = []

    def child(request: ModelRequest) -> str:
        seen.append(request)
        return "done"

    model = Reader(known)
    lead = Agent("a", model=model, delegates=[Delegate("b", fork=True)])
    runtime = Runtime([lead, Agent("b", model=FunctionModel(child))])
    await talk(runtime, 10)
    model._say = lambda request: (
        call("agent_run_b", prompt="Go on", fork_context=True) if request.messages[-1].role == "user" else "ok"
    )
    await runtime.run("a", "Ask b.", thread="t")
    assert "fact-0" in facts_in(seen[0])
    assert not any(message.covers for message in seen[0].messages)


@pytest.mark.parametrize("turn", [Turn(text=""), Turn(text="  \n")])
async def test_empty_summary_is_skipped(turn: Turn) -> None:
    class Silent(Reader):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            if "<conversation>" in request.messages[0].text:
                for piece in [turn.text] if turn.text else []:
                    yield TextChunk(str(piece))
                return
            async for chunk in super().stream(request):
                yield chunk

    runtime = Runtime([agent(Silent(known))])
    await talk(runtime, 9)
    assert [event.reason for event in await events_of(runtime, Compacted)] == ["the summary is empty"]


async def test_suspended_run_writes_its_summary_after_resume() -> None:
    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    model = Slow(lambda request: f"ok {WORDS}")
    runtime = Runtime([Agent("a", model=model, tools=[pay])])
    await talk(runtime, 8)

    async def ask(request: ModelRequest) -> Any:
        await model.begun.wait()
        return call("pay")

    model._say = lambda request: ask(request) if request.messages[-1].role == "user" else "done"
    result = await runtime.run("a", f"Pay. {WORDS}", thread="t")
    assert result.status == "waiting"
    assert await events_of(runtime, Compacted) == []
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("summary")] == []
    model.go.set()
    (ticket,) = result.tickets
    assert (await runtime.resume(result.run_id, ticket.approve())).text == "done"
    assert [event.outcome for event in await events_of(runtime, Compacted)] == ["done"]


async def test_limited_history_is_summarised() -> None:
    model = Reader(known)
    limits = Limits(history=14)
    runtime = Runtime([Agent("a", model=model, limits=limits, window=WindowPolicy(max_tokens=1600))])
    await talk(runtime, 20)
    spans = [event for event in await events_of(runtime, Compacted) if event.outcome == "done"]
    assert spans
    assert spans[-1].first > 1
    log = await runtime.threads.messages("t")
    assert len(log) - sum(message.covers is not None for message in log) == 40


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_summary_of_changed_history_is_discarded(lost: int) -> None:
    # Edge case 52.
    history = [user_message(f"fact-{number}") for number in range(4)]
    part, how = Span(tuple(history[:3]), 1, 3, 1000), Compaction()
    assert discard_reason(history, part, "short", 10, how) is None
    del history[lost]
    assert discard_reason(history, part, "short", 10, how) == "the conversation is no longer as it was"
