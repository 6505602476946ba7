"""Rights on tickets over A2A: a caller is the requester of its task."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.client.errors import A2AClientError
from a2a.utils.errors import InvalidParamsError, UnsupportedOperationError
from a2a_serving import BINDINGS, answer_of, connect, get, said, send, serve, state, tickets_in

from wakeful import (
    Agent,
    Approval,
    ClientTool,
    FunctionModel,
    Principal,
    Runtime,
    ToolContext,
    call,
    tool,
)
from wakeful.identity import Caller, Tokens

pytestmark = pytest.mark.parametrize("binding", BINDINGS)

AUTH = Tokens(tokens={"eves-token": "eve"})
EVE = {"Authorization": "Bearer eves-token"}
ANN = Principal("ann")


def shop(made: Any, **arguments: Any) -> Runtime:
    def model(request: Any) -> Any:
        last = request.messages[-1]
        return last.reply.content[0].text if last.reply else call(made.name, **arguments)

    return Runtime([Agent("shop", model=FunctionModel(model), tools=[made])])


def paying(approval: Any) -> Any:
    @tool(approval=approval)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    return pay


async def test_requester_may_not_approve_edit_or_forge(binding: str) -> None:
    runtime = shop(paying(True), amount=5)
    async with serve(runtime, auth=AUTH) as url, connect(url, binding, streaming=False, headers=EVE) as client:
        task = await send(client, "Go")
        (ticket,) = tickets_in(task)
        assert ticket["accepts"] == []
        assert "waits for somebody else" in task.status.message.parts[0].text
        for decision in (
            {"verdict": "approve"},
            {"verdict": "deny"},
            {"mode": "arguments", "value": {"amount": 1}},
            {"mode": "result", "value": "paid"},
        ):
            with pytest.raises(UnsupportedOperationError, match="it is the requester of the call"):
                await send(client, said(data={"ticketId": ticket["ticketId"], **decision}, task_id=task.id))
        assert list(await runtime.tickets.decisions(ticket["ticketId"])) == []
        await runtime.tickets.answer(ticket["ticketId"], True, principal=ANN)
        done = await get(client, task.id)
        assert (state(done), answer_of(done)) == ("completed", "paid 5")


async def test_admitted_requester_approves_only_what_it_saw(binding: str) -> None:
    runtime = shop(paying(Approval(requester=True)), amount=5)
    async with serve(runtime, auth=AUTH) as url, connect(url, binding, streaming=False, headers=EVE) as client:
        task = await send(client, "Go")
        (ticket,) = tickets_in(task)
        assert ticket["accepts"] == ["deny", "proceed"]
        edit = {"ticketId": ticket["ticketId"], "mode": "arguments", "value": {"amount": 1}}
        with pytest.raises(UnsupportedOperationError, match="who may approve or deny it, no more"):
            await send(client, said(data=edit, task_id=task.id))
        yes = {"ticketId": ticket["ticketId"], "verdict": "approve"}
        with pytest.raises(InvalidParamsError, match="isn't what the author of the decision saw"):
            await send(client, said(data={**yes, "seen": "0" * 32}, task_id=task.id))
        done = await send(client, said(data={**yes, "seen": ticket["digest"]}, task_id=task.id))
        assert (state(done), answer_of(done)) == ("completed", "paid 5")
        (decision,) = await runtime.tickets.decisions(ticket["ticketId"])
        assert (decision.principal_id, decision.auth, decision.seen) == ("eve", "token", ticket["digest"])


async def test_requester_answers_questions_of_its_task(binding: str) -> None:
    @tool(resumable=True)
    async def ask(ctx: ToolContext) -> str:
        return f"size {ctx.ask('Which size?', schema=int)}"

    runtime = shop(ask)
    async with serve(runtime, auth=AUTH) as url, connect(url, binding, streaming=False, headers=EVE) as client:
        task = await send(client, "Go")
        assert answer_of(await send(client, said("42", task_id=task.id))) == "size 42"


async def test_requester_supplies_result_of_client_tool(binding: str) -> None:
    runtime = shop(ClientTool("look", "Look."))
    async with serve(runtime, auth=AUTH) as url, connect(url, binding, streaming=False, headers=EVE) as client:
        task = await send(client, "Go")
        assert answer_of(await send(client, said("blue", task_id=task.id))) == "blue"


async def test_vote_of_requester_leaves_task_waiting(binding: str) -> None:
    runtime = shop(paying(Approval(quorum=2, requester=True)), amount=5)
    async with serve(runtime, auth=AUTH) as url, connect(url, binding, streaming=False, headers=EVE) as client:
        task = await send(client, "Go")
        for _ in range(2):
            task = await send(client, said("approve", task_id=task.id))
            assert state(task) == "input_required"
        (ticket,) = await runtime.tickets.list(status="open")
        assert [vote.principal_id for vote in ticket.approvals] == ["eve"]
        await runtime.tickets.answer(ticket.id, True, principal=ANN)
        assert answer_of(await get(client, task.id)) == "paid 5"


async def test_caller_limited_to_other_agents_is_refused(binding: str) -> None:
    seller = Caller(principal=Principal("sue"), scopes=frozenset(["runs:create"]), agents=("sales",))
    runtime, auth = shop(paying(True), amount=5), Tokens(tokens={"sues-token": seller})
    async with (
        serve(runtime, auth=auth) as url,
        connect(url, binding, streaming=False, headers={"Authorization": "Bearer sues-token"}) as client,
    ):
        with pytest.raises(A2AClientError, match="403"):
            await send(client, "Go")
        assert list(await runtime.runs.list()) == []
