"""Rights on the HTTP API: every operation and every route, by callers with and without them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from http_serving import Person, office, serve_people

from wakeful.identity import AUTHENTICATED, PUBLIC
from wakeful.server import ServerLimits, app
from wakeful.server.operations import OPERATIONS, Operation

BODIES: dict[str, Any] = {
    "runs.create": {"agent": "desk", "input": "hi"},
    "runs.stream": {"agent": "desk", "input": "hi"},
    "threads.send": {"input": "hi", "agent": "desk"},
    "threads.import": {"lines": ""},
    "mail.edit": {"text": "other"},
    "tasks.create": {"agent": "desk", "input": "hi"},
    "schedules.put": {"agent": "desk", "input": "hi", "cron": "@daily"},
    "keys.create": {"name": "k", "scopes": ["user"]},
}
QUERIES = {"mail.pending": "?thread={thread}", "tasks.list": "?thread={thread}"}
GUARDED = [operation for operation in OPERATIONS.values() if operation.scope != PUBLIC]
# Operations that concern a caller's own run, thread, task or input.
OWNED = [one for one in GUARDED if {"run", "thread"} & set(one.parameters) and one.name != "workers.revive"]


async def ask(who: Person, operation: Operation, ids: dict[str, str]) -> httpx.Response:
    """Call an operation with its smallest body on these ids."""
    path = operation.path
    for name in operation.parameters:
        path = path.replace(f"{{{name}}}", ids.get(name, "x"))
    path += QUERIES.get(operation.name, "").format(thread=ids.get("thread", "x"))
    body = None if operation.body is None else BODIES.get(operation.name, {})
    return await who.request(operation.method, path, json=body, headers={"If-Match": "*"})


async def test_operations_without_credential_are_401() -> None:
    async with serve_people(office()) as people:
        for operation in GUARDED:
            answer = await ask(people["anonymous"], operation, {})
            assert (answer.status_code, answer.json()["code"]) == (401, "not-authenticated"), operation.name
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_operations_without_their_scope_are_403() -> None:
    async with serve_people(office()) as people:
        for operation in GUARDED:
            if operation.scope not in ("usage:read", AUTHENTICATED):
                answer = await ask(people["nobody"], operation, {})
                found = (answer.status_code, answer.json()["data"]["needed"])
                assert found == (403, operation.scope), operation.name


async def test_me_is_answered_whatever_the_scopes() -> None:
    async with serve_people(office()) as people:
        answer = await people["nobody"].get("/v1/me")
        assert answer.json()["scopes"] == ["usage:read"]


async def test_watch_feed_hints_at_nothing_without_scopes() -> None:
    async with serve_people(office(), limits=ServerLimits(watch_seconds=0.01)) as people:
        feed = asyncio.create_task(people["nobody"].get("/v1/watch?seconds=0.5"))
        await people["ann"].post("/v1/runs", json={"agent": "refunds", "input": "hi", "wait": 60})
        assert "event: hint" not in (await feed).text


@pytest.mark.parametrize("other", ["bob", "eve"])
async def test_operations_on_foreign_ids_change_nothing(other: str) -> None:
    async with serve_people(office()) as people:
        run = (await people["ann"].post("/v1/runs", json={"agent": "refunds", "input": "hi", "wait": 60})).json()
        ids = {"run": run["run_id"], "thread": run["thread_id"]}
        before = (await people["operator"].get(f"/v1/runs/{run['run_id']}")).json()
        for operation in OWNED:
            if (operation.name, other) == ("threads.send", "eve"):
                continue  # It would make a thread of this id in her tenant.
            answer = await ask(people[other], operation, ids)
            assert answer.status_code in (403, 404), (operation.name, answer.text)
            assert (await people["operator"].get(f"/v1/runs/{run['run_id']}")).json() == before


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/threads"])
async def test_list_has_what_belongs_to_its_caller(path: str) -> None:
    async with serve_people(office()) as people:
        for name in ("ann", "bob"):
            await people[name].post("/v1/runs", json={"agent": "desk", "input": "hi", "wait": 60})
        counts = {name: len((await people[name].get(path)).json()["items"]) for name in ("ann", "eve", "operator")}
    assert counts == {"ann": 1, "eve": 0, "operator": 2}


async def key_of(people: dict[str, Person], **body: Any) -> Person:
    """A caller with a new key of ann's principal, unless the body says otherwise."""
    wanted = {"name": "k", "principal": "ann", "scopes": ["user"], **body}
    made = (await people["root"].post("/v1/keys", json=wanted)).raise_for_status().json()
    anonymous = people["anonymous"]
    headers = {"Authorization": f"Bearer {made['text']}"}
    return httpx.AsyncClient(transport=anonymous._transport, base_url="http://wakeful.test", headers=headers)


async def test_users_read_agents_and_operators_inspect_them() -> None:
    async with serve_people(office()) as people:
        found = {name: (await people[name].get("/v1/agents/refunds")).json() for name in ("ann", "operator")}
        assert [found["ann"]["tools"][0].get(field) for field in ("name", "effect", "approval")] == [
            "refund",
            None,
            None,
        ]
        tool = found["operator"]["tools"][0]
        assert (tool["effect"], tool["approval"], found["operator"]["instructions"]) == ("once", "always", "")
        unknown = await people["ann"].get("/v1/agents/nobody")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-agent")


async def test_key_of_one_agent_reaches_no_other() -> None:
    """Neither by leaving the agent out, nor by a thread of its own principal."""
    async with serve_people(office()) as people:
        limited = await key_of(people, agents=["refunds"])
        run = {"agent": "desk", "input": "hi", "thread": "t", "wait": 60}
        done = (await people["ann"].post("/v1/runs", json=run)).json()
        own = {"agent": "refunds", "input": "hi", "thread": "own", "wait": 60}
        assert (await limited.post("/v1/runs", json=own)).status_code == 200
        assert (await limited.post("/v1/runs", json=run)).status_code == 403
        assert (await limited.post("/v1/threads/t/messages", json={"input": "hi"})).status_code == 404
        for path in (
            "threads/t",
            "threads/t/messages",
            "threads/t/events",
            f"runs/{done['run_id']}",
            "agents/desk",
        ):
            assert (await limited.get(f"/v1/{path}")).status_code == 404, path
        lists = {
            noun: [each["id"] for each in (await limited.get(f"/v1/{noun}")).json()["items"]]
            for noun in ("threads",)
        }
        assert lists == {"threads": ["own"]}
        assert [each["id"] for each in (await limited.get("/v1/agents")).json()] == ["refunds"]


async def test_schedule_belongs_to_its_caller() -> None:
    async with serve_people(office()) as people:
        scopes = ["schedules:read", "schedules:write", "threads:read"]
        ben = await key_of(people, principal="ben", scopes=scopes)
        await people["ann"].post("/v1/runs", json={"agent": "desk", "input": "hi", "thread": "t", "wait": 60})
        body = {"agent": "desk", "input": "hi", "cron": "@daily"}
        foreign = await ben.put("/v1/schedules/s", json={**body, "thread": "t"})
        assert (foreign.status_code, foreign.json()["code"]) == (404, "unknown-thread")
        await people["operator"].put("/v1/schedules/theirs", json=body)
        assert (await ben.put("/v1/schedules/own", json=body)).status_code == 200
        assert [each["name"] for each in (await ben.get("/v1/schedules")).json()] == ["own"]
        paths = [("GET", ""), ("DELETE", ""), ("POST", "/run-now"), ("POST", "/pause"), ("POST", "/unpause")]
        for method, path in paths:
            answer = await ben.request(method, f"/v1/schedules/theirs{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown-schedule"), path
        assert (await ben.put("/v1/schedules/theirs", json=body)).status_code == 404
        assert [each["name"] for each in (await people["operator"].get("/v1/schedules")).json()] == [
            "own",
            "theirs",
        ]
        limited = await key_of(
            people, principal="ben", scopes=["schedules:read:refunds", "schedules:write:refunds"]
        )
        assert (await limited.get("/v1/schedules")).json() == []
        assert (await limited.delete("/v1/schedules/own")).status_code == 404


async def test_workers_are_for_callers_of_the_own_tenant(tmp_path: Path) -> None:
    async with serve_people(office(store=tmp_path / "app.db")) as people:
        assert (await people["operator"].get("/v1/workers")).status_code == 200
        assert (await people["eve"].get("/v1/workers")).status_code == 403


async def test_audit_shows_refused_caller_to_operator() -> None:
    async with serve_people(office()) as people:
        run = (await people["ann"].post("/v1/runs", json={"agent": "desk", "input": "hi", "wait": 60})).json()
        await people["bob"].get(f"/v1/runs/{run['run_id']}")
        entries = (await people["root"].get("/v1/audit")).json()["items"]
        assert [(e["principal_id"], e["action"], e["outcome"], e["resource_id"]) for e in entries] == [
            ("bob", "runs:read", "denied", run["run_id"])
        ]


async def test_audit_shows_caller_without_the_scope() -> None:
    async with serve_people(office()) as people:
        assert (await people["ann"].get("/v1/keys")).status_code == 403
        (entry,) = (await people["root"].get("/v1/audit")).json()["items"]
        assert (entry["principal_id"], entry["action"], entry["outcome"]) == ("ann", "keys:admin", "denied")


async def test_key_is_refused_within_a_second_of_its_revocation() -> None:
    async with serve_people(office()) as people:
        made = (await people["root"].post("/v1/keys", json={"name": "k", "scopes": ["user"]})).json()
        headers = {"Authorization": f"Bearer {made['text']}"}
        assert (await people["anonymous"].get("/v1/me", headers=headers)).status_code == 200
        await people["root"].post(f"/v1/keys/{made['key']['id']}/revoke")
        while (answer := await people["anonymous"].get("/v1/me", headers=headers)).status_code == 200:
            pass
        assert "revoked" in answer.json()["detail"]


async def test_key_cant_give_scopes_that_its_creator_lacks() -> None:
    async with serve_people(office()) as people:
        limited = {"name": "k", "scopes": ["keys:admin", "runs:read"], "principal": "carl"}
        made = (await people["root"].post("/v1/keys", json=limited)).json()
        headers = {"Authorization": f"Bearer {made['text']}"}
        answer = await people["anonymous"].post(
            "/v1/keys", json={"name": "l", "scopes": ["admin"]}, headers=headers
        )
        assert (answer.status_code, answer.json()["data"]["needed"]) == (403, "*")


async def test_repeated_key_creation_replies_without_the_secret() -> None:
    async with serve_people(office()) as people:
        body, headers = {"name": "k", "scopes": ["user"]}, {"Idempotency-Key": "once"}
        first = await people["root"].post("/v1/keys", json=body, headers=headers)
        again = await people["root"].post("/v1/keys", json=body, headers=headers)
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == {"key": first.json()["key"], "text": None}


async def test_other_routes_need_a_credential_or_are_public() -> None:
    runtime = office()
    async with serve_people(runtime) as people:
        for path in ("/metrics", "/a2a/desk", "/v1", "/nothing"):
            assert (await people["anonymous"].post(path)).status_code == 401, path
        for path in ("/healthz", "/readyz", "/openapi.json", "/a2a/desk/.well-known/agent-card.json"):
            assert (await people["anonymous"].get(path)).status_code == 200, path


async def test_protocols_and_metrics_need_tenant_and_scope() -> None:
    async with serve_people(office()) as people:
        for name, path, needed in (
            ("eve", "/a2a/desk", "runs:create"),
            ("nobody", "/a2a/desk", "runs:create"),
            ("ann", "/metrics", "cluster:read"),
        ):
            answer = await people[name].get(path)
            assert (answer.status_code, answer.json()["data"]["needed"]) == (403, needed), name
        assert (await people["operator"].get("/metrics")).status_code == 200


@pytest.mark.parametrize(("header", "value"), [("Host", "evil.example"), ("Origin", "https://evil.example")])
async def test_server_without_auth_refuses_foreign_host_and_origin(header: str, value: str) -> None:
    transport = httpx.ASGITransport(app(office()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/v1/agents")).status_code == 200
        assert (await client.get("/v1/agents", headers={header: value})).status_code == 403
