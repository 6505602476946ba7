"""Signals to a running backend: steering input, and decisions on its questions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loop.helpers import Hold, events_of, soon, until, until_idle
from wakeful import Agent, Message, Plugin, Runtime, ScriptedModel, SqliteStore, call
from wakeful.backends import BackendResult, Capabilities, Question, WaitingInput
from wakeful.errors import TicketClosed
from wakeful.plugins import BeforeInference
from wakeful.testing import FakeClock
from wakeful.types.content import text_of
from wakeful.types.events import StepStart, TextDelta
from wakeful.types.runs import Cancelled

from .helpers import REMOTE, Scripted, recorded, serving

HEARS = msgspec.structs.replace(REMOTE, decisions=True, steering=True)
COLOUR = Question("colour", "Which colour?")


async def tickets_of(runtime: Runtime, count: int = 1) -> list[Any]:
    async with asyncio.timeout(30):
        while len(found := list(await runtime.tickets.list(status="open"))) < count:
            await asyncio.sleep(0.01)
    return found


# -- input ---------------------------------------------------------------------------------------------------


async def test_steering_input_is_received_in_turn() -> None:
    hold = Hold()

    async def work(request: Any) -> BackendResult:
        hold.reached.set()
        heard = [(await request.control.receive()).text for _ in range(2)]
        return BackendResult("far", response=" and ".join(heard))

    backend = Scripted(work, capabilities=HEARS)
    runtime = serving(backend)
    handle = await runtime.start("far", "hi", thread="t")
    await soon(hold.reached.wait())
    for text in ("faster", "blue"):
        await runtime.send("t", text, policy="steer")
    assert (await soon(handle.result())).text == "faster and blue"
    # Committed when it is received, before the answer.
    assert [m.text for m in await runtime.threads.messages("t")] == ["hi", "faster", "blue", "faster and blue"]
    assert len(backend.requests) == 1


async def test_steering_input_that_is_not_received_starts_a_step() -> None:
    hold = Hold()

    async def work(request: Any) -> BackendResult:
        await hold.here()
        return BackendResult("far", response="one")

    backend = Scripted(work, "two", capabilities=HEARS)
    runtime = serving(backend)
    handle = await runtime.start("far", "hi", thread="t")
    await soon(hold.reached.wait())
    await runtime.send("t", "faster", policy="steer")
    hold.released.set()
    assert (await soon(handle.result())).text == "two"
    assert [m.text for m in backend.requests[1].messages] == ["faster"]


async def test_signals_are_none_unless_declared() -> None:
    backend = Scripted("ok", "ok", capabilities=Capabilities.remote_stateless_text())
    await serving(backend).run("far", "hi")
    control = backend.requests[0].control
    assert (control.cancelled, control.ask, control.receive) == (None, None, None)


class Redact(Plugin):
    """Hides a word from every request."""

    async def before_inference(self, ctx: BeforeInference) -> None:
        ctx.plan.messages = tuple([redacted(message) for message in ctx.messages])


def redacted(message: Message) -> Message:
    raw = msgspec.json.encode(message).replace(b"secret", b"***")
    return msgspec.json.decode(raw, type=Message)


async def test_hooks_see_received_input_and_answers() -> None:
    heard: list[str] = []

    async def work(request: Any) -> BackendResult:
        heard.append((await request.control.receive()).text)
        heard.append(text_of((await request.control.ask(COLOUR)).reply.content))
        return BackendResult("far", response="ok")

    agent = Agent("far", backend=Scripted(work, capabilities=HEARS), plugins=[Redact()])
    runtime = Runtime([agent])
    handle = await runtime.start("far", "hi", thread="t")
    await runtime.send("t", "my secret is 5", policy="steer")
    (ticket,) = await tickets_of(runtime)
    await runtime.tickets.answer(ticket.id, "secret red")
    await soon(handle.result())
    assert heard == ["my *** is 5", "*** red"]


# -- questions -----------------------------------------------------------------------------------------------


async def test_question_is_answered_while_backend_runs() -> None:
    async def work(request: Any) -> BackendResult:
        request.emit("I paint it ")
        reply = (await request.control.ask(COLOUR)).reply
        return BackendResult("far", response=f"I paint it {msgspec.json.decode(reply.data)}")

    backend = Scripted(work, capabilities=HEARS)
    runtime = serving(backend)
    handle = await runtime.start("far", "hi", thread="t")
    (ticket,) = await tickets_of(runtime)
    assert (ticket.message, ticket.asked_by) == ("Which colour?", "remote")
    assert (await runtime.runs.get(handle.run_id)).status == "running"
    result = await soon(runtime.tickets.answer(ticket.id, "red"))
    assert (result.text, len(backend.requests)) == ("I paint it red", 1)
    assert [t.delta for t in await deltas_of(runtime)] == []
    answer = (await runtime.threads.messages("t"))[-1]
    assert [c.id for c in answer.calls] == [ticket.call_id]
    assert [(c.name, c.state) for c in await runtime.runs.calls(handle.run_id)] == [("input_required", "finished")]


async def deltas_of(runtime: Runtime) -> list[TextDelta]:
    return await events_of(runtime, "t", TextDelta)


async def test_answer_streams_on_after_a_question() -> None:
    async def work(request: Any) -> BackendResult:
        request.emit("One ")
        await request.control.ask(COLOUR)
        request.emit("two.")
        return BackendResult("far")

    runtime = serving(Scripted(work, capabilities=HEARS))
    seeing = asyncio.create_task(recorded(runtime))
    (ticket,) = await tickets_of(runtime)
    await runtime.tickets.answer(ticket.id, "red")
    seen = await soon(seeing)
    assert [(d.offset, d.delta) for d in seen.of(TextDelta)] == [(0, "One "), (4, "two.")]
    assert seen.text == "One two."


async def test_questions_are_answered_in_any_order() -> None:
    async def work(request: Any) -> BackendResult:
        asked = [request.control.ask(Question(name, name)) for name in ("a", "b")]
        first, second = await asyncio.gather(*asked)
        return BackendResult("far", response=text_of(first.reply.content + second.reply.content))

    runtime = serving(Scripted(work, capabilities=HEARS))
    handle = await runtime.start("far", "hi", thread="t")
    tickets = {ticket.message: ticket for ticket in await tickets_of(runtime, 2)}
    answering = asyncio.create_task(runtime.tickets.answer(tickets["b"].id, "B"))
    await until(lambda: answering.done() or True)
    await runtime.tickets.answer(tickets["a"].id, "A")
    await answering
    assert (await soon(handle.result())).text == "AB"


async def test_withdrawn_question_closes_its_ticket() -> None:
    """A backend that decides at its own deadline cancels the call."""
    hold = Hold()

    async def work(request: Any) -> BackendResult:
        asking = asyncio.create_task(request.control.ask(COLOUR))
        await hold.here()
        asking.cancel()
        return BackendResult("far", response="I take green")

    runtime = serving(Scripted(work, capabilities=HEARS))
    handle = await runtime.start("far", "hi", thread="t")
    (ticket,) = await tickets_of(runtime)
    hold.released.set()
    assert (await soon(handle.result())).text == "I take green"
    assert (await runtime.tickets.get(ticket.id)).status == "settled"
    with pytest.raises(TicketClosed):
        await runtime.tickets.answer(ticket.id, "red")


async def test_cancelled_run_closes_its_question() -> None:
    async def work(request: Any) -> BackendResult:
        await request.control.ask(COLOUR)
        return BackendResult("far")

    backend = Scripted(work, capabilities=HEARS)
    runtime = serving(backend)
    handle = await runtime.start("far", "hi", thread="t")
    (ticket,) = await tickets_of(runtime)
    await handle.cancel()
    assert isinstance((await soon(handle.result())).termination, Cancelled)
    assert (await runtime.tickets.get(ticket.id)).status == "cancelled"
    assert [c.state for c in await runtime.runs.calls(handle.run_id)] == ["finished"]
    await until_idle(runtime)


async def test_waiting_result_after_a_question_waits() -> None:
    """An answer from before the end of the request isn't an answer to the question with which it ends."""

    async def work(request: Any) -> BackendResult:
        await request.control.ask(COLOUR)
        return BackendResult("far", WaitingInput("And the size?"))

    backend = Scripted(work, "a large red one", capabilities=HEARS)
    runtime = serving(backend)
    handle = await runtime.start("far", "hi", thread="t")
    (ticket,) = await tickets_of(runtime)
    result = await soon(runtime.tickets.answer(ticket.id, "red"))
    assert (result.status, [t.message for t in result.tickets]) == ("waiting", ["And the size?"])
    result = await runtime.resume(handle.run_id, result.tickets[0].answer("large"))
    assert (result.text, len(backend.requests)) == ("a large red one", 2)
    assert [d.value for d in backend.requests[1].decisions] == ["large"]
    assert [text_of(m.reply.content) for m in backend.requests[1].messages] == ["large"]


async def test_question_of_delegate_is_answered_while_it_runs() -> None:
    async def work(request: Any) -> BackendResult:
        return BackendResult(
            "far", response="painted " + text_of((await request.control.ask(COLOUR)).reply.content)
        )

    lead = Agent("lead", model=ScriptedModel([call("agent_run_far", prompt="go"), "ok"]), delegates=["far"])
    runtime = Runtime([lead, Agent("far", backend=Scripted(work, capabilities=HEARS))])
    handle = await runtime.start("lead", "hi", thread="t")
    (ticket,) = await tickets_of(runtime)
    await runtime.tickets.answer(ticket.id, "red")
    await soon(handle.result())
    replies = [text_of(m.reply.content) for m in await runtime.threads.messages("t") if m.reply]
    assert replies == ["painted red"]


# -- crashes -------------------------------------------------------------------------------------------------


def opened(path: Path, backend: Scripted, clock: FakeClock) -> Runtime:
    return serving(backend, SqliteStore(path, synchronous="NORMAL"), clock=clock)


async def test_repeated_request_hears_the_same_again(tmp_path: Path) -> None:
    """After a crash the request is the same, and the input and the answer come again."""
    clock, hold = FakeClock(), Hold()
    heard: list[str] = []

    async def work(request: Any) -> BackendResult:
        heard.append(request.messages[-1].id)
        heard.append((await request.control.receive()).text)
        heard.append(text_of((await request.control.ask(COLOUR)).reply.content))
        if len(heard) == 3:
            await hold.here()
        return BackendResult("far", response="done")

    single = msgspec.structs.replace(HEARS, transcript="single_prompt")
    first = opened(tmp_path / "a.db", Scripted(work, capabilities=single), clock)
    crashing = await first.start("far", "hi", thread="t")
    await first.send("t", "faster", policy="steer")
    (ticket,) = await tickets_of(first)
    answering = asyncio.create_task(first.tickets.answer(ticket.id, "red"))
    await soon(hold.reached.wait())
    answering.cancel()
    await first.close(grace=0)
    second = opened(tmp_path / "a.db", Scripted(work, capabilities=single), clock)
    result = await soon(second.wait(crashing.run_id))
    assert [m.role for m in await second.threads.messages("t")] == ["user", "user", "tool", "assistant"]
    await second.close()
    assert result.text == "done"
    assert heard[3:] == heard[:3]
    assert heard[1:3] == ["faster", "red"]


async def test_open_question_keeps_its_ticket_over_a_crash(tmp_path: Path) -> None:
    clock = FakeClock()

    async def work(request: Any) -> BackendResult:
        return BackendResult("far", response=text_of((await request.control.ask(COLOUR)).reply.content))

    first = opened(tmp_path / "a.db", Scripted(work, capabilities=HEARS), clock)
    handle = await first.start("far", "hi", thread="t")
    (ticket,) = await tickets_of(first)
    await first.close(grace=0)
    second = opened(tmp_path / "a.db", Scripted(work, capabilities=HEARS), clock)
    await soon(second.tickets.answer(ticket.id, "red"))
    result = await soon(second.wait(handle.run_id))
    assert [t.id for t in await second.tickets.list(handle.run_id)] == [ticket.id]
    assert [c.state for c in await second.runs.calls(handle.run_id)] == ["finished"]
    assert len(await events_of(second, "t", StepStart)) == 1
    await second.close()
    assert result.text == "red"
