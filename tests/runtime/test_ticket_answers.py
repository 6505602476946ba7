"""Tickets by their id: answered, refused and given to others, from any process on the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from loop.helpers import Hold, Spy, events_of, holding, replies_on, reply_text, soon, spying, until
from wakeful import (
    Agent,
    Decision,
    FunctionModel,
    MemoryStore,
    ModelRequest,
    Plugin,
    Principal,
    Runtime,
    ScriptedModel,
    SqliteStore,
    ToolContext,
    UsageError,
    call,
    tool,
)
from wakeful.errors import Conflict, InvalidDecision, StaleFence, TicketClosed, UnknownTicket
from wakeful.plugins import GateTool
from wakeful.stores import Commit, Committed, Fence, settled
from wakeful.types.events import TicketChanged, ToolCallSuspended
from wakeful.types.inbox import decisions_in
from wakeful.types.runs import Cancelled

from .stores import SlowStore

ANN, BOB = Principal("ann"), Principal("bob")
Make = Callable[..., Runtime]


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes runtimes that remember nothing but their store, as another process would."""
    store = MemoryStore()

    def made(*tools: Any, model: Any = None, execute: bool = True, **options: Any) -> Runtime:
        place: Any = store if request.param == "memory" else SqliteStore(tmp_path / "app.db")
        model = model or FunctionModel(lambda r: "done" if r.messages[-1].role == "tool" else call("act"))
        return Runtime([Agent("agent", model=model, tools=tools, **options)], store=place, execute=execute)

    return made


@pytest.fixture
def spy() -> Spy:
    return Spy()


def approved(spy: Spy, name: str = "act") -> Any:
    return spying(spy, name, approval=True)


async def waiting(runtime: Runtime, thread: str = "t") -> Any:
    """Run until it waits, and end the process; the ticket."""
    result = await runtime.run("agent", "go", thread=thread)
    await runtime.close()
    (ticket,) = result.tickets
    return ticket


# -- answering -----------------------------------------------------------------------------------------------


async def test_submitted_answer_is_refused_when_another_was_first(spy: Spy) -> None:
    agent = Agent("agent", model=ScriptedModel([call("act")]), tools=[approved(spy)])
    store = SlowStore()
    ticket = await waiting(Runtime([agent], store=store))
    runtime = Runtime([agent], store=store)

    left = [runtime.tickets.submit(given) for given in (ticket.approve(), ticket.deny("no"))]
    first, second = await asyncio.gather(*left, return_exceptions=True)

    assert first == ticket
    assert isinstance(second, TicketClosed)
    stored = await store.load("t")
    assert stored is not None
    assert [decision.verdict for decision in decisions_in(stored.inbox)] == ["approve"]


async def test_ticket_is_answered_by_its_id_from_another_process(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    async with make(approved(spy)) as runtime:
        result = await runtime.tickets.answer(ticket.id, True, principal=ANN, reason="fine")
        assert (result.run_id, result.status, spy.ran) == (ticket.run_id, "done", ["act"])
        (decision,) = await runtime.tickets.decisions(ticket.id)
        assert (decision.verdict, decision.principal_id, decision.reason) == ("approve", "ann", "fine")
        assert decision.at > 0
        assert decision.asked_by == "approval"


async def test_denial_keeps_principal_time_and_reason(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    async with make(approved(spy)) as runtime:
        await runtime.tickets.answer(ticket.id, ticket.deny("too much"), principal=BOB)
        (decision,) = await runtime.tickets.decisions(ticket.id)
        assert (decision.verdict, decision.principal_id, decision.reason) == ("deny", "bob", "too much")
        assert decision.at > 0
        assert spy.ran == []


async def test_repeated_decision_from_two_processes_counts_once(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    decision = ticket.approve()
    async with make(approved(spy)) as one, make(approved(spy)) as other:
        results = await soon(
            asyncio.gather(one.tickets.answer(ticket.id, decision), other.tickets.answer(ticket.id, decision))
        )
        again = await one.tickets.answer(ticket.id, decision)
        assert {result.status for result in [*results, again]} == {"done"}
        assert spy.ran == ["act"]
        assert len(await one.tickets.decisions(ticket.id)) == 1


async def test_repeated_request_counts_once(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    for _ in range(2):
        async with make(approved(spy)) as runtime:
            assert (await runtime.tickets.answer(ticket.id, True, request_id="r-1")).status == "done"
            assert len(await runtime.tickets.decisions(ticket.id)) == 1
    assert spy.ran == ["act"]


async def test_decision_id_is_refused_when_already_used(make: Make, spy: Spy) -> None:
    other = await waiting(make(approved(spy)), "other")
    ticket = await waiting(make(approved(spy)))
    async with make(approved(spy)) as runtime:
        await runtime.tickets.answer(other.id, True, request_id="r-1")
        await runtime.send("s", "go", agent="agent", request_id="r-2")
        told = f"the decision about ticket {other.id} has the id 'r-1:0'.*nothing was changed"
        with pytest.raises(InvalidDecision, match=told):
            await runtime.tickets.answer(ticket.id, True, request_id="r-1")
        for given in (replace(ticket.approve(), id="r-1:0"), replace(ticket.approve(), id="r-2")):
            with pytest.raises(InvalidDecision, match="a request_id of its own"):
                await runtime.tickets.submit(given)
            with pytest.raises(InvalidDecision, match="a request_id of its own"):
                await soon(runtime.tickets.reassign(ticket.id, "bob", request_id=given.id))
        assert await runtime.tickets.list(ticket.run_id) == [ticket]
        await runtime.tickets.answer(ticket.id, True, request_id="r-3")
        assert len(await runtime.tickets.decisions(ticket.id)) == 1


async def test_concurrent_decisions_have_different_ids(make: Make, spy: Spy) -> None:
    model = ScriptedModel([[call("act"), call("act")], "done"])
    async with make(approved(spy), model=model) as runtime:
        result = await runtime.run("agent", "go")
        both = [replace(ticket.approve(), id="d-1") for ticket in result.tickets]
        with pytest.raises(InvalidDecision, match=f"about ticket {both[0].ticket_id} has the id 'd-1'"):
            await runtime.resume(result.run_id, *both)
        assert await runtime.tickets.list(status="open") == list(result.tickets)


async def test_concurrent_answers_are_one_accepted_one_refused(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    async with make(approved(spy)) as one, make(approved(spy)) as other:
        answers = [
            one.tickets.answer(ticket.id, True, principal=ANN),
            other.tickets.answer(ticket.id, False, principal=BOB),
        ]
        results = await soon(asyncio.gather(*answers, return_exceptions=True))
        assert sorted(type(result).__name__ for result in results) == ["RunResult", "TicketClosed"]
        assert len(await one.tickets.decisions(ticket.id)) == 1


async def test_late_answer_is_refused_when_run_waits_again(make: Make, spy: Spy) -> None:
    hold, late = Hold(), Hold()
    model = ScriptedModel([[call("act"), call("other")], "done"])
    async with make(holding(hold, "act", approval=True), approved(spy, "other"), model=model) as runtime:
        ticket, other = (await runtime.run("agent", "go", thread="t")).tickets
        has_id = runtime.store.has_id

        async def held(an_id: str) -> bool:
            await late.here()
            return await has_id(an_id)

        runtime.store.has_id = held  # type: ignore[method-assign]
        denial = asyncio.create_task(runtime.resume(ticket.run_id, ticket.deny()))
        await soon(late.reached.wait())
        runtime.store.has_id = has_id  # type: ignore[method-assign]
        approval = asyncio.create_task(runtime.resume(ticket.run_id, ticket.approve()))
        await soon(hold.reached.wait())
        late.released.set()
        hold.released.set()
        assert (await soon(approval)).tickets == (other,)
        with pytest.raises(TicketClosed, match=r"answered before \(approved at"):
            await soon(denial)
        assert [d.verdict for d in await runtime.tickets.decisions(ticket.id)] == ["approve"]


async def test_second_answer_error_names_first_principal_and_time(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    async with make(approved(spy)) as runtime:
        await runtime.tickets.answer(ticket.id, True, principal=ANN, reason="looks fine")
        told = r"answered before \(approved by ann at \d{4}-\d\d-\d\d .* UTC: looks fine\); nothing was changed"
        with pytest.raises(TicketClosed, match=told):
            await runtime.tickets.answer(ticket.id, False, principal=BOB)
        assert len(await runtime.tickets.decisions(ticket.id)) == 1


async def test_answer_to_closed_ticket_names_its_outcome(make: Make, spy: Spy) -> None:
    cancelled = await waiting(make(approved(spy)), "one")
    superseded = await waiting(make(approved(spy)), "two")
    async with make(approved(spy)) as runtime:
        await runtime.cancel(cancelled.run_id)
        await runtime.run("agent", "Something else", thread="two")
        with pytest.raises(TicketClosed, match="was cancelled: its run ended"):
            await runtime.tickets.answer(cancelled.id, True)
        with pytest.raises(TicketClosed, match="was superseded: new input took its run's place"):
            await runtime.tickets.answer(superseded.id, True)
        for ticket in (cancelled, superseded):
            assert list(await runtime.tickets.decisions(ticket.id)) == []
            with pytest.raises(TicketClosed):
                await runtime.tickets.reassign(ticket.id, "bob")
    assert spy.ran == []


async def test_answer_is_refused_while_run_is_cancelled(make: Make, spy: Spy) -> None:
    working, stopping, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def work() -> None:
        """Take some time to stop."""
        try:
            working.set()
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await stopped.wait()

    model = ScriptedModel([[call("work"), call("act")]])
    async with make(work, approved(spy), model=model) as runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(working.wait())
        (ticket,) = await runtime.tickets.list(handle.run_id)
        cancelled = asyncio.create_task(handle.cancel())
        await soon(stopping.wait())
        answered = asyncio.create_task(runtime.resume(handle.run_id, ticket.approve()))
        store = runtime.store
        while not (stored := await store.load("t")) or not stored.inbox:
            await asyncio.sleep(0)
        stopped.set()
        assert await soon(cancelled)
        assert (await soon(answered)).termination == Cancelled("cancelled by request")
        assert (await store.ticket(ticket.id)).status == "cancelled"
        assert (await store.load("t")).inbox == ()
        assert spy.ran == []


class Refusing(SqliteStore):
    """A store that takes its time for one commit that claims a thread, and refuses it: somebody was faster."""

    hold: Hold | None = None

    async def commit(self, commit: Commit) -> Committed:
        if commit.claim is not None and (hold := self.hold) is not None:
            self.hold = None
            await settled(asyncio.ensure_future(hold.here()))
            raise Conflict("somebody was faster")
        return await super().commit(commit)


async def test_answering_caller_survives_takeover_of_the_run(tmp_path: Path, spy: Spy) -> None:
    store, hold = Refusing(tmp_path / "app.db"), Hold()
    agent = Agent("agent", model=ScriptedModel([call("act"), "done"]), tools=[approved(spy)])
    async with Runtime([agent], store=store) as runtime:
        waiting = await runtime.run("agent", "go", thread="t")
        store.hold = hold
        answered = asyncio.create_task(runtime.tickets.answer(waiting.tickets[0].id, True))
        await soon(hold.reached.wait())
        cancelled = asyncio.create_task(runtime.cancel(waiting.run_id))
        await until(lambda: runtime._scope.dispatch.active["t"].cancellation.is_pending)
        hold.released.set()
        await soon(asyncio.wait([answered, cancelled]))  # Either may be first now.
        assert not answered.cancelled()
        assert (await runtime.runs.get(waiting.run_id)).status == "done"


async def test_another_tenants_ticket_is_unknown(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    async with make(approved(spy)) as runtime:
        acme = runtime.tenant("acme")
        with pytest.raises(UnknownTicket, match=ticket.id):
            await acme.tickets.answer(ticket.id, True)
        with pytest.raises(UnknownTicket, match=ticket.id):
            await acme.tickets.reassign(ticket.id, "bob")
        assert list(await acme.tickets.decisions(ticket.id)) == []
        assert list(await acme.tickets.list()) == []
        assert (await runtime.runs.get(ticket.run_id)).status == "waiting"


@pytest.mark.parametrize("wrong", [None, 7, "", b"x"])
async def test_ticket_is_accepted_by_its_id_text(make: Make, spy: Spy, wrong: Any) -> None:
    async with make(approved(spy)) as runtime:
        with pytest.raises(UsageError, match="by its id, a text"):
            await runtime.tickets.answer(wrong, True)
        with pytest.raises(UnknownTicket, match="nope"):
            await runtime.tickets.answer("nope", True)


async def test_decision_about_another_ticket_is_refused(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    async with make(approved(spy)) as runtime:
        with pytest.raises(InvalidDecision, match="is about ticket 'other'"):
            await runtime.tickets.answer(ticket.id, Decision("other"))
        with pytest.raises(InvalidDecision, match="approve"):
            await runtime.tickets.answer(ticket.id, "certainly")
        with pytest.raises(InvalidDecision, match=r"runtime\.tickets\.reassign"):
            await runtime.tickets.answer(ticket.id, Decision(ticket.id, "reassign", value="bob"))
        with pytest.raises(UsageError, match="Principal"):
            await runtime.tickets.answer(ticket.id, True, principal="ann")  # type: ignore[arg-type]
        assert (await runtime.runs.get(ticket.run_id)).status == "waiting"


async def test_tickets_are_answered_one_by_one_in_any_order(make: Make, spy: Spy) -> None:
    tools = [approved(spy, name) for name in ("a", "b", "c")]
    model = ScriptedModel([[call(name) for name in "abc"], "done"])
    runtime = make(*tools, model=model)
    result = await runtime.run("agent", "go", thread="t")
    await runtime.close()
    tickets = {ticket.tool: ticket for ticket in result.tickets}
    for name, left in (("c", ["a", "b"]), ("a", ["b"]), ("b", [])):
        async with make(*tools, model=model) as runtime:
            result = await runtime.tickets.answer(tickets[name].id, True)
            assert [ticket.tool for ticket in result.tickets] == left
    assert (result.status, spy.ran) == ("done", ["c", "a", "b"])


# -- typed answers -------------------------------------------------------------------------------------------


class Refund(Struct):
    amount: float
    on: date


@tool(effect="pure", name="act")
async def typed(ctx: ToolContext) -> str:
    """Ask for a refund."""
    refund = ctx.ask("How much, and when?", schema=Refund)
    return f"{refund.amount:.2f} in {refund.on.year}"


async def test_answer_is_checked_against_type_and_comes_back_as_one(make: Make) -> None:
    ticket = await waiting(make(typed))
    assert ticket.schema is not None
    assert ticket.schema["required"] == ["amount", "on"]
    async with make(typed) as runtime:
        before = await runtime.store.load("t")
        for wrong, told in (
            ({"amount": "many", "on": "2026-11-16"}, r"\$\.amount: expected number, got str"),
            ({"amount": 1, "on": "someday"}, r"\$\.on: expected a date"),
            ({"amount": 1}, r"missing required 'on'"),
            ("seven", r"\$: expected object, got str"),
            (None, r"\$: expected object, got null"),
        ):
            with pytest.raises(InvalidDecision, match=told):
                await runtime.tickets.answer(ticket.id, wrong)
        assert await runtime.store.load("t") == before
        assert list(await runtime.tickets.decisions(ticket.id)) == []
        result = await runtime.tickets.answer(ticket.id, {"amount": 5, "on": "2026-11-16"})
        assert result.status == "done"
        assert [reply_text(reply) for reply in await replies_on(runtime, "t")] == ["5.00 in 2026"]


async def test_answer_value_is_stored_as_json(make: Make) -> None:
    ticket = await waiting(make(typed))
    async with make(typed) as runtime:
        await runtime.tickets.answer(ticket.id, Refund(5, date(2026, 11, 16)))
        (decision,) = await runtime.tickets.decisions(ticket.id)
        assert decision.value == {"amount": 5, "on": "2026-11-16"}
        assert [reply_text(reply) for reply in await replies_on(runtime, "t")] == ["5.00 in 2026"]


async def test_gate_question_checks_answer_against_schema(make: Make, spy: Spy) -> None:
    class Limit(Plugin):
        async def gate_tool(self, ctx: GateTool) -> Any:
            return ctx.suspend("Up to how much?", schema={"type": "integer", "minimum": 1})

    act = spying(spy, "act")
    ticket = await waiting(make(act, plugins=[Limit()]))
    async with make(act, plugins=[Limit()]) as runtime:
        with pytest.raises(InvalidDecision, match=r"\$: expected integer, got null"):
            await runtime.tickets.answer(ticket.id, ticket.approve())
        with pytest.raises(InvalidDecision, match=r"\$: expected at least 1, not 0"):
            await runtime.tickets.answer(ticket.id, ticket.approve(0))
        assert (await runtime.tickets.answer(ticket.id, ticket.approve(5))).status == "done"
    assert spy.ran == ["act"]


async def test_schema_applies_to_first_mode_only(make: Make, spy: Spy) -> None:
    class Limit(Plugin):
        async def gate_tool(self, ctx: GateTool) -> Any:
            return ctx.suspend("Up to how much?", schema=int)

    ticket = await waiting(make(spying(spy, "act"), plugins=[Limit()]))
    async with make(spying(spy, "act"), plugins=[Limit()]) as runtime:
        assert (await runtime.tickets.answer(ticket.id, ticket.result("done by hand"))).status == "done"
    assert spy.ran == []


# -- leaving an answer ---------------------------------------------------------------------------------------


async def test_submitted_answer_is_applied_by_worker(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    runtime = make(approved(spy))
    await runtime.tickets.submit(Decision(ticket.id, mode="proceed", principal_id="ann", at=5))
    await runtime.close()
    assert spy.ran == []
    async with make(approved(spy)) as runtime:
        while (await runtime.runs.get(ticket.run_id)).status != "done":
            await asyncio.sleep(0.001)
        (decision,) = await runtime.tickets.decisions(ticket.id)
        assert (decision.principal_id, decision.at) == ("ann", 5)
    assert spy.ran == ["act"]


async def test_first_submitted_answer_counts_before_it_is_applied(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    runtime = make(approved(spy))
    first = Decision(ticket.id, "deny", principal_id="ann", reason="no", at=1_700_000_000_000)
    await runtime.tickets.submit(first)
    await runtime.tickets.submit(first)
    told = r"denied by ann at 2023-11-14 22:13:20 UTC: no\)"
    with pytest.raises(TicketClosed, match=told + ", and no run has taken that answer yet"):
        await runtime.tickets.submit(Decision(ticket.id, mode="proceed", principal_id="bob"))
    with pytest.raises(TicketClosed, match=told):
        await runtime.tickets.answer(ticket.id, True)  # The run goes on with the first.
    await runtime.close()
    assert spy.ran == []


async def test_submitted_answer_is_validated(make: Make) -> None:
    ticket = await waiting(make(typed))
    runtime = make(typed)
    with pytest.raises(InvalidDecision, match=r"\$\.amount"):
        await runtime.tickets.submit(ticket.answer({"amount": "x", "on": "2026-11-16"}))
    with pytest.raises(UnknownTicket):
        await runtime.tickets.submit(Decision("nope"))
    stored = await runtime.store.load("t")
    assert stored is not None
    assert stored.inbox == ()
    await runtime.close()


@tool(approval=True)
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def paying(request: ModelRequest) -> Any:
    return "done" if request.messages[-1].role == "tool" else call("pay", n=3)


async def taken_in(runtime: Runtime) -> None:
    """Wait until nothing is in the thread's inbox, and nobody runs it."""
    while (stored := await runtime.store.load("t")) is None or stored.inbox or stored.thread.claimed:
        await asyncio.sleep(0.001)


async def test_submitted_invalid_arguments_keep_ticket_open(
    make: Make,
) -> None:
    ticket = await waiting(make(pay, model=FunctionModel(paying)))
    for wrong, told in (
        ({"amount": 5}, "missing required argument 'n'"),
        ({"n": "x"}, "$.n: expected int, got str"),
    ):
        runtime = make(pay, model=FunctionModel(paying))
        left = ticket.edit(wrong)
        await runtime.tickets.submit(left)
        async with runtime:
            await soon(taken_in(runtime))
            await runtime.tickets.submit(left)  # The same one again is refused once.
            await soon(taken_in(runtime))
            asked = await runtime.store.ticket(ticket.id)
        assert asked is not None
        refusal, question = asked.message.split("\n")
        assert refusal.startswith("The answer was refused: $")
        assert told in refusal
        assert replace(asked, message=question) == ticket
    async with make(pay, model=FunctionModel(paying)) as runtime:
        assert [t.id for t in await runtime.tickets.list(status="open")] == [ticket.id]
        assert await replies_on(runtime, "t") == []
        assert list(await runtime.tickets.decisions(ticket.id)) == []
        result = await runtime.tickets.answer(ticket.id, ticket.edit({"n": 5}))
        assert result.status == "done"
        assert [reply_text(reply).partition("\n")[0] for reply in await replies_on(runtime, "t")] == ["paid 5"]


async def test_answer_counts_after_invalid_submitted_answer(make: Make) -> None:
    ticket = await waiting(make(pay, model=FunctionModel(paying)))
    runtime = make(pay, model=FunctionModel(paying))
    await runtime.tickets.submit(ticket.edit({"amount": 5}))
    assert (await soon(runtime.tickets.answer(ticket.id, True))).status == "done"
    assert [reply_text(reply) for reply in await replies_on(runtime, "t")] == ["paid 3"]
    suspended = [event.ticket.message for event in await events_of(runtime, "t", ToolCallSuspended)]
    assert [message.startswith("The answer was refused: ") for message in suspended] == [False, True]
    await runtime.close()


# -- reassigning ---------------------------------------------------------------------------------------------


async def test_reassigned_ticket_keeps_its_new_assignee(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    async with make(approved(spy)) as runtime:
        moved = await runtime.tickets.reassign(ticket.id, "bob", principal=ANN, reason="on holiday")
        assert (moved.assignee, moved.status) == ("bob", "open")
        assert [t.id for t in await runtime.tickets.list(assignee="bob", status="open")] == [ticket.id]
        (decision,) = await runtime.tickets.decisions(ticket.id)
        assert (decision.verdict, decision.value) == ("reassign", "bob")
        assert (decision.principal_id, decision.reason, decision.at > 0) == ("ann", "on holiday", True)
        (event,) = await events_of(runtime, "t", TicketChanged)
        assert (event.ticket, event.decision, event.call_id) == (moved, decision, ticket.call_id)
        record = await runtime.runs.get(ticket.run_id)
        assert record.status == "waiting"
        result = await runtime.tickets.answer(ticket.id, True, principal=BOB)
        assert (result.status, spy.ran) == ("done", ["act"])
        assert [d.verdict for d in await runtime.tickets.decisions(ticket.id)] == ["reassign", "approve"]
        with pytest.raises(TicketClosed, match="approved by bob"):
            await runtime.tickets.reassign(ticket.id, "cy")


async def test_reassignment_is_refused_after_submitted_answer(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    runtime = make(approved(spy))
    await runtime.tickets.submit(Decision(ticket.id, mode="proceed", principal_id="ann"))
    with pytest.raises(TicketClosed, match=r"answered before \(approved by ann .* nothing was changed"):
        await runtime.tickets.reassign(ticket.id, "bob")
    assert await runtime.store.ticket(ticket.id) == ticket
    assert list(await runtime.tickets.decisions(ticket.id)) == []
    await runtime.close()


async def test_repeated_reassignment_counts_once(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    async with make(approved(spy)) as runtime:
        for to in ("bob", "cy"):
            moved = await runtime.tickets.reassign(ticket.id, to, request_id="r-1")
            assert moved.assignee == "bob"
        assert len(await runtime.tickets.decisions(ticket.id)) == 1
        for wrong in ("", " ", None, 3):
            with pytest.raises(UsageError, match="a ticket is given to user:<id>"):
                await runtime.tickets.reassign(ticket.id, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["here", "elsewhere"])
async def test_ticket_is_reassigned_while_sibling_runs(make: Make, spy: Spy, place: str) -> None:
    hold = Hold()
    model = ScriptedModel([[call("wait"), call("act")], "done"])
    tools = [holding(hold), approved(spy)]
    async with make(*tools, model=model) as owner, make(*tools, model=model) as another:
        other = another if place == "elsewhere" and owner.store.durable else owner
        handle = await owner.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        while not (tickets := await other.tickets.list(handle.run_id)):
            await asyncio.sleep(0.001)
        stored = await other.store.load("t")
        assert stored is not None
        assert stored.thread.claimed
        moved = await soon(other.tickets.reassign(tickets[0].id, "bob", principal=ANN))
        assert moved.assignee == "bob"
        assert [d.principal_id for d in await owner.tickets.decisions(moved.id)] == ["ann"]
        hold.released.set()
        result = await soon(handle.result())
        assert [ticket.assignee for ticket in result.tickets] == ["bob"]
        assert (await other.tickets.answer(moved.id, True)).status == "done"


async def test_reassigned_ticket_is_read_after_its_decision(spy: Spy) -> None:
    """The owner of the thread commits the change between the reads of the ticket and of its decisions."""

    class Slow(MemoryStore):
        """Commits decisions during the second read of them."""

        def __init__(self) -> None:
            super().__init__()
            self.reads, self.is_read = 0, asyncio.Event()

        async def decisions(self, ticket_id: str) -> Any:
            self.reads += 1
            if self.reads == 2:
                self.is_read.set()
                while not await super().decisions(ticket_id):
                    await asyncio.sleep(0)
            return await super().decisions(ticket_id)

        async def commit(self, commit: Commit) -> Committed:
            if commit.decisions:
                await self.is_read.wait()
            return await super().commit(commit)

    hold = Hold()
    model = ScriptedModel([[call("wait"), call("act")], "done"])
    runtime = Runtime([Agent("agent", model=model, tools=[holding(hold), approved(spy)])], store=Slow())
    async with runtime:
        handle = await runtime.start("agent", "go", thread="t")
        await soon(hold.reached.wait())
        (ticket,) = await runtime.tickets.list(handle.run_id)
        assert (await soon(runtime.tickets.reassign(ticket.id, "bob"))).assignee == "bob"
        hold.released.set()
        await soon(handle.result())


async def test_reassignment_is_withdrawn_from_inbox_when_owner_left(spy: Spy) -> None:
    class Claimed(MemoryStore):
        """Says once that somebody owns the thread."""

        claimed = 0

        async def load(self, thread_id: str) -> Any:
            view = await super().load(thread_id)
            if view is None or not self.claimed:
                return view
            self.claimed -= 1
            return replace(view, thread=replace(view.thread, claimed=True))

    store = Claimed()
    runtime = Runtime([Agent("agent", model=ScriptedModel([call("act")]), tools=[approved(spy)])], store=store)
    result = await runtime.run("agent", "go", thread="t")
    store.claimed = 1
    moved = await soon(runtime.tickets.reassign(result.tickets[0].id, "bob"))
    stored = await store.load("t")
    assert stored is not None
    assert (moved.assignee, stored.inbox, stored.tickets) == ("bob", (), (moved,))
    assert len(await runtime.tickets.decisions(moved.id)) == 1


async def test_reassignment_keeps_deadline(make: Make, spy: Spy) -> None:
    act = spying(spy, "act", approval=True, deadline=3600)
    ticket = await waiting(make(act))
    async with make(act) as runtime:
        moved = await runtime.tickets.reassign(ticket.id, "bob")
        assert moved.deadline == ticket.deadline is not None
        record = await runtime.runs.get(ticket.run_id)
        assert record.waiting is not None
        assert record.waiting.until == ticket.deadline
        (due,) = await runtime.store.due()
        assert due.at == ticket.deadline


async def test_ticket_is_reassigned_when_thread_owner_died(make: Make, spy: Spy) -> None:
    act = spying(spy, "act", approval=True, deadline=3600)
    ticket = await waiting(make(act))
    runtime = make(act)
    thread = await runtime.threads.get("t")
    await runtime.store.commit(Commit("t", version=thread.version, claim="gone", lease=0))

    moved = await soon(runtime.tickets.reassign(ticket.id, "bob"))

    assert moved.assignee == "bob"
    (due,) = await runtime.store.due()
    assert due.at == ticket.deadline
    with pytest.raises(StaleFence):
        await runtime.store.commit(Commit("t", fence=Fence(thread.epoch + 1, "gone"), release=True))
    assert (await runtime.tickets.answer(ticket.id, True)).status == "done"
    await runtime.close()


async def test_non_executing_runtime_answers_tickets(make: Make, spy: Spy) -> None:
    ticket = await waiting(make(approved(spy)))
    async with make(approved(spy)) as worker, make(approved(spy), execute=False) as front:
        result = await soon(front.tickets.answer(ticket.id, True, principal=ANN))
        assert (result.status, spy.ran) == ("done", ["act"])
        assert [d.principal_id for d in await worker.tickets.decisions(ticket.id)] == ["ann"]
