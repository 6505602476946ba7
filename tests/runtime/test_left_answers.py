"""Answers that no run has taken yet: they are shown with the reason, replaced and withdrawn, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import soon
from postgres_server import fresh_database
from wakeful import Agent, FunctionModel, MemoryStore, Runtime, call, tool
from wakeful.errors import CannotResume, InvalidDecision, TicketClosed
from wakeful.types.runs import Principal
from wakeful.types.tickets import Ticket

ANN, BOB = Principal("ann"), Principal("bob")


@tool(approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool(approval=True, name="refund")
async def refund_in(order: str, currency: str) -> str:
    """Refund an order in a currency."""
    return f"refunded {order} in {currency}"


def answer(request: Any) -> Any:
    last = request.messages[-1]
    return last.reply.content[0].text if last.reply is not None else call("refund", order="A7")


Make = Callable[..., Runtime]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes runtimes of any code on one store; without tools, one that doesn't know the agent."""
    places = {"memory": MemoryStore, "sqlite": lambda: tmp_path / "app.db", "postgres": fresh_database}
    place: Any = places[request.param]()

    def made(*tools: Any, **options: Any) -> Runtime:
        agent = Agent("shop" if tools else "other", model=FunctionModel(answer), tools=tools)
        return Runtime([agent], store=place, **options)

    return made


async def waiting(make: Make) -> Ticket:
    """A ticket of a run that waits for an approval."""
    async with make(refund) as runtime:
        (ticket,) = (await runtime.run("shop", "go", thread="t")).tickets
    return ticket


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    async def look() -> None:
        while not await check():
            await asyncio.sleep(0.001)

    await soon(look())


async def test_left_answer_is_replaced_when_code_changed(make: Make) -> None:
    """An approval is left in the store; a deploy adds a parameter; the ticket isn't locked."""
    ticket = await waiting(make)
    async with make() as shell:
        await shell.tickets.submit(ticket.approve(reason="fine"))
    async with make(refund_in) as runtime:
        left = await runtime.tickets.left(ticket.id)
        assert left is not None
        assert left.decision.reason == "fine"
        assert "missing required argument 'currency'" in left.problem
        with pytest.raises(CannotResume, match="currency"):
            await runtime.tickets.answer(ticket.id, True, principal=BOB)
        edited = ticket.edit({"order": "A7", "currency": "EUR"})
        result = await runtime.tickets.answer(ticket.id, edited, principal=BOB, reason="now in EUR")
        assert result.text.startswith("refunded A7 in EUR")
        first, second = await runtime.tickets.decisions(ticket.id)
        assert (first.id, first.mode, first.reason) == (left.decision.id, "proceed", "fine")
        cause = first.not_taken
        assert cause is not None
        assert (cause.cause, cause.principal_id, cause.reason) == ("replaced", "bob", "now in EUR")
        assert cause.at == second.at > 0
        assert (second.id, second.mode, second.not_taken) == (edited.id, "arguments", None)
        assert await runtime.tickets.left(ticket.id) is None


async def test_worker_keeps_why_it_cannot_take_answer(make: Make) -> None:
    """A process without the code learns the reason from the store, and replaces the answer there."""
    ticket = await waiting(make)
    shell = make()
    await shell.tickets.submit(ticket.approve())
    left = await shell.tickets.left(ticket.id)
    assert left is not None
    assert left.problem == ""  # Nobody has tried yet.
    async with make(refund_in):

        async def tried() -> bool:
            seen = await shell.tickets.left(ticket.id)
            return seen is not None and "missing required argument 'currency'" in seen.problem

        if not isinstance(shell.store, MemoryStore):  # A runtime in memory claims nothing.
            await until(tried)
            await shell.tickets.submit(ticket.edit({"order": "A7", "currency": "EUR"}))

            async def done() -> bool:
                return (await shell.runs.get(ticket.run_id)).status == "done"

            await until(done)
            kept = [d.not_taken and d.not_taken.cause for d in await shell.tickets.decisions(ticket.id)]
            assert kept == ["replaced", None]
    await shell.close()


async def test_left_answer_can_be_withdrawn(make: Make) -> None:
    ticket = await waiting(make)
    async with make() as shell:
        with pytest.raises(InvalidDecision, match="nothing to withdraw"):
            await shell.tickets.withdraw(ticket.id)
        given = ticket.deny("no")
        await shell.tickets.submit(given)
        assert await shell.tickets.withdraw(ticket.id, principal=ANN, reason="a mistake") == ticket
        assert await shell.tickets.left(ticket.id) is None
        assert await shell.workers.dispatches() == []  # There is nothing to wake up for.
        (kept,) = await shell.tickets.decisions(ticket.id)
        cause = kept.not_taken
        assert cause is not None
        assert (cause.cause, cause.principal_id, cause.reason) == ("withdrawn", "ann", "a mistake")
        with pytest.raises(InvalidDecision, match="was withdrawn, so it can't be given again"):
            await shell.tickets.submit(given)
        await shell.tickets.reassign(ticket.id, "bob")
    async with make(refund) as runtime:
        result = await runtime.tickets.answer(ticket.id, True)
        assert result.text == "refunded A7"
        with pytest.raises(TicketClosed, match=r"answered before \(approved"):
            await runtime.tickets.withdraw(ticket.id)


async def test_takeable_answer_is_replaced_only_on_request(make: Make) -> None:
    ticket = await waiting(make)
    async with make() as shell:
        await shell.tickets.submit(ticket.deny("no"))
        with pytest.raises(TicketClosed, match="no run has taken that answer yet; nothing was changed"):
            await shell.tickets.submit(ticket.approve())
        await shell.tickets.submit(ticket.deny("never"), replace=True)
    runtime = make(refund)  # It serves nobody, so nothing is taken before the call.
    result = await runtime.tickets.answer(ticket.id, True, replace=True)
    assert result.text == "refunded A7"
    kept = await runtime.tickets.decisions(ticket.id)
    found = [(d.verdict, d.reason, d.not_taken is None) for d in kept]
    assert found == [("deny", "no", False), ("deny", "never", False), ("approve", "", True)]
    await runtime.close()


async def test_caller_is_told_that_answer_was_withdrawn(make: Make) -> None:
    """A caller that waits for a worker to take its answer doesn't wait on, and isn't told that it counted."""
    ticket = await waiting(make)
    caller, operator = make(refund, execute=False), make()
    answering = asyncio.create_task(caller.tickets.answer(ticket.id, ticket.approve(), principal=ANN))

    async def is_left() -> bool:
        return await operator.tickets.left(ticket.id) is not None

    await until(is_left)
    await operator.tickets.withdraw(ticket.id, principal=BOB, reason="wait for the auditor")
    with pytest.raises(TicketClosed, match="no effect: it was withdrawn by bob: wait for the auditor"):
        await soon(answering)
    await caller.close()
    await operator.close()
