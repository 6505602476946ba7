"""Guardrails: input is judged before a model reads it, an answer before anybody does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from wakeful import Agent, ConfigurationError, Message, ModelRequest, Runtime, SqliteStore, Usage, call
from wakeful.models import CallDeltaChunk, CallStartChunk, StopChunk, TextChunk
from wakeful.plugins import Block, Guardrail, HookContext, Rewrite
from wakeful.testing import FakeClock, FunctionModel, Turn
from wakeful.types.content import Text
from wakeful.types.events import Delta, MessageAdded, StepStart, ToolCallStart
from wakeful.types.runs import Blocked, Cancelled, NaturalEnd

from .helpers import Hold, Scripted, Spy, assert_settled, events_of, outcomes, soon, spying, until


def no_secrets(message: Message, ctx: HookContext) -> Block | None:
    return Block("it has a secret") if "secret" in message.text else None


def redacted(message: Message, ctx: HookContext) -> Rewrite | None:
    return Rewrite(message.text.replace("4711", "****")) if "4711" in message.text else None


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


# -- input -----------------------------------------------------------------------------------------------------


async def test_blocked_input_reaches_no_model(scripted: Scripted) -> None:
    model = scripted("hello")
    runtime = Runtime([Agent("agent", model=model, guardrails=[Guardrail("secrets", input=no_secrets)])])
    result = await runtime.run("agent", "a secret", thread="t")
    assert (result.termination, result.steps) == (Blocked("it has a secret"), 0)
    assert model.requests == []
    assert (await runtime.run("agent", "hi", thread="t")).text == "hello"
    assert texts(model.requests[0]) == ["[This message was blocked, and is not shown.]", "hi"]


async def test_rewritten_input_is_shown_to_every_later_request(scripted: Scripted, tmp_path: Path) -> None:
    model = scripted("one", "two")
    agent = Agent("agent", model=model, guardrails=[Guardrail("cards", input=redacted)])
    for text in ("card 4711", "and now?"):
        async with Runtime([agent], store=SqliteStore(tmp_path / "a.db", synchronous="NORMAL")) as runtime:
            await runtime.run("agent", text, thread="t")
    assert texts(model.requests[0]) == ["card ****"]
    assert texts(model.requests[1]) == ["card ****", "one", "and now?"]


async def test_steering_input_is_judged_before_next_request(scripted: Scripted) -> None:
    hold = Hold()

    async def wait() -> str:
        """Wait."""
        await hold.here()
        return "done"

    model = scripted(call("wait"))
    guardrails = [Guardrail("secrets", input=no_secrets)]
    runtime = Runtime([Agent("agent", model=model, tools=[wait], guardrails=guardrails)])
    work = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    await runtime.send("t", "a secret", policy="steer")
    hold.released.set()
    assert (await soon(work)).termination == Blocked("it has a secret")
    assert len(model.requests) == 1


async def test_queued_input_is_judged_before_its_run(scripted: Scripted) -> None:
    model = scripted("one", "two")
    guardrails = [Guardrail("cards", input=redacted)]
    runtime = Runtime([Agent("agent", model=model, guardrails=guardrails)])
    results = [runtime.run("agent", text, thread="t") for text in ("go", "card 4711")]
    await soon(asyncio.gather(*results))
    assert texts(model.requests[1])[-1] == "card ****"


async def test_input_is_judged_once(scripted: Scripted) -> None:
    seen: list[str] = []

    async def watch(message: Message, ctx: HookContext[str]) -> None:
        seen.append(f"{message.text} {ctx.deps}")

    model = scripted(call("act"), "done", "again")
    agent = Agent("agent", model=model, tools=[spying(Spy(), "act")], guardrails=[Guardrail("watch", input=watch)])
    runtime = Runtime([agent], deps="d")
    await runtime.run("agent", "first", thread="t")
    await runtime.run("agent", "second", thread="t")
    assert seen == ["first d", "second d"]


async def test_input_of_cancelled_run_is_judged_in_the_next(scripted: Scripted) -> None:
    """A model never reads input whose run ended before the guardrails had judged it."""
    hold = Hold()

    async def judge(message: Message, ctx: HookContext) -> Block | None:
        if not hold.released.is_set():
            await hold.here()
        return no_secrets(message, ctx)

    model = scripted("hello")
    runtime = Runtime([Agent("agent", model=model, guardrails=[Guardrail("secrets", input=judge)])])
    work = asyncio.create_task(runtime.run("agent", "a secret", thread="t"))
    await soon(hold.reached.wait())
    (run,) = await runtime.runs.list(thread="t")
    await runtime.cancel(run.id)
    assert isinstance((await soon(work)).termination, Cancelled)
    hold.released.set()
    assert (await runtime.run("agent", "hi", thread="t")).text == "hello"
    assert "secret" not in "".join(texts(model.requests[0]))


async def test_rewrite_survives_export_and_import(scripted: Scripted) -> None:
    model = scripted("one", "two")
    agent = Agent("agent", model=model, guardrails=[Guardrail("cards", input=redacted)])
    here, there = Runtime([agent]), Runtime([agent])
    await here.run("agent", "card 4711", thread="t")
    await there.threads.import_([line async for line in here.threads.export("t")])
    await there.run("agent", "go on", thread="t")
    assert texts(model.requests[1]) == ["card ****", "one", "go on"]


# -- output ----------------------------------------------------------------------------------------------------


async def test_blocked_answer_is_not_stored_and_no_tool_starts(scripted: Scripted) -> None:
    spy = Spy()
    turn = Turn(text="a secret", calls=(call("act"),), usage=Usage(input_tokens=7))
    agent = Agent(
        "agent",
        model=scripted(turn),
        tools=[spying(spy, "act")],
        guardrails=[Guardrail("secrets", output=no_secrets)],
    )
    runtime = Runtime([agent])
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == Blocked("it has a secret")
    assert (spy.ran, result.usage.input_tokens, await outcomes(runtime, result.run_id)) == ([], 7, {})
    assert [m.text for m in await runtime.threads.messages("t")] == ["go"]
    await assert_settled(runtime, "t")


async def test_rewritten_answer_alone_is_stored(scripted: Scripted) -> None:
    model = scripted("the card is 4711", "bye")
    runtime = Runtime([Agent("agent", model=model, guardrails=[Guardrail("cards", output=redacted)])])
    result = await runtime.run("agent", "go", thread="t")
    assert (result.text, result.termination) == ("the card is ****", NaturalEnd())
    assert b"4711" not in b"".join([line async for line in runtime.threads.export("t")])
    await runtime.run("agent", "more", thread="t")
    assert texts(model.requests[1]) == ["go", "the card is ****", "more"]


async def test_rewrite_drops_calls_that_it_leaves_out(scripted: Scripted) -> None:
    def only_first(message: Message, ctx: HookContext) -> Rewrite | None:
        return Rewrite([Text("one"), message.calls[0]]) if message.calls else None

    spy = Spy()
    tools = [spying(spy, "one"), spying(spy, "two")]
    model = scripted([call("one"), call("two")], "done")
    runtime = Runtime([Agent("agent", model=model, tools=tools, guardrails=[Guardrail("g", output=only_first)])])
    result = await runtime.run("agent", "go", thread="t")
    assert (result.text, spy.ran) == ("done", ["one"])
    await assert_settled(runtime, "t")


async def test_typed_output_is_read_after_rewrite(scripted: Scripted) -> None:
    class Card(Struct):
        number: str

    model = scripted('{"number": "4711"}')
    agent = Agent("agent", model=model, output=Card, guardrails=[Guardrail("cards", output=redacted)])
    assert (await Runtime([agent]).run("agent", "go")).output == Card("****")


async def test_guardrails_judge_in_turn_until_one_blocks(scripted: Scripted) -> None:
    seen: list[str] = []

    def watch(message: Message, ctx: HookContext) -> None:
        seen.append(message.text)

    checks = [redacted, watch, lambda m, c: Block("enough"), watch]
    guardrails = [Guardrail(f"g{n}", output=check) for n, check in enumerate(checks)]
    result = await Runtime([Agent("agent", model=scripted("4711"), guardrails=guardrails)]).run("agent", "go")
    assert (result.termination, seen) == (Blocked("enough"), ["****"])


class Dictation:
    """A model that streams text and a call, with time passing, and stops before the end until it is let go."""

    name, live = "dictation", False

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.hold = clock, Hold()
        self.read: list[list[str]] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        self.read.append(texts(request))
        if len(self.read) > 1:
            yield TextChunk("done")
        else:
            for chunk in (TextChunk("one "), TextChunk("two"), CallStartChunk(0, "act"), CallDeltaChunk(0, "{}")):
                await self.clock.advance(0.3)
                yield chunk
            await self.hold.here()
        yield StopChunk("end_turn")


async def test_deltas_and_checkpoints_are_withheld(tmp_path: Path) -> None:
    """Readers here, elsewhere and late see nothing of an answer until it has passed; then they see its message."""
    clock = FakeClock()
    model, judging, spy = Dictation(clock), Hold(), Spy()

    async def judge(message: Message, ctx: HookContext) -> None:
        await judging.here()

    agent = Agent("agent", model=model, tools=[spying(spy, "act")], guardrails=[Guardrail("g", output=judge)])
    store = SqliteStore(tmp_path / "a.db", synchronous="NORMAL")
    async with Runtime([agent], store=store, clock=clock) as runtime:
        early, late = list[Any](), list[Any]()

        async def read(into: list[Any]) -> None:
            async for event in runtime.events("t"):
                into.append(event)
                if isinstance(event, MessageAdded) and event.message.text == "done":
                    return

        work = asyncio.create_task(runtime.run("agent", "go", thread="t"))
        readers = [asyncio.create_task(read(early))]
        await soon(model.hold.reached.wait())
        assert await store.chunks("t") == []
        readers.append(asyncio.create_task(read(late)))
        await until(lambda: any(isinstance(event, StepStart) for event in late))
        await runtime.threads.messages("t")  # The reader has joined the answer by now.
        model.hold.released.set()
        await soon(judging.reached.wait())
        assert [m.text for m in await runtime.threads.messages("t")] == ["go"]
        assert spy.ran == []
        judging.released.set()
        assert (await soon(work)).text == "done"
        await soon(asyncio.gather(*readers))
    assert spy.ran == ["act"]
    for seen in (early, late):
        assert [e for e in seen if isinstance(e, Delta | ToolCallStart)] == []
        assert [e.message.text for e in seen if isinstance(e, MessageAdded)][:2] == ["go", "one two"]


async def test_partial_answer_of_cancelled_run_is_dropped() -> None:
    hold = Hold()

    async def stream() -> AsyncIterator[Any]:
        yield TextChunk("half a secret")
        await hold.here()

    model = FunctionModel(lambda request: stream())
    runtime = Runtime([Agent("agent", model=model, guardrails=[Guardrail("secrets", output=no_secrets)])])
    work = asyncio.create_task(runtime.run("agent", "go", thread="t"))
    await soon(hold.reached.wait())
    (run,) = await runtime.runs.list(thread="t")
    await runtime.cancel(run.id)
    assert isinstance((await soon(work)).termination, Cancelled)
    assert [m.text for m in await runtime.threads.messages("t")] == ["go"]


async def test_answer_is_asked_for_again_after_crash_before_verdict(tmp_path: Path) -> None:
    clock = FakeClock()
    model = Dictation(clock)
    agent = Agent(
        "agent", model=model, tools=[spying(Spy(), "act")], guardrails=[Guardrail("s", output=no_secrets)]
    )

    def opened() -> Runtime:
        return Runtime([agent], store=SqliteStore(tmp_path / "a.db", synchronous="NORMAL"), clock=clock)

    first = opened()
    work = asyncio.create_task(first.run("agent", "go", thread="t"))
    await soon(model.hold.reached.wait())
    lease = first._scope.shared.worker.state.lease
    assert lease is not None
    await lease.close()  # What this process still does can't be written.
    async with opened() as second:
        (run,) = await second.runs.list()
        assert (await soon(second.wait(run.id))).text == "done"
        assert model.read == [["go"], ["go"]]
        assert len(await events_of(second, "t", StepStart)) == 1
    model.hold.released.set()
    await asyncio.gather(work, return_exceptions=True)
    await first.close()


# -- faults ----------------------------------------------------------------------------------------------------


def raises(message: Message, ctx: HookContext) -> None:
    raise RuntimeError("the judge is ill")


def writes(message: Message, ctx: HookContext) -> None:
    ctx.end_run("enough")


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize(
    ("check", "says"),
    [
        (raises, "guardrail 'g' failed: RuntimeError: unexpected error, reference"),
        (writes, "it wrote something"),
        (lambda m, c: True, "it returned True"),
        (lambda m, c: Rewrite(""), "the input is empty"),
    ],
)
async def test_guardrail_that_fails_blocks(scripted: Scripted, side: str, check: Any, says: str) -> None:
    guardrail = Guardrail("g", **{side: check})
    model = scripted(*["hi"] if side == "output" else [])
    result = await Runtime([Agent("agent", model=model, guardrails=[guardrail])]).run("agent", "go")
    assert isinstance(result.termination, Blocked)
    assert says in result.termination.reason
    assert "ill" not in result.termination.reason


@pytest.mark.parametrize(
    ("guardrail", "says"),
    [
        (no_secrets, r"write Guardrail\(name, input=..., output=...\)"),
        (Guardrail("g"), "guardrail 'g' judges nothing"),
        (Guardrail("g", input=lambda m: None), "input is called with a message and a context"),  # type: ignore[misc,arg-type]
    ],
)
def test_wrong_guardrails_are_refused(scripted: Scripted, guardrail: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Runtime([Agent("agent", model=scripted(), guardrails=[guardrail])])
