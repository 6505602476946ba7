"""Lists and counts over HTTP: filters, pages, and what each caller sees of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from http_serving import Person

from wakeful import Agent, Approval, Principal, Runtime, ScriptedModel, call, tool
from wakeful.identity import ApiKeys, Caller, Deny, Filter, Resource, Verdict, create_key, owners_only
from wakeful.server import app, lifespan

PEOPLE: dict[str, dict[str, Any]] = {
    "ann": {"scopes": ["user"]},
    "bob": {"scopes": ["user"]},
    "carl": {"scopes": ["approver"], "groups": ["finance"]},
    "dora": {"scopes": ["tickets:read:other", "runs:read:other"], "groups": ["finance"]},
    "emil": {"scopes": ["approver"], "groups": ["finance"], "agents": ["other"]},
    "ops": {"scopes": ["operator"]},
}


@tool(approval=Approval(groups=("finance",)), timeout=None)
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"


@tool(approval=True)
async def look(page: str) -> str:
    """Look."""
    return "seen"


def office() -> Runtime:
    pays = ScriptedModel([call("pay", amount=5)] * 9)
    looks = ScriptedModel([call("look", page="/")] * 9)
    return Runtime([Agent("desk", model=pays, tools=[pay]), Agent("other", model=looks, tools=[look])])


@asynccontextmanager
async def serve(**options: Any) -> AsyncIterator[dict[str, Person]]:
    """Ann and bob have asked the agent `desk`, whose tickets are for finance, and ann the agent `other`."""
    runtime = office()
    served = app(runtime, auth=ApiKeys(runtime.store), **options)
    people: dict[str, Person] = {}
    async with lifespan(served):
        for name, given in PEOPLE.items():
            _, text = await create_key(runtime.store, name, principal=name, **given)
            people[name] = httpx.AsyncClient(
                transport=httpx.ASGITransport(served),
                base_url="http://x",
                headers={"Authorization": f"Bearer {text}"},
            )
        for name, agent in (("ann", "desk"), ("bob", "desk"), ("ann", "other")):
            await runtime.run(agent, "Go", principal=Principal(name))
        yield people


async def listed(who: Person, query: str = "") -> list[str]:
    """The tickets of a list as `requester agent`; the count says the same number."""
    answer = await who.get(f"/v1/tickets?{query}")
    assert answer.status_code == 200, answer.text
    count = query.removesuffix("order=deadline")
    assert (await who.get(f"/v1/tickets:count?{count}")).json()["count"] == len(answer.json()["items"])
    return [f"{one['requester']} {one['agent_id']}" for one in answer.json()["items"]]


async def test_tickets_are_listed_by_who_may_answer_them() -> None:
    async with serve() as people:
        everything = ["ann desk", "bob desk", "ann other"]
        assert await listed(people["ops"]) == everything
        assert await listed(people["carl"]) == everything
        assert await listed(people["carl"], "assignee=me") == everything
        assert await listed(people["carl"], "assignee=my-groups") == ["ann desk", "bob desk"]
        assert await listed(people["ann"]) == ["ann desk", "ann other"]
        assert await listed(people["ann"], "assignee=me") == []
        assert await listed(people["bob"]) == ["bob desk", "ann other"]
        assert await listed(people["bob"], "assignee=me") == ["ann other"]
        assert await listed(people["ops"], "agent=other") == ["ann other"]
        assert await listed(people["ops"], "tool=pay&requester=bob") == ["bob desk"]
        assert await listed(people["ops"], "status=open&order=deadline") == everything


async def test_lists_have_only_the_agents_of_a_credential() -> None:
    async with serve() as people:
        for name in ("dora", "emil"):
            assert await listed(people[name]) == ["ann other"]
            assert await listed(people[name], "agent=desk") == []
        desk = (await people["ops"].get("/v1/tickets?agent=desk")).json()["items"][0]["id"]
        for name in ("dora", "emil"):
            assert (await people[name].get(f"/v1/tickets/{desk}")).status_code == 404


async def test_pages_by_deadline_have_each_ticket_once() -> None:
    async with serve() as people:
        found: list[str] = []
        query = "status=open&order=deadline&limit=1"
        page = (await people["ops"].get(f"/v1/tickets?{query}")).json()
        while True:
            found += [one["id"] for one in page["items"]]
            if page["next"] is None:
                break
            page = (await people["ops"].get(f"/v1/tickets?{query}&cursor={page['next']}")).json()
        assert len(set(found)) == len(found) == 3
        answer = await people["ops"].get("/v1/tickets?order=deadline")
        assert (answer.status_code, answer.json()["code"]) == (400, "usage-error")


@pytest.mark.parametrize(("verdict", "status"), [(Deny("no"), 403), (Filter("bob"), 200)])
async def test_hook_narrows_tickets(verdict: Verdict, status: int) -> None:
    async def authorize(caller: Caller, action: str, resource: Resource) -> Verdict:
        return verdict if resource.kind == "ticket" else await owners_only(caller, action, resource)

    async with serve(authorize=authorize) as people:
        answer = await people["ops"].get("/v1/tickets")
        assert answer.status_code == status
        if status == 200:
            assert [one["requester"] for one in answer.json()["items"]] == ["bob", "ann"]
        mine = (await people["ann"].get("/v1/runs?agent=desk")).json()["items"][0]["waiting"]["tickets"][0]
        assert (await people["ann"].get(f"/v1/tickets/{mine}")).status_code == 404


async def test_runs_are_counted_as_they_are_listed() -> None:
    async with serve() as people:
        for name, wanted in (("ann", 2), ("bob", 1), ("ops", 3), ("dora", 0)):
            assert (await people[name].get("/v1/runs:count?status=waiting")).json() == {
                "count": wanted,
                "more": False,
            }
            assert len((await people[name].get("/v1/runs?status=waiting")).json()["items"]) == wanted
        assert (await people["ann"].get("/v1/runs:count?principal=bob")).json()["count"] == 0
