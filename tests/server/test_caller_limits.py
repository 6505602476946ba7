"""Limits of callers: requests per second and at once, and open streams, each with `Retry-After`."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from http_serving import office, serve_people

from wakeful.client import Client
from wakeful.errors import Overloaded
from wakeful.identity import ApiKeys, create_key
from wakeful.server import ServerLimits, app, lifespan
from wakeful.server.rates import MAX_BUCKETS, Counts, Rate


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rate_allows_the_burst_and_then_its_rate() -> None:
    clock = Clock()
    rate = Rate(2, 3, clock)
    assert [rate.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert rate.take("b") == 0
    clock.now += 0.5
    assert [rate.take("a"), rate.take("a")] == [0, 0.5]
    clock.now += 3600
    assert [rate.take("a") for _ in range(4)] == [0, 0, 0, 0.5]


def test_rate_forgets_names_that_have_their_burst_again() -> None:
    clock = Clock()
    rate = Rate(1, 2, clock)
    for number in range(MAX_BUCKETS):
        rate.take(str(number))
    clock.now += 1
    rate.take("last")
    assert rate.size == 1


def test_counts_forget_names_without_any() -> None:
    counts = Counts(1, "requests at once")
    with counts.one("ann"), pytest.raises(Overloaded, match="ann has 1 requests at once, the limit"):
        counts.one("ann").__enter__()
    assert counts.names == ()


async def test_key_over_its_rate_gets_429_and_others_do_not() -> None:
    limits = ServerLimits(key_rate=0.1, key_burst=2)
    async with office() as runtime, serve_people(runtime, limits=limits) as people:
        answers = [await people["ann"].get("/v1/me") for _ in range(3)]
        assert [each.status_code for each in answers] == [200, 200, 429]
        problem = answers[-1].json()
        assert (problem["code"], problem["status"]) == ("overloaded", 429)
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 10
        assert (await people["bob"].get("/v1/me")).status_code == 200


async def test_two_keys_of_a_principal_have_a_rate_each() -> None:
    async with office() as runtime:
        served = app(runtime, auth=ApiKeys(runtime.store), limits=ServerLimits(key_rate=0.1, key_burst=1))
        async with lifespan(served):
            for _ in range(2):
                _, text = await create_key(runtime.store, "one", principal="ann", scopes=["user"])
                headers = {"authorization": f"Bearer {text}"}
                transport = httpx.ASGITransport(served)
                async with httpx.AsyncClient(transport=transport, base_url="http://a", headers=headers) as http:
                    assert [(await http.get("/v1/me")).status_code for _ in range(2)] == [200, 429]


async def test_tenant_over_its_rate_leaves_others_alone() -> None:
    limits = ServerLimits(tenant_rate=0.1, tenant_burst=2)
    async with office() as runtime, serve_people(runtime, limits=limits) as people:
        found = [(await people[name].get("/v1/me")).status_code for name in ("ann", "bob", "root", "eve")]
        assert found == [200, 200, 429, 200]


async def test_rate_applies_to_a2a_too() -> None:
    limits = ServerLimits(key_rate=0.1, key_burst=1)
    async with office() as runtime, serve_people(runtime, limits=limits) as people:
        found = [(await people["ann"].get("/a2a/desk/tasks")).status_code for _ in range(2)]
        assert found[1] == 429


async def test_principal_has_a_limit_of_requests_at_once(tmp_path: Path) -> None:
    async with (
        office(store=tmp_path / "a.db") as runtime,
        serve_people(runtime, limits=ServerLimits(principal_requests=0)) as people,
    ):
        answer = await people["ann"].get("/v1/me")
        assert (answer.status_code, answer.json()["code"]) == (429, "overloaded")
        assert "requests at once, the limit" in answer.json()["detail"]


async def test_principal_has_a_limit_of_streams() -> None:
    async with office() as runtime, serve_people(runtime, limits=ServerLimits(principal_streams=0)) as people:
        answer = await people["ann"].get("/v1/watch")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert "open streams, the limit" in answer.json()["detail"]


async def test_client_waits_as_long_as_it_is_told() -> None:
    """A limited request succeeds once there is a token again."""
    async with office() as runtime:
        served = app(runtime, auth=ApiKeys(runtime.store), limits=ServerLimits(key_rate=2, key_burst=1))
        async with lifespan(served):
            _, text = await create_key(runtime.store, "one", principal="ann", scopes=["user"])
            async with Client("http://a", key=text, transport=httpx.ASGITransport(served)) as client:
                results = [await client.run("desk", "Hi") for _ in range(2)]
        assert [result.text for result in results] == ["Hello!"] * 2


async def test_server_without_authentication_has_no_rate() -> None:
    served = app(office(), limits=ServerLimits(key_burst=1, tenant_burst=1, principal_requests=0))
    transport = httpx.ASGITransport(served)
    async with lifespan(served), httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert [(await http.get("/v1/me")).status_code for _ in range(3)] == [200] * 3
