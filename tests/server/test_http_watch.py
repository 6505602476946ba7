"""The watch feed: the readers of each change, and its cost without readers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from http_serving import PEOPLE, office

from sockets import serve_app
from wakeful import Runtime
from wakeful.api.watch import Hint
from wakeful.identity import ApiKeys, create_key
from wakeful.server import ServerLimits, app
from wakeful.server.watch import MAX_PENDING, Change, FeedReader, Watch

Hints = AsyncIterator[tuple[str, dict[str, Any]]]


@asynccontextmanager
async def served(runtime: Runtime) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    """A server on a socket, and a client for each person."""
    limits = ServerLimits(watch_seconds=0.02)
    async with serve_app(app(runtime, auth=ApiKeys(runtime.store), limits=limits)) as url:
        people: dict[str, httpx.AsyncClient] = {}
        for name, (tenant, scopes) in PEOPLE.items():
            _, text = await create_key(runtime.store.tenant(tenant), name, principal=name, scopes=scopes)
            people[name] = httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {text}"}, timeout=30)
        yield people
        for person in people.values():
            await person.aclose()


@asynccontextmanager
async def watching(who: httpx.AsyncClient) -> AsyncIterator[Hints]:
    """A feed's events after `ready`."""
    async with who.stream("GET", "/v1/watch") as answer:
        assert answer.status_code == 200
        events = read_events(answer)
        assert await anext(events) == ("ready", {})
        yield events


async def read_events(answer: httpx.Response) -> Hints:
    name = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, msgspec.json.decode(line[6:])


async def hints_until(events: Hints, **wanted: str) -> list[dict[str, Any]]:
    """The hints up to one with these fields."""
    found: list[dict[str, Any]] = []
    async for _, hint in events:
        found.append(hint)
        if wanted.items() <= hint.items():
            return found
    raise AssertionError(f"no hint {wanted} in {found}")


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_watch_hints_at_runs_threads_and_tickets(store: str, tmp_path: Path) -> None:
    runtime = office() if store == "memory" else office(store=tmp_path / "app.db")
    async with served(runtime) as people, watching(people["ann"]) as events:
        body = {"agent": "refunds", "input": "Refund A7", "thread": "t1", "wait": 30}
        run = (await people["ann"].post("/v1/runs", json=body)).json()
        await hints_until(events, kind="ticket", id=run["tickets"][0]["id"], status="open")
        await people["root"].post(f"/v1/runs/{run['run_id']}/cancel", json={})
        found = await hints_until(events, kind="run", id=run["run_id"], status="done", thread_id="t1")
        found += await hints_until(events, kind="thread", id="t1", status="idle")
        assert not any("input" in hint or "text" in hint for hint in found)


async def test_watch_sees_changes_of_other_processes(tmp_path: Path) -> None:
    async with served(office(store=tmp_path / "app.db")) as people, watching(people["root"]) as events:
        async with office(store=tmp_path / "app.db") as other:
            result = await other.run("desk", "Hi", thread="t2")
        await hints_until(events, kind="run", id=result.run_id, status="done")


async def test_watch_hides_what_the_caller_may_not_read(tmp_path: Path) -> None:
    """Bob sees his own run and nothing of ann's; another tenant sees neither; operators see all."""
    async with (
        served(office(store=tmp_path / "app.db")) as people,
        watching(people["bob"]) as bobs,
        watching(people["eve"]) as eves,
        watching(people["operator"]) as all_of_it,
    ):
        for name in ("ann", "bob", "eve"):
            body = {"agent": "desk", "input": "Hi", "thread": f"of-{name}", "wait": 30}
            assert (await people[name].post("/v1/runs", json=body)).status_code == 200
        for events, own in ((bobs, "of-bob"), (eves, "of-eve")):
            found = await hints_until(events, kind="run", status="done", thread_id=own)
            threads = {hint.get("thread_id", hint["id"]) for hint in found if hint["kind"] != "worker"}
            assert threads == {own}
        found: list[dict[str, Any]] = []
        while not {"of-ann", "of-bob"} <= {hint.get("thread_id") for hint in found}:
            found += await hints_until(all_of_it, kind="run", status="done")
        assert not any(hint.get("thread_id") == "of-eve" for hint in found)


async def test_watch_ends_after_its_seconds(tmp_path: Path) -> None:
    async with served(office(store=tmp_path / "app.db")) as people:
        answer = await people["ann"].get("/v1/watch?seconds=0.1")
        events = [event async for event in read_events(answer)]
        assert events == [("ready", {}), ("end", {"reason": "done"})]


async def test_watch_polls_while_it_has_readers_only() -> None:
    async with office() as runtime:
        watch = Watch(0.01)
        readers = [await watch.join(runtime, None) for _ in range(2)]
        assert watch.tenants == ("default",)
        await runtime.run("desk", "Hi")
        for reader in readers:
            assert {change.hint.kind for change in await reader.take()} >= {"run"}
            assert watch.tenants == ("default",)
            await watch.leave(runtime, reader)
        assert watch.tenants == ()


async def test_watch_tells_a_slow_reader_that_hints_are_lost() -> None:
    reader = FeedReader()
    for number in range(MAX_PENDING + 1):
        reader.push(Change(Hint(kind="run", id=str(number), status="done")))
    assert (await reader.take(), reader.has_lost) == ([], True)
