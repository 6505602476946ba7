"""Questions between two wakeful runtimes over A2A: one local ticket for each remote one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a_serving import answer_of, connect, get, said, send, serve, serve_app, state, tickets_in, until

from wakeful import (
    Agent,
    Delegate,
    FunctionModel,
    Plugin,
    Runtime,
    ScriptedModel,
    ToolContext,
    call,
    tool,
)
from wakeful.errors import InvalidDecision, TicketClosed
from wakeful.plugins import BeforeInference
from wakeful.server import app
from wakeful.types.messages import Message


@tool(approval=True)
def refund(order: str) -> str:
    return f"refunded {order}"


@tool(effect="idempotent")
async def ask_size(ctx: ToolContext) -> str:
    return f"size {ctx.ask('Which size?', schema=int)}"


@tool(effect="idempotent")
async def ask_address(ctx: ToolContext) -> str:
    where = ctx.ask("Where to?", schema={"type": "object", "required": ["city"]})
    return f"to {where['city']} ({type(where).__name__})"


@tool(effect="idempotent")
async def ask_twice(ctx: ToolContext) -> str:
    return f"{ctx.ask('First?')} and {ctx.ask('Second?')}"


def told(messages: Any) -> str:
    """The tools' results."""
    replies = [m.reply for m in messages if m.reply is not None]
    return "; ".join(sorted(reply.content[0].text for reply in replies))


def shop(*calls: Any, store: Any = None) -> Runtime:
    """An agent that makes these calls at once, then answers with their results; other input is echoed."""

    def model(request: Any) -> Any:
        last: Message = request.messages[-1]
        if last.role == "user" and last.text.startswith("Go"):
            return list(calls)
        return f"You said {last.text}" if last.role == "user" else told(request.messages)

    tools = [refund, ask_size, ask_address, ask_twice]
    return Runtime([Agent("shop", model=FunctionModel(model), tools=tools)], store=store)


BOTH = (call("refund", order="7"), call("ask_size"))


@asynccontextmanager
async def here(url: str, store: Any = None) -> AsyncIterator[Runtime]:
    async with Runtime([Agent.remote("shop", a2a=url, allow_private=True, timeout=20)], store=store) as runtime:
        yield runtime


def by_tool(tickets: Any) -> dict[str, Any]:
    return {ticket.arguments["data"]["tool"]: ticket for ticket in tickets}


# -- refused answers -----------------------------------------------------------------------------------------


async def test_refused_answer_is_asked_for_again_with_reason() -> None:
    async with serve(shop(call("refund", order="7"))) as url, here(url) as runtime:
        asked = await runtime.run("shop", "Go", thread="t")
        (first,) = asked.tickets
        again = await runtime.tickets.answer(first.id, first.edit({"order": 5}))
        assert (again.run_id, again.status) == (asked.run_id, "waiting")
        (second,) = again.tickets
        assert second.id == first.id
        (refused,) = await runtime.tickets.decisions(first.id)
        assert refused.not_taken is not None
        assert refused.not_taken.cause == "refused"
        assert "$.order: expected str, got int" in second.message
        assert "May refund run?" in second.message
        done = await runtime.tickets.answer(second.id, True)
        assert (done.status, done.text) == ("done", "refunded 7")


async def test_refusal_reason_is_shown_only_on_its_question() -> None:
    async with serve(shop(*BOTH)) as url, here(url) as runtime:
        asked = await runtime.run("shop", "Go", thread="t")
        tickets = by_tool(asked.tickets)
        again = await runtime.tickets.answer(tickets["refund"].id, tickets["refund"].edit({"order": 5}))
        now = by_tool(again.tickets)
        assert "refused" in now["refund"].message
        assert (now["ask_size"].message, now["ask_size"].id) == ("Which size?", tickets["ask_size"].id)
        await runtime.tickets.answer(now["ask_size"].id, 42)
        done = await runtime.tickets.answer(now["refund"].id, True)
        assert done.text == "refunded 7; size 42"


async def test_answer_is_checked_against_remote_schema() -> None:
    async with serve(shop(call("ask_size"))) as url, here(url) as runtime:
        asked = await runtime.run("shop", "Go", thread="t")
        (ticket,) = asked.tickets
        with pytest.raises(InvalidDecision, match="integer"):
            await runtime.resume(asked.run_id, ticket.result("large"))
        assert (await runtime.resume(asked.run_id, ticket.result(42))).text == "size 42"


async def test_run_resumes_when_ticket_is_answered_at_remote() -> None:
    served = shop(call("refund", order="7"))
    async with serve(served) as url, here(url) as runtime:
        asked = await runtime.run("shop", "Go", thread="t")
        (theirs,) = await served.tickets.list(status="open")
        await served.tickets.answer(theirs.id, True)
        with pytest.raises(TicketClosed, match="it was refused by the remote agent that had asked"):
            await runtime.resume(asked.run_id, asked.tickets[0].deny("no"))
        done = await runtime.runs.result(asked.run_id)
        assert (done.status, done.text) == ("done", "refunded 7")


class Mask(Plugin):
    """Masks texts as docs/state-and-plugins.md does for single messages."""

    async def before_inference(self, ctx: BeforeInference) -> None:
        ctx.plan.replace_messages([m.with_text(m.text.replace("sk-1", "[masked]")) for m in ctx.messages])


async def test_hooks_mask_value_and_reason_of_answers() -> None:
    """A copy with another text has neither the value nor the reason that the text repeats."""
    served = shop(call("ask_twice"), call("refund", order="7"))
    far: Any = app(served)
    heard: list[bytes] = []

    async def spied(scope: Any, receive: Any, send: Any) -> None:
        async def listen() -> Any:
            message = await receive()
            heard.append(message.get("body", b""))
            return message

        await far(scope, listen, send)

    async with serve_app(spied) as url:
        agent = Agent.remote("shop", a2a=url, allow_private=True, timeout=60)
        async with Runtime([agent], plugins=[Mask()]) as runtime:
            asked = await runtime.run("shop", "Go", thread="t")
            tickets = by_tool(asked.tickets)
            await runtime.tickets.answer(tickets["refund"].id, tickets["refund"].deny("it has sk-1"))
            again = await runtime.tickets.answer(tickets["ask_twice"].id, "first sk-1")
            (last,) = again.tickets
            done = await runtime.tickets.answer(last.id, last.result("second", reason="not sk-1"))
    assert done.text == "first [masked] and second; refund was denied. It did not run."
    assert b"sk-1" not in b"".join(heard)


# -- several tickets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("refund", "ask_size"), ("ask_size", "refund")])
async def test_tickets_are_answered_in_any_order_over_restarts(order: tuple[str, str], tmp_path: Path) -> None:
    answers = {"refund": True, "ask_size": 42}
    served, store = str(tmp_path / "served.db"), str(tmp_path / "here.db")
    async with serve(shop(*BOTH, store=served)) as url, here(url, store) as runtime:
        asked = await runtime.run("shop", "Go", thread="t")
        tickets = by_tool(asked.tickets)
        assert tickets.keys() == answers.keys()
        assert tickets["ask_size"].schema["type"] == "integer"
        half = await runtime.tickets.answer(tickets[order[0]].id, answers[order[0]])
        assert half.status == "waiting"
        # The open question keeps its ticket.
        assert [t.id for t in half.tickets] == [tickets[order[1]].id]
    port = int(url.rpartition(":")[2])
    async with serve_app(app(shop(*BOTH, store=served)), port) as url, here(url, store) as runtime:
        done = await runtime.tickets.answer(tickets[order[1]].id, answers[order[1]])
        assert done.text == "refunded 7; size 42"


async def test_two_answers_may_arrive_at_once() -> None:
    async with serve(shop(*BOTH)) as url, here(url) as runtime:
        asked = await runtime.run("shop", "Go", thread="t")
        tickets = by_tool(asked.tickets)
        done = await runtime.resume(
            asked.run_id, tickets["ask_size"].result(42), tickets["refund"].deny("too late")
        )
        assert done.status == "done"
        assert "too late" in done.text
        assert "size 42" in done.text


async def test_arguments_may_be_edited_over_a2a() -> None:
    async with serve(shop(call("refund", order="7"))) as url, here(url) as runtime:
        asked = await runtime.run("shop", "Go", thread="t")
        done = await runtime.resume(asked.run_id, asked.tickets[0].edit({"order": "8"}))
        assert done.text.startswith("refunded 8")


async def test_new_question_joins_open_ones_after_partial_answer() -> None:
    async with serve(shop(call("ask_twice"), call("refund", order="7"))) as url, here(url) as runtime:
        asked = await runtime.run("shop", "Go", thread="t")
        tickets = by_tool(asked.tickets)
        half = await runtime.tickets.answer(tickets["ask_twice"].id, "one")
        assert sorted(t.message.partition("?")[0] for t in half.tickets) == ["May refund run", "Second"]
        await runtime.tickets.answer(tickets["refund"].id, True)
        done = await runtime.tickets.answer(by_tool(half.tickets)["ask_twice"].id, "two")
        assert done.text == "one and two; refunded 7"
        assert not await runtime.tickets.list(status="open")


@pytest.mark.parametrize("durable", [True, False])
async def test_questions_of_remote_children_are_answered_one_by_one(durable: bool, tmp_path: Path) -> None:
    asks = [call("agent_run_buyer", prompt="a"), call("agent_run_payer", prompt="b")]
    agents = [
        Agent(
            "shop",
            model=ScriptedModel([asks, "All done."]),
            delegates=[Delegate("buyer", durable=durable), Delegate("payer", durable=durable)],
        ),
        Agent("buyer", model=ScriptedModel([call("ask_twice"), "bought"]), tools=[ask_twice]),
        Agent("payer", model=ScriptedModel([call("refund", order="7"), "paid"]), tools=[refund]),
    ]
    served = Runtime(agents, store=tmp_path / "served.db")
    async with serve(served, agents=["shop"]) as url, here(url, str(tmp_path / "here.db")) as runtime:
        result = await runtime.run("shop", "Go", thread="t")
        answers: dict[str, Any] = {"ask_twice": ["one", "two"], "refund": [True]}
        while result.status == "waiting":  # The order of the questions isn't fixed.
            tool_name, ticket = sorted(by_tool(result.tickets).items())[0]
            result = await runtime.tickets.answer(ticket.id, answers[tool_name].pop(0))
        assert (result.status, result.text) == ("done", "All done.")
        assert answers == {"ask_twice": [], "refund": []}


# -- structured answers --------------------------------------------------------------------------------------


async def test_structured_answer_keeps_its_structure() -> None:
    async with serve(shop(call("ask_address"))) as url, here(url) as runtime:
        asked = await runtime.run("shop", "Go", thread="t")
        done = await runtime.resume(asked.run_id, asked.tickets[0].result({"city": "Oslo"}))
        assert done.text == "to Oslo (dict)"


# -- new input -----------------------------------------------------------------------------------------------


async def test_new_input_supersedes_run_waiting_on_remote_ticket() -> None:
    served = shop(call("refund", order="7"))
    async with serve(served) as url, here(url) as runtime:
        asked = await runtime.run("shop", "Go", thread="t")
        second = await runtime.run("shop", "Never mind", thread="t")
        assert (second.status, second.text) == ("done", "You said Never mind")
        assert not await runtime.tickets.list(status="open")
        assert not await served.tickets.list(status="open")
        first = await runtime.runs.result(asked.run_id)
        assert first.error == "cancelled: superseded by new input"


async def test_queued_input_runs_after_answer_to_remote_ticket() -> None:
    async with serve(shop(call("refund", order="7"))) as url, here(url) as runtime:
        asked = await runtime.run("shop", "Go", thread="t")
        await runtime.send("t", "And now?")
        assert (await runtime.tickets.answer(asked.tickets[0].id, True)).text == "refunded 7"

        async def newer() -> str | None:
            newest = (await runtime.runs.list(thread="t"))[0].id
            return newest if newest != asked.run_id else None

        assert (await runtime.wait(await until(newer))).text == "You said And now?"


async def test_steering_input_is_sent_with_answer() -> None:
    async with serve(shop(call("refund", order="7"))) as url, here(url) as runtime:
        asked = await runtime.run("shop", "Go", thread="t")
        await runtime.send("t", "Quickly", policy="steer")
        assert (await runtime.tickets.answer(asked.tickets[0].id, True)).text == "You said Quickly"


async def test_plain_no_to_remote_approval_is_a_denial() -> None:
    async with serve(shop(call("refund", order="7"))) as remote, here(remote) as runtime:
        result = await runtime.run("shop", "Go")
        (ticket,) = result.tickets
        for unclear in (5, "no", {"a": 1}, None):
            with pytest.raises(InvalidDecision, match="True or False"):
                await runtime.tickets.answer(ticket.id, unclear)
        result = await runtime.tickets.answer(ticket.id, False)
        assert "refunded" not in result.text
        assert [decision.verdict for decision in await runtime.tickets.decisions(ticket.id)] == ["deny"]


# -- later questions -----------------------------------------------------------------------------------------


async def test_new_question_is_shown_beside_open_one(tmp_path: Path) -> None:
    gate = asyncio.Event()

    @tool(effect="idempotent")
    async def ask_later(ctx: ToolContext) -> str:
        """Ask when the gate is open."""
        await gate.wait()
        return ctx.ask("Later?")

    asks = [call("agent_run_buyer", prompt="a"), call("agent_run_payer", prompt="b")]
    delegates = [Delegate("buyer", durable=True), Delegate("payer", durable=True)]
    agents = [
        Agent("shop", model=ScriptedModel([asks, "All done."]), delegates=delegates),
        Agent("buyer", model=ScriptedModel([call("ask_later"), "bought"]), tools=[ask_later]),
        Agent("payer", model=ScriptedModel([call("refund", order="7"), "paid"]), tools=[refund]),
    ]
    served = Runtime(agents, store=tmp_path / "served.db")
    async with serve(served, agents=["shop"]) as url, connect(url, streaming=False) as client:
        task = await send(client, "Go")
        assert [ticket["tool"] for ticket in tickets_in(task)] == ["refund"]

        async def subscribed() -> list[Any]:
            request = pb.SubscribeToTaskRequest(id=task.id)
            async with connect(url) as streaming:
                async for event in streaming.subscribe(request):
                    seen.append(event)
                    begun.set()
            return seen

        seen: list[Any] = []
        begun = asyncio.Event()
        reading = asyncio.create_task(subscribed())
        await begun.wait()
        gate.set()
        # The stream shows it, and the task has both.
        async with asyncio.timeout(120):
            first, update = await reading
        assert [ticket["tool"] for ticket in tickets_in(first.task)] == ["refund"]
        both = ["refund", "ask_later"]
        assert [ticket["tool"] for ticket in tickets_in(update.status_update)] == both
        assert [ticket["tool"] for ticket in tickets_in(await get(client, task.id))] == both
        answers = [{"ticketId": ticket["ticketId"], "value": True} for ticket in tickets_in(update.status_update)]
        done = await send(client, said(data={"decisions": answers}, task_id=task.id))
        assert (state(done), answer_of(done)) == ("completed", "All done.")
