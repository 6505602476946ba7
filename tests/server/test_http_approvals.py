"""The right to answer a ticket, over HTTP: requester, assignee, quorum, edits, replays and stale digests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from http_serving import Person

from wakeful import Agent, Approval, Runtime, ScriptedModel, call, tool
from wakeful.identity import ApiKeys, create_key
from wakeful.server import app, lifespan

PEOPLE: dict[str, dict[str, Any]] = {
    "ann": {"scopes": ["user"]},
    "carl": {"scopes": ["approver"], "groups": ["finance"]},
    "root": {"scopes": ["admin"]},
    "dora": {"scopes": ["approver"], "groups": ["finance"]},
    "emil": {"scopes": ["tickets:read", "tickets:answer"], "groups": ["finance"]},
    "fred": {"scopes": ["user"]},
}


@asynccontextmanager
async def payments(approval: Approval, *, at_once: int = 1) -> AsyncIterator[tuple[dict[str, Person], list[int]]]:
    """Serve an agent that pays after approval; yields the callers, and the amounts that were paid."""
    paid: list[int] = []

    @tool(approval=approval)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    model = ScriptedModel([*[call("pay", amount=5)] * at_once, *["Done."] * at_once])
    runtime = Runtime([Agent("desk", model=model, tools=[pay])])
    served = app(runtime, auth=ApiKeys(runtime.store))
    people: dict[str, Person] = {}
    async with lifespan(served):
        for name, options in PEOPLE.items():
            _, text = await create_key(runtime.store, name, principal=name, **options)
            people[name] = httpx.AsyncClient(
                transport=httpx.ASGITransport(served),
                base_url="http://x",
                headers={"Authorization": f"Bearer {text}"},
            )
        yield people, paid


async def ask(people: dict[str, Person]) -> dict[str, Any]:
    """Have ann request a payment; returns its ticket."""
    body = {"agent": "desk", "input": "Pay", "wait": 60}
    return (await people["ann"].post("/v1/runs", json=body)).raise_for_status().json()["tickets"][0]


async def answer(who: Person, ticket: dict[str, Any], **body: Any) -> httpx.Response:
    return await who.post(f"/v1/tickets/{ticket['id']}/answer", json={"wait": 60, **body})


async def test_requester_is_refused_and_assignee_approves() -> None:
    async with payments(Approval(groups=("finance",))) as (people, paid):
        ticket = await ask(people)
        for body in ({"verdict": "approve"}, {"verdict": "deny"}, {"mode": "result", "value": "paid"}):
            assert (await answer(people["ann"], ticket, **body)).status_code == 403
        resumed = {"decisions": [{"ticket_id": ticket["id"], "verdict": "approve"}]}
        assert (await people["ann"].post(f"/v1/runs/{ticket['run_id']}/resume", json=resumed)).status_code == 403
        assert paid == []
        done = (await answer(people["carl"], ticket, verdict="approve", reason="fine")).raise_for_status().json()
        assert (done["text"], paid) == ("Done.", [5])
        (decision,) = (await people["ann"].get(f"/v1/tickets/{ticket['id']}/decisions")).json()
        assert (decision["principal_id"], decision["reason"]) == ("carl", "fine")
        assert decision["auth"].startswith("key:")


async def test_refused_answers_are_in_the_audit() -> None:
    async with payments(Approval(groups=("finance",))) as (people, _):
        ticket = await ask(people)
        await answer(people["ann"], ticket, verdict="approve")
        many = {"answers": [{"ticket_id": ticket["id"], "verdict": "approve"}]}
        (outcome,) = (await people["ann"].post("/v1/tickets:answer", json=many)).json()
        assert outcome["problem"]["status"] == 403
        entries = (await people["root"].get("/v1/audit")).json()["items"]
        refused = [(e["principal_id"], e["action"], e["resource"], e["resource_id"]) for e in entries]
        assert refused == [("ann", "tickets:answer", "ticket", ticket["id"])] * 2


async def test_ticket_is_hidden_from_those_it_doesnt_concern() -> None:
    async with payments(Approval(groups=("finance",))) as (people, paid):
        ticket = await ask(people)
        assert (await people["fred"].get(f"/v1/tickets/{ticket['id']}")).status_code == 404
        assert (await answer(people["fred"], ticket, verdict="approve")).status_code == 404
        counts = {
            name: (await people[name].get("/v1/tickets:count?assignee=me&status=open")).json()["count"]
            for name in people
        }
        assert counts == {"ann": 0, "carl": 1, "dora": 1, "emil": 1, "fred": 0, "root": 0}
        assert paid == []


async def test_quorum_needs_two_principals() -> None:
    async with payments(Approval(groups=("finance",), quorum=2)) as (people, paid):
        ticket = await ask(people)
        for _ in range(2):
            voted = await answer(people["carl"], ticket, verdict="approve", wait=0)
            assert voted.status_code in (200, 202)
        assert len((await people["carl"].get(f"/v1/tickets/{ticket['id']}")).json()["approvals"]) == 1
        assert paid == []
        await answer(people["dora"], ticket, verdict="approve")
        assert paid == [5]


async def test_edit_between_two_votes_starts_the_count_again() -> None:
    async with payments(Approval(groups=("finance",), quorum=2)) as (people, paid):
        ticket = await ask(people)
        await answer(people["carl"], ticket, verdict="approve", wait=0)
        await answer(people["dora"], ticket, mode="arguments", value={"amount": 4})
        assert paid == []
        await answer(people["carl"], ticket, verdict="approve")
        assert paid == [4]


async def test_edit_needs_its_own_right() -> None:
    async with payments(Approval(groups=("finance",))) as (people, paid):
        ticket = await ask(people)
        refused = await answer(people["emil"], ticket, mode="arguments", value={"amount": 1})
        assert (refused.status_code, refused.json()["data"]["needed"]) == (403, "tickets:edit")
        assert paid == []


async def test_stale_digest_is_refused() -> None:
    async with payments(Approval(groups=("finance",), quorum=2)) as (people, paid):
        ticket = await ask(people)
        await answer(people["dora"], ticket, mode="arguments", value={"amount": 4})
        stale = await answer(people["carl"], ticket, verdict="approve", seen=ticket["digest"])
        assert (stale.status_code, stale.json()["code"]) == (409, "stale-decision")
        assert paid == []


async def test_repeated_answer_pays_once() -> None:
    async with payments(Approval(groups=("finance",))) as (people, paid):
        ticket = await ask(people)
        headers = {"Idempotency-Key": "k"}
        path = f"/v1/tickets/{ticket['id']}/answer"
        body = {"verdict": "approve", "wait": 60}
        first = await people["carl"].post(path, json=body, headers=headers)
        again = await people["carl"].post(path, json=body, headers=headers)
        assert first.json()["run_id"] == again.json()["run_id"]
        other = await people["carl"].post(path, json={**body, "reason": "late"}, headers=headers)
        assert (other.status_code, other.json()["code"], paid) == (422, "request-reused", [5])


async def test_requester_may_approve_where_the_tool_says_so() -> None:
    async with payments(Approval(requester=True)) as (people, paid):
        ticket = await ask(people)
        assert (await answer(people["ann"], ticket, mode="arguments", value={"amount": 9})).status_code == 403
        assert (await answer(people["ann"], ticket, mode="result", value="paid")).status_code == 403
        await answer(people["ann"], ticket, verdict="approve")
        assert paid == [5]


async def test_several_answers_are_judged_alone() -> None:
    async with payments(Approval(groups=("finance",)), at_once=2) as (people, paid):
        first, second = await ask(people), await ask(people)
        answers = [
            {"ticket_id": first["id"], "verdict": "approve"},
            {"ticket_id": "none", "verdict": "approve"},
            {"ticket_id": second["id"], "verdict": "deny"},
        ]
        outcomes = (await people["carl"].post("/v1/tickets:answer", json={"answers": answers})).json()
        assert ["problem" in outcome for outcome in outcomes] == [False, True, False]
        for ticket in (first, second):
            path = f"/v1/runs/{ticket['run_id']}"
            while (await people["ann"].get(path)).json()["status"] != "done":
                await asyncio.sleep(0)  # The process that serves the agent takes the answers.
        assert paid == [5]


async def test_context_shows_messages_and_rights_to_an_approver() -> None:
    async with payments(Approval(groups=("finance",))) as (people, _):
        ticket = await ask(people)
        found = (await people["carl"].get(f"/v1/tickets/{ticket['id']}/context")).json()
        assert [message["role"] for message in found["messages"]] == ["user", "assistant"]
        assert found["tool"]["parameters"]["properties"] == {"amount": {"type": "integer"}}
        assert found["may"] == ["answer", "edit", "supply", "reassign", "comment"]
        for name, may in (("emil", ["answer", "comment"]), ("ann", ["comment"])):
            seen = (await people[name].get(f"/v1/tickets/{ticket['id']}/context")).json()
            assert seen["may"] == may
        assert (await people["fred"].get(f"/v1/tickets/{ticket['id']}/context")).status_code == 404


async def test_context_of_an_answered_ticket_shows_nothing_later() -> None:
    async with payments(Approval(groups=("finance",))) as (people, _):
        ticket = await ask(people)
        await answer(people["carl"], ticket, verdict="approve")
        found = (await people["carl"].get(f"/v1/tickets/{ticket['id']}/context")).json()
        assert [message["role"] for message in found["messages"]] == ["user", "assistant"]
        assert "may" not in found
