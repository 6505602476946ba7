"""Repeated requests: one effect for a key, the same reply again, and 422 for another request under it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from http_serving import refund

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, Turn, call
from wakeful.server import app, lifespan
from wakeful.server.operations import OPERATIONS, Operation

REPEATABLE = [one for one in OPERATIONS.values() if one.is_repeatable]
KEY = {"Idempotency-Key": "once"}
HI = {"agent": "desk", "input": "Hi"}


def answer(request: ModelRequest) -> Turn | str:
    match request.messages[-1].text:
        case "refund":
            return call("refund", order="A7")
        case "fail":
            raise RuntimeError("broken")
        case _:
            return "Done."


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Runtime, httpx.AsyncClient]]:
    runtime = Runtime([Agent("desk", model=FunctionModel(answer), tools=[refund])])
    agents = app(runtime)
    transport = httpx.ASGITransport(agents)
    async with lifespan(agents), httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield runtime, http


async def prepare(runtime: Runtime, http: httpx.AsyncClient, name: str) -> dict[str, str]:
    """The resources of the operation, as parameters of its path."""
    match name.partition("."):
        case "tickets", _, verb:
            body = {**HI, "input": "refund", "wait": 30}
            run = (await http.post("/v1/runs", json=body)).json()
            found = {"ticket": run["tickets"][0]["id"], "run": run["run_id"]}
            if verb == "withdraw":  # Without the tool, the answer stays.
                del runtime._scope.env.registry.resolve("desk").tools["refund"]
                await http.post(f"/v1/tickets/{found['ticket']}/answer", json={"verdict": "approve"})
            return found
        case "runs", _, "resume":
            run = (await http.post("/v1/runs", json={**HI, "input": "refund", "wait": 30})).json()
            return {"run": run["run_id"], "ticket": run["tickets"][0]["id"]}
        case "runs", _, "retry":
            run = (await http.post("/v1/runs", json={**HI, "input": "fail", "wait": 30})).json()
            return {"run": run["run_id"]}
        case "schedules", _, _:
            await http.put("/v1/schedules/daily", json={**HI, "cron": "@daily"})
            return {"name": "daily"}
        case _:
            await http.post("/v1/runs", json={**HI, "thread": "t", "wait": 30})
            return {"thread": "t"}


async def body_of(http: httpx.AsyncClient, name: str, ids: dict[str, str]) -> tuple[Any, Any]:
    """The body of a request, and another one for the same key; None for an operation without a body."""
    answer = {"ticket_id": ids.get("ticket"), "verdict": "approve"}
    export = (await http.get("/v1/threads/t/export")).text if name == "threads.import" else ""
    bodies: dict[str, tuple[Any, Any]] = {
        "runs.create": (HI, {**HI, "input": "Ho"}),
        "runs.stream": (HI, {**HI, "input": "Ho"}),
        "runs.resume": ({"decisions": [answer]}, {"decisions": [{**answer, "reason": "why"}]}),
        "threads.send": ({"input": "Hi"}, {"input": "Ho"}),
        "threads.fork": ({}, {"at": 1}),
        "threads.import": ({"lines": export, "into": "copy"}, {"lines": export, "into": "other"}),
        "tickets.answer": ({"verdict": "approve", "wait": 30}, {"verdict": "deny", "wait": 30}),
        "tickets.answer_many": ({"answers": [answer]}, {"answers": [{**answer, "verdict": "deny"}]}),
        "tickets.withdraw": ({"reason": "no"}, {"reason": "yes"}),
        "tickets.reassign": ({"to": "ann"}, {"to": "ben"}),
        "tickets.comment": ({"text": "Hm."}, {"text": "Ho."}),
        "tasks.create": ({**HI, "thread": "t"}, {**HI, "thread": "t", "name": "other"}),
        "keys.create": ({"name": "k", "scopes": ["user"], "principal": "a"}, {"name": "l", "scopes": ["user"]}),
    }
    return bodies.get(name, (None, None))


def made_by(reply: httpx.Response) -> Any:
    """The part of a reply that names what the request made or decided."""
    if reply.headers["content-type"].startswith("text/event-stream"):
        return reply.headers["location"]
    found = reply.json()
    if isinstance(found, list):
        return [each.get("ticket_id") for each in found], ["problem" in each for each in found]
    return next((found[name] for name in ("run_id", "thread_id", "key", "id") if name in found), found)


@pytest.mark.parametrize("operation", REPEATABLE, ids=lambda one: one.name)
async def test_repeated_request_has_one_effect(operation: Operation) -> None:
    async with served() as (runtime, http):
        ids = await prepare(runtime, http, operation.name)
        body, other = await body_of(http, operation.name, ids)
        path = operation.path.format(**ids)
        first = await http.post(path, json=body, headers=KEY)
        assert first.is_success, first.text
        before = dict(await runtime.store.counts())
        again = await http.post(path, json=body, headers=KEY)
        assert again.is_success, again.text
        assert made_by(again) == made_by(first)
        assert dict(await runtime.store.counts()) == before
        if other is None:
            return
        refused = await http.post(path, json=other, headers=KEY)
        if operation.name == "tickets.answer_many":
            assert [each["problem"]["code"] for each in refused.json()] == ["request-reused"]
        else:
            assert (refused.status_code, refused.json()["code"]) == (422, "request-reused"), refused.text
