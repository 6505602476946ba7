"""Text beside an answer is delivered with it, or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from a2a_serving import BINDINGS, Gate, answer_of, connect, said, send, serve, state, tickets_in, until

from wakeful import Agent, Delegate, FunctionModel, Runtime, ScriptedModel, ToolContext, call, tool

pytestmark = pytest.mark.parametrize("binding", BINDINGS)


@tool(approval=True)
def refund(order: str) -> str:
    return f"refunded {order}"


@tool(effect="idempotent")
async def ask_size(ctx: ToolContext) -> str:
    return f"size {ctx.ask('Which size?', schema=int)}"


def heard(request: Any) -> str:
    """The user's texts, in the order of the model's request."""
    return ", ".join([message.text for message in request.messages if message.role == "user"])


def shop(*calls: Any, store: Any = None, tools: Any = (refund, ask_size)) -> Runtime:
    """An agent that makes these calls at once, then answers with the user's texts."""

    def model(request: Any) -> Any:
        return heard(request) if any(m.reply for m in request.messages) else list(calls)

    return Runtime([Agent("shop", model=FunctionModel(model), tools=list(tools))], store=store)


def answer(task: pb.Task, text: str, **decision: Any) -> pb.Message:
    """An answer to the task's first ticket, with a text beside it."""
    return said(text, data={"ticketId": tickets_in(task)[0]["ticketId"], **decision}, task_id=task.id)


async def test_text_beside_answer_is_delivered_with_it(binding: str, tmp_path: Path) -> None:
    runtime = shop(call("refund", order="7"), store=tmp_path / "app.db")
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Go")
        yes = answer(task, "And hurry", verdict="approve")
        done = await send(client, yes)
        assert (state(done), answer_of(done)) == ("completed", "Go, And hurry")
        assert answer_of(await send(client, yes)) == "Go, And hurry"
        assert [run.id for run in await runtime.runs.list()] == [task.id]


async def test_text_beside_invalid_answer_is_discarded(binding: str) -> None:
    runtime = shop(call("ask_size"))
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Go")
        with pytest.raises(InvalidParamsError, match="ask_size"):
            await send(client, answer(task, "Forget me", value="large"))
        assert await runtime.mail.pending(task.context_id) == []
        done = await send(client, answer(task, "And hurry", value=42))
        assert (state(done), answer_of(done)) == ("completed", "Go, And hurry")


async def test_concurrent_answers_deliver_text_of_accepted_one_only(binding: str, tmp_path: Path) -> None:
    gate = Gate()

    @tool(approval=True)
    async def pay(order: str) -> str:
        await gate.wait()
        return f"paid {order}"

    calls = call("pay", order="1"), call("refund", order="2")
    runtime = shop(*calls, store=tmp_path / "app.db", tools=[pay, refund])
    async with serve(runtime) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Go")
        first, second = tickets_in(task)
        # While the first call runs, its thread has an owner, and answers go through the inbox.
        begun = said(data={"ticketId": first["ticketId"], "verdict": "approve"}, task_id=task.id)
        await send(client, begun, return_immediately=True)
        await gate.reached.wait()
        ways = {"Yes, I say": "approve", "No, I say": "deny"}
        answers = [
            send(client, said(text, data={"ticketId": second["ticketId"], "verdict": way}, task_id=task.id))
            for text, way in ways.items()
        ]
        waiting = asyncio.gather(*answers, return_exceptions=True)

        async def is_answered() -> bool:
            ticket = await runtime.store.ticket(second["ticketId"])
            return ticket is not None and ticket.status == "answered"

        await until(is_answered)
        gate.opened.set()
        results = await waiting
        (done,) = [result for result in results if isinstance(result, pb.Task)]
        (refused,) = [result for result in results if not isinstance(result, pb.Task)]
        assert isinstance(refused, InvalidParamsError | UnsupportedOperationError)
        (decision,) = await runtime.tickets.decisions(second["ticketId"])
        (counts,) = [text for text, way in ways.items() if way == decision.verdict]
        assert answer_of(done) == f"Go, {counts}"
        assert await runtime.mail.pending(task.context_id) == []
        assert [run.id for run in await runtime.runs.list()] == [task.id]


@pytest.mark.parametrize("durable", [True, False])
async def test_text_beside_delegate_answer_goes_to_root_task(binding: str, durable: bool, tmp_path: Path) -> None:
    asks = call("agent_run_payer", prompt="Refund 7")

    def lead(request: Any) -> Any:
        return heard(request) if any(m.reply for m in request.messages) else asks

    payer = ScriptedModel([call("refund", order="7"), "done"])
    agents = [
        Agent("lead", FunctionModel(lead), delegates=[Delegate("payer", durable=durable)]),
        Agent("payer", payer, tools=[refund]),
    ]
    runtime = Runtime(agents, store=tmp_path / "app.db")
    async with serve(runtime, agents=["lead"]) as url, connect(url, binding, streaming=False) as client:
        task = await send(client, "Go")
        done = await send(client, answer(task, "And hurry", verdict="approve"))
        assert (state(done), answer_of(done)) == ("completed", "Go, And hurry")
        assert "And hurry" not in heard(payer.requests[-1])
