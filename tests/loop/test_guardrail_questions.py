"""Guardrails that let a person decide: nothing of a message leaves before the answer to its ticket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postgres_server import fresh_database
from wakeful import (
    Agent,
    Approval,
    Delegate,
    MemoryStore,
    Message,
    Principal,
    Runtime,
    SqliteStore,
    Ticket,
    Usage,
    call,
)
from wakeful.errors import InvalidDecision, NotAllowed
from wakeful.plugins import AfterTool, Block, Guardrail, HookContext, Plugin, Rewrite, Suspend
from wakeful.testing import FakeClock, Turn
from wakeful.types.events import Delta, InferenceComplete
from wakeful.types.runs import Blocked, Cancelled, NaturalEnd

from .helpers import Scripted, Spy, assert_settled, events_of, soon, spying

ANN, BOB = Principal("ann"), Principal("bob")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The place of a store that two runtimes open, one after the other."""
    places: Any = {"memory": MemoryStore, "sqlite": lambda: tmp_path / "a.db", "postgres": fresh_database}
    return places[request.param]()


def ask(message: Message, ctx: HookContext) -> Suspend | None:
    return Suspend("Is this fine?") if "refund" in message.text else None


def redacted(message: Message, ctx: HookContext) -> Rewrite | None:
    return Rewrite(message.text.replace("4711", "****")) if "4711" in message.text else None


def no_secrets(message: Message, ctx: HookContext) -> Block | None:
    return Block("it has a secret") if "secret" in message.text else None


def texts(request: Any) -> list[str]:
    return [message.text for message in request.messages]


async def waiting(runtime: Runtime, text: str = "go") -> Ticket:
    """The ticket of a run that waits."""
    result = await runtime.run("agent", text, thread="t", principal=ANN)
    assert result.status == "waiting"
    (ticket,) = result.tickets
    return ticket


# -- input -----------------------------------------------------------------------------------------------------


async def test_model_reads_input_once_it_is_approved(scripted: Scripted) -> None:
    model = scripted("done", "again")
    runtime = Runtime([Agent("agent", model=model, guardrails=[Guardrail("money", input=ask)])])
    ticket = await waiting(runtime, "refund A7")
    assert model.requests == []
    shown = (ticket.tool, ticket.asked_by, ticket.message, ticket.accepts, ticket.arguments)
    assert shown == ("guardrail:money", "guardrail", "Is this fine?", ("proceed",), {"side": "input"})
    assert (await runtime.tickets.answer(ticket.id, True, principal=BOB)).text == "done"
    assert (await runtime.run("agent", "thanks", thread="t")).text == "again"
    assert texts(model.requests[1]) == ["refund A7", "done", "thanks"]
    await assert_settled(runtime, "t")


async def test_denied_input_is_hidden_from_models(scripted: Scripted) -> None:
    model = scripted("again")
    runtime = Runtime([Agent("agent", model=model, guardrails=[Guardrail("money", input=ask)])])
    ticket = await waiting(runtime, "refund A7")
    result = await runtime.tickets.answer(ticket.id, ticket.deny("not without a receipt"), principal=BOB)
    assert result.termination == Blocked("not without a receipt")
    await assert_settled(runtime, "t")
    await runtime.run("agent", "hi", thread="t")
    assert texts(model.requests[0]) == ["[This message was blocked, and is not shown.]", "hi"]


async def test_guardrails_judge_on_after_an_approval(scripted: Scripted) -> None:
    """Rewrites of earlier guardrails are kept, and later guardrails still rewrite and ask."""
    seen: list[str] = []

    def watch(message: Message, ctx: HookContext) -> None:
        seen.append(message.text)

    model = scripted("done")
    guardrails = [
        Guardrail("cards", input=redacted),
        Guardrail("watch", input=watch),
        Guardrail("money", input=ask),
        Guardrail("again", input=ask),
        Guardrail("shout", input=lambda m, c: Rewrite(m.text.upper())),
    ]
    runtime = Runtime([Agent("agent", model=model, guardrails=guardrails)])
    first = await waiting(runtime, "refund 4711")
    second = (await runtime.tickets.answer(first.id, True, principal=BOB)).tickets[0]
    assert second.tool == "guardrail:again"
    await runtime.tickets.answer(second.id, True, principal=BOB)
    assert seen == ["refund ****"]
    assert texts(model.requests[0]) == ["REFUND ****"]
    await assert_settled(runtime, "t")


async def test_new_input_supersedes_a_question_about_input(scripted: Scripted) -> None:
    """The message that nobody decided on is judged again, in the run that would show it."""
    model = scripted("done")
    runtime = Runtime([Agent("agent", model=model, guardrails=[Guardrail("money", input=ask)])])
    first = await waiting(runtime, "refund A7")
    second = await waiting(runtime, "hello?")
    assert (await runtime.tickets.get(first.id)).status == "superseded"
    result = await runtime.tickets.answer(second.id, False, principal=BOB)
    assert result.text == "done"  # It was a message of an earlier run.
    assert texts(model.requests[0]) == ["[This message was blocked, and is not shown.]", "hello?"]
    await assert_settled(runtime, "t")


# -- answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_answer_waits_for_a_person(scripted: Scripted, store: Any, decision: str) -> None:
    """In another process: the answer isn't paid for again, and its tool starts after the approval, or never."""
    spy = Spy()
    said = Turn(text="refund of 4711", calls=(call("act"),), usage=Usage(input_tokens=7))
    turns = [said, *([Turn(text="done", usage=Usage(input_tokens=2))] if decision == "approve" else [])]
    model = scripted(*turns)
    guardrails = [Guardrail("cards", output=lambda m, c: None), Guardrail("money", output=ask)]
    agent = Agent("agent", model=model, tools=[spying(spy, "act")], guardrails=guardrails)
    async with Runtime([agent], store=store) as runtime:
        ticket = await waiting(runtime)
        run = await runtime.runs.get(ticket.run_id)
        assert (run.usage.input_tokens, spy.ran) == (7, [])
        assert [m.text for m in await runtime.threads.messages("t")] == ["go"]
        events = [event async for event in runtime.events("t", follow=False)]
        assert not [event for event in events if isinstance(event, Delta)]
        assert "4711" not in "".join([event.to_json() for event in events])
    runtime = Runtime([agent], store=store)
    if decision == "approve":
        result = await runtime.tickets.answer(ticket.id, True, principal=BOB)
        assert (result.text, result.usage.input_tokens, spy.ran) == ("done", 9, ["act"])
        messages = await runtime.threads.messages("t")
        assert [m.text for m in messages if m.role != "tool"] == ["go", "refund of 4711", "done"]
    else:
        result = await runtime.tickets.answer(ticket.id, False, principal=BOB)
        assert result.termination == Blocked("guardrail 'money' asked, and bob denied it")
        assert (result.usage.input_tokens, spy.ran) == (7, [])
        assert [m.text for m in await runtime.threads.messages("t")] == ["go"]
    found = await events_of(runtime, "t", InferenceComplete)
    assert [event.usage.input_tokens for event in found] == [turn.usage.input_tokens for turn in turns]
    await assert_settled(runtime, "t")
    await runtime.close()


async def test_hooks_and_validators_judge_an_approved_answer(scripted: Scripted) -> None:
    seen: list[Any] = []

    class Watch(Plugin):
        async def after_inference(self, ctx: Any) -> None:
            seen.append((ctx.answer.text, ctx.usage.input_tokens, ctx.offered))

        async def after_tool(self, ctx: AfterTool) -> None:
            seen.append(ctx.call.name)

    agent = Agent(
        "agent",
        model=scripted(Turn(text="refund of 4711", usage=Usage(input_tokens=7))),
        tools=[spying(Spy(), "act")],
        plugins=[Watch()],
        validators=[lambda output, ctx: seen.append(output)],
        guardrails=[Guardrail("money", output=ask), Guardrail("cards", output=redacted)],
    )
    runtime = Runtime([agent])
    ticket = await waiting(runtime)
    assert seen == []
    await runtime.tickets.answer(ticket.id, True, principal=BOB)
    assert seen == [("refund of ****", 7, ("act",)), "refund of ****"]


async def test_later_guardrail_blocks_an_approved_answer(scripted: Scripted) -> None:
    guardrails = [Guardrail("money", output=ask), Guardrail("secrets", output=no_secrets)]
    runtime = Runtime([Agent("agent", model=scripted("refund a secret"), guardrails=guardrails)])
    ticket = await waiting(runtime)
    result = await runtime.tickets.answer(ticket.id, True, principal=BOB)
    assert result.termination == Blocked("it has a secret")
    assert [m.text for m in await runtime.threads.messages("t")] == ["go"]
    await assert_settled(runtime, "t")


async def test_cancelled_run_drops_the_answer_that_waits(scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted("refund"), guardrails=[Guardrail("money", output=ask)])])
    ticket = await waiting(runtime)
    await runtime.cancel(ticket.run_id)
    result = await runtime.wait(ticket.run_id)
    assert isinstance(result.termination, Cancelled)
    assert [m.text for m in await runtime.threads.messages("t")] == ["go"]
    await assert_settled(runtime, "t")


async def test_present_guardrails_judge_if_the_one_that_asked_is_gone(scripted: Scripted, tmp_path: Path) -> None:
    def opened(model: Any, *guardrails: Guardrail) -> Runtime:
        store = SqliteStore(tmp_path / "a.db", synchronous="NORMAL")
        return Runtime([Agent("agent", model=model, guardrails=guardrails)], store=store)

    first = opened(scripted("refund 4711"), Guardrail("money", output=ask))
    ticket = await waiting(first)
    await first.close()
    async with opened(scripted(), Guardrail("cards", output=redacted)) as second:
        assert (await second.tickets.answer(ticket.id, True, principal=BOB)).text == "refund ****"


@pytest.mark.parametrize("durable", [False, True])
async def test_answer_of_a_delegate_waits_for_a_person(scripted: Scripted, tmp_path: Path, durable: bool) -> None:
    model, delegates = scripted(call("agent_run_agent", prompt="go"), "done"), [Delegate("agent", durable=durable)]
    boss = Agent("boss", model=model, delegates=delegates)
    agent = Agent("agent", model=scripted("refund"), guardrails=[Guardrail("money", output=ask)])
    async with Runtime([boss, agent], store=tmp_path / "a.db") as runtime:
        result = await runtime.run("boss", "go", thread="t")
        (ticket,) = result.tickets
        assert (await runtime.resume(result.run_id, ticket.approve())).text == "done"
        (row,) = await runtime.runs.calls(result.run_id)
        assert row.outcome == "ok"
        await assert_settled(runtime, "t")


# -- the ticket ------------------------------------------------------------------------------------------------


async def test_requester_may_not_approve_its_own_message(scripted: Scripted) -> None:
    def two(message: Message, ctx: HookContext) -> Suspend:
        return Suspend(approval=Approval(groups=("legal",), quorum=2))

    runtime = Runtime([Agent("agent", model=scripted("done"), guardrails=[Guardrail("law", input=two)])])
    ticket = await waiting(runtime)
    assert ticket.message == "May this message be read?"
    with pytest.raises(NotAllowed):
        await runtime.tickets.answer(ticket.id, True, principal=ANN)
    with pytest.raises(InvalidDecision, match="approve"):
        await runtime.tickets.answer(ticket.id, "sure", principal=Principal("cid", groups=("legal",)))
    for name in ("cid", "dan"):
        result = await runtime.tickets.answer(ticket.id, True, principal=Principal(name, groups=("legal",)))
    assert result.text == "done"
    (row,) = await runtime.runs.calls(result.run_id)
    assert (row.name, row.outcome, len(row.decisions)) == ("guardrail:law", "ok", 1)


@pytest.mark.parametrize(("on_deadline", "ending"), [("deny", Blocked), ("approve", NaturalEnd)])
async def test_deadline_of_a_guardrail_decides(scripted: Scripted, on_deadline: Any, ending: type[Any]) -> None:
    clock = FakeClock()
    guardrail = Guardrail("g", output=lambda m, c: Suspend(deadline=60, on_deadline=on_deadline))
    async with Runtime([Agent("agent", model=scripted("hi"), guardrails=[guardrail])], clock=clock) as runtime:
        ticket = await waiting(runtime)
        await clock.advance(61)
        result = await soon(runtime.wait(ticket.run_id))
    assert isinstance(result.termination, ending)


@pytest.mark.parametrize(
    ("question", "says"),
    [
        (Suspend("?", schema=bool), "which are for gates"),
        (Suspend("?", accepts=("result",)), "which are for gates"),
        (Suspend("?", again=True), "which are for gates"),
        (Suspend("?", deadline=-1), "it asked what can't be asked"),
    ],
)
async def test_question_that_cannot_be_asked_blocks(scripted: Scripted, question: Suspend, says: str) -> None:
    guardrail = Guardrail("g", input=lambda m, c: question)
    result = await Runtime([Agent("agent", model=scripted(), guardrails=[guardrail])]).run("agent", "go")
    assert isinstance(result.termination, Blocked)
    assert says in result.termination.reason


async def test_question_about_an_answer_too_large_to_keep_blocks(scripted: Scripted) -> None:
    guardrail = Guardrail("g", output=lambda m, c: Suspend())
    runtime = Runtime([Agent("agent", model=scripted("x" * 300_000), guardrails=[guardrail])])
    result = await runtime.run("agent", "go", thread="t")
    assert isinstance(result.termination, Blocked)
    assert "can't ask about this output" in result.termination.reason
    await assert_settled(runtime, "t")
