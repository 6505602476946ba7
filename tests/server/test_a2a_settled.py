"""Questions that a remote runtime settles itself: the root's run continues, and a late answer is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from a2a_serving import connect, said, send, serve, serve_app, until

from wakeful import Agent, FunctionModel, RunResult, Runtime, ToolContext, call, tool
from wakeful.errors import TicketClosed
from wakeful.server import app
from wakeful.testing import FakeClock
from wakeful.types.runs import Failed

MINUTE = 60


class Shop:
    """A remote runtime that pays only after an approval, and a root runtime that uses it; both on one clock."""

    remote: Runtime
    root: Runtime

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.paid: list[str] = []
        self.url = ""
        self.store: Path | None = None

    def served(self, **approval: Any) -> Runtime:
        @tool(approval=True, **approval)
        def pay(order: str) -> str:
            self.paid.append(order)
            return f"paid {order}"

        @tool(effect="idempotent")
        async def size(ctx: ToolContext) -> str:
            return f"size {ctx.ask('Which size?', schema=int)}"

        def model(request: Any) -> Any:
            last = request.messages[-1]
            if last.role == "user":
                return [call("pay", order="7"), call("size")] if last.text == "Both" else [call("pay", order="7")]
            return "; ".join(sorted(m.reply.content[0].text for m in request.messages if m.reply))

        agent = Agent("shop", model=FunctionModel(model), tools=[pay, size])
        return Runtime([agent], store=self.store, clock=self.clock)

    async def ask(self, text: str = "Pay") -> RunResult:
        return await self.root.run("shop", text, thread="t")

    async def remote_tickets(self) -> dict[str, Any]:
        return {ticket.tool: ticket for ticket in await self.remote.tickets.list()}

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def result(self, run_id: str, status: str = "done") -> RunResult:
        """The root's result once it has this status; nothing but the passing of time wakes it."""

        async def found() -> RunResult | None:
            now = await self.root.runs.result(run_id)
            return now if now.status == status else None

        return await until(found)


@asynccontextmanager
async def shops(**approval: Any) -> AsyncIterator[Shop]:
    shop = Shop()
    async with shop.served(**approval) as shop.remote, serve(shop.remote) as shop.url:
        far = Agent.remote("shop", a2a=shop.url, allow_private=True, timeout=20)
        async with Runtime([far], clock=shop.clock) as shop.root:
            yield shop


async def test_remote_deadline_is_the_roots_and_settles_its_ticket() -> None:
    async with shops(deadline=10, on_deadline="approve") as shop:
        asked = await shop.ask()
        (ticket,) = asked.tickets
        (theirs,) = (await shop.remote_tickets()).values()
        assert ticket.deadline == theirs.deadline is not None
        await shop.advance(10)
        await until(lambda: shop.paid)
        await shop.advance(1)
        result = await shop.result(asked.run_id)
        assert result.text == "paid 7"
        assert (await shop.root.tickets.get(ticket.id)).status == "settled"
        assert await shop.root.tickets.decisions(ticket.id) == []


@pytest.mark.parametrize("by", ["operator", "caller"])
async def test_answer_given_elsewhere_settles_ticket(by: str) -> None:
    async with shops() as shop:
        asked = await shop.ask()
        (theirs,) = (await shop.remote_tickets()).values()
        if by == "operator":
            await shop.remote.tickets.answer(theirs.id, theirs.approve())
        else:
            async with connect(shop.url, streaming=False) as client:
                await send(client, said("approve", task_id=theirs.run_id))
        assert shop.paid == ["7"]
        await shop.advance(MINUTE)
        result = await shop.result(asked.run_id)
        assert (result.text, result.tickets) == ("paid 7", ())
        with pytest.raises(TicketClosed, match="settled: the remote agent that had asked continued"):
            await shop.root.tickets.answer(asked.tickets[0].id, asked.tickets[0].deny("no"))


async def test_late_answer_is_refused_and_recorded() -> None:
    async with shops() as shop:
        asked = await shop.ask()
        (ticket,) = asked.tickets
        (theirs,) = (await shop.remote_tickets()).values()
        await shop.remote.tickets.answer(theirs.id, theirs.approve())
        with pytest.raises(TicketClosed, match="had no effect: it was refused by the remote agent that had asked"):
            await shop.root.tickets.answer(ticket.id, ticket.deny("too much"))
        result = await shop.root.runs.result(asked.run_id)
        assert (result.status, result.text, shop.paid) == ("done", "paid 7", ["7"])
        (decision,) = await shop.root.tickets.decisions(ticket.id)
        assert (decision.verdict, decision.reason) == ("deny", "too much")
        assert decision.not_taken is not None
        assert decision.not_taken.cause == "refused"
        assert "is over" in decision.not_taken.reason
        assert (await shop.root.tickets.get(ticket.id)).status == "settled"


@pytest.mark.parametrize("known", [True, False])
async def test_answer_is_not_taken_when_remote_is_unreachable(known: bool, tmp_path: Path) -> None:
    """A retry of the failed run follows the task without the answer: the question is asked again.

    A process that doesn't know the agent's card fails before it has an exchange.
    """
    shop = Shop()
    shop.store = tmp_path / "remote.db"

    def root() -> Runtime:
        far = Agent.remote("shop", a2a=shop.url, allow_private=True, timeout=4, connect_timeout=1)
        return Runtime([far], store=tmp_path / "root.db")

    async with shop.served() as shop.remote, serve(shop.remote) as shop.url:
        runtime = root()
        asked = await runtime.run("shop", "Pay", thread="t")
        (ticket,) = asked.tickets
    if not known:
        await runtime.close()
        runtime = root()
    with pytest.raises(TicketClosed, match="it can't be reached, and the answer was not sent"):
        await runtime.tickets.answer(ticket.id, ticket.deny("too much"))
    (decision,) = await runtime.tickets.decisions(ticket.id)
    assert decision.not_taken is not None
    assert decision.not_taken.cause == "refused"
    assert (await runtime.tickets.get(ticket.id)).status == "cancelled"
    assert isinstance((await runtime.runs.result(asked.run_id)).termination, Failed)
    port = int(shop.url.rpartition(":")[2])
    async with shop.served() as shop.remote, serve_app(app(shop.remote), port):
        again = await runtime.runs.retry(asked.run_id)
        (ticket,) = again.tickets
        result = await runtime.tickets.answer(ticket.id, ticket.approve())
    assert (result.text, shop.paid) == ("paid 7", ["7"])
    await runtime.close()


async def test_unsettled_question_keeps_its_ticket() -> None:
    async with shops() as shop:
        asked = await shop.ask("Both")
        mine = {ticket.arguments["data"]["tool"]: ticket for ticket in asked.tickets}
        theirs = await shop.remote_tickets()
        await shop.remote.tickets.answer(theirs["pay"].id, theirs["pay"].approve())
        assert shop.paid == ["7"]
        await shop.advance(MINUTE)
        left = await until(lambda: _one_left(shop, asked.run_id))
        assert left.id == mine["size"].id
        result = await shop.root.tickets.answer(left.id, 4)
        assert result.text == "paid 7; size 4"
        assert (await shop.root.tickets.get(mine["pay"].id)).status == "settled"


async def _one_left(shop: Shop, run_id: str) -> Any:
    tickets = await shop.root.tickets.list(run_id, status="open")
    return tickets[0] if len(tickets) == 1 else None


async def test_open_question_is_polled_less_and_less() -> None:
    async with shops() as shop:
        asked = await shop.ask()
        waits: list[int] = []
        for _ in range(3):
            run = await shop.root.runs.get(asked.run_id)
            assert run.waiting is not None
            assert run.waiting.until is not None
            due = run.waiting.until
            waits.append((due - shop.clock.now()) // 1000)
            await shop.advance(waits[-1])
            await until(lambda due=due: _waits_past(shop, asked.run_id, due))
        assert waits == [60, 60, 120]
        (ticket,) = await shop.root.tickets.list(asked.run_id)
        assert ticket.id == asked.tickets[0].id


async def _waits_past(shop: Shop, run_id: str, due: int) -> bool:
    waiting = (await shop.root.runs.get(run_id)).waiting
    return waiting is not None and waiting.until is not None and waiting.until > due
