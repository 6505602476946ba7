"""Client-side rate limits: shared by all runs, in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful import (
    Agent,
    FunctionModel,
    ModelRequest,
    ModelSettings,
    RateLimit,
    RetryPolicy,
    Runtime,
    Usage,
)
from wakeful.errors import ConfigurationError, RateLimited
from wakeful.models import Chunk, ModelRegistry, StopChunk, TextChunk, UsageChunk
from wakeful.models.shared.rate_limits import PACE, Bucket, estimate_tokens
from wakeful.testing import FakeClock
from wakeful.types.messages import user_message


async def let_go(bucket: Bucket, clock: FakeClock, costs: list[int], seconds: int) -> list[tuple[int, int]]:
    """The admitted requests so far, in order, with their times."""
    gone: list[tuple[int, int]] = []

    async def go(number: int) -> None:
        await bucket.acquire(costs[number])
        gone.append((clock.now(), number))

    tasks = [asyncio.create_task(go(number)) for number in range(len(costs))]
    await clock.advance(0)
    await clock.advance(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return gone


def most_in_a_minute(gone: list[tuple[int, int]], costs: list[int]) -> int:
    """The maximum in any window of a minute."""
    return max([sum(costs[n] for at, n in gone if start <= at < start + 60_000) for start, _ in gone], default=0)


@given(limit=st.integers(1, 40), count=st.integers(1, 60))
def test_bucket_limits_requests_in_every_minute(limit: int, count: int) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bucket = Bucket(clock, RateLimit(requests_per_minute=limit))
        gone = await let_go(bucket, clock, [0] * count, 300)
        assert most_in_a_minute(gone, [1] * count) <= limit
        assert len(gone) >= min(count, int(limit * 300 / PACE))
        assert [number for _, number in gone] == list(range(len(gone))), "first come, first served"

    asyncio.run(scenario())


@given(costs=st.lists(st.integers(1, 50), min_size=1, max_size=40))
def test_bucket_limits_tokens_in_every_minute(costs: list[int]) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        bucket = Bucket(clock, RateLimit(tokens_per_minute=1000))
        gone = await let_go(bucket, clock, costs, 600)
        assert len(gone) == len(costs)
        assert most_in_a_minute(gone, costs) <= 1000

    asyncio.run(scenario())


async def test_bucket_admits_an_oversized_request_alone() -> None:
    clock = FakeClock()
    bucket = Bucket(clock, RateLimit(tokens_per_minute=1000))
    gone = await let_go(bucket, clock, [10, 5000, 10], 600)
    start = clock.now() - 600_000
    first, second, third = [(at - start) / 1000 for at, _ in gone]
    assert (first, second) == (0, pytest.approx(0.63, abs=0.01))
    assert third == pytest.approx(5 * PACE, abs=3)


async def test_bucket_settles_reserved_tokens() -> None:
    clock = FakeClock()
    bucket = Bucket(clock, RateLimit(tokens_per_minute=1000))
    await bucket.acquire(1000)
    waiting = asyncio.create_task(bucket.acquire(20))
    await clock.advance(5)
    assert not waiting.done()
    bucket.settle(-950)
    await asyncio.wait_for(waiting, 120)


async def test_bucket_drops_cancelled_waiters() -> None:
    clock = FakeClock()
    bucket = Bucket(clock, RateLimit(requests_per_minute=1))
    await bucket.acquire()
    first, second = asyncio.create_task(bucket.acquire()), asyncio.create_task(bucket.acquire())
    await asyncio.sleep(0)
    first.cancel()
    await clock.advance(62)
    assert second.done()
    assert first.cancelled()


async def test_bucket_pauses_all_and_keeps_the_order() -> None:
    clock = FakeClock()
    bucket = Bucket(clock)
    bucket.pause(10)
    assert bucket.paused_for() == 10
    waiting = [asyncio.create_task(bucket.acquire()) for _ in range(3)]
    await clock.advance(9.9)
    assert not any(task.done() for task in waiting)
    await clock.advance(0.2)
    assert all(task.done() for task in waiting)


def test_estimate_counts_text_and_output_limit() -> None:
    request = ModelRequest("s" * 400, [user_message("m" * 400)], settings=ModelSettings(max_tokens=50))
    assert estimate_tokens(request) == 250


@pytest.mark.parametrize(
    "wrong", [{}, {"requests_per_minute": 0}, {"tokens_per_minute": "many"}, {"tokens_per_minute": float("inf")}]
)
def test_rate_limit_of_another_type_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="RateLimit"):
        RateLimit(**wrong)


def test_rate_limits_apply_by_name() -> None:
    wrong: Any = {"openai": 5}
    with pytest.raises(ConfigurationError, match="RateLimits by the name of a vendor or a model"):
        Runtime([Agent("agent", model=FunctionModel(lambda _: "hi"))], rate_limits=wrong)


async def test_model_obeys_its_own_and_its_vendors_limit() -> None:
    clock = FakeClock()
    limits = {"acme": RateLimit(requests_per_minute=2), "acme:one": RateLimit(requests_per_minute=1)}
    models: Any = {"acme": lambda name: FunctionModel(lambda _: "hi", name=name)}
    registry = ModelRegistry(models, rate_limits=limits, clock=clock)
    one, other = registry.guard(registry.resolve("acme:one")), registry.guard(registry.resolve("acme:other"))
    assert one is not None
    assert other is not None
    request = ModelRequest("", [])
    await one.enter(request, 60)
    second, third = asyncio.create_task(one.enter(request, 60)), asyncio.create_task(other.enter(request, 60))
    await clock.advance(25)
    assert (second.done(), third.done()) == (False, False), "two in a minute for the vendor"
    await clock.advance(10)
    assert (second.done(), third.done()) == (False, True), "one in a minute for the model"
    await clock.advance(30)
    assert second.done()


async def test_long_retry_after_is_an_error() -> None:
    clock = FakeClock()
    model = FunctionModel(lambda _: RateLimited("tomorrow", retry_after=86_400), name="acme")
    runtime = Runtime(
        [Agent("agent", model=model)], rate_limits={"acme": RateLimit(requests_per_minute=100)}, clock=clock
    )
    for _ in range(2):
        result = await asyncio.wait_for(runtime.run("agent", "go", check=False), 120)
        assert result.termination.error == "RateLimited"  # type: ignore[union-attr]


async def test_usage_settles_the_estimate() -> None:
    clock = FakeClock()

    async def answer(request: ModelRequest) -> AsyncIterator[Chunk]:
        yield TextChunk("hi")
        yield UsageChunk(Usage(input_tokens=1, output_tokens=1))
        yield StopChunk("end_turn")

    limits = {"acme": RateLimit(tokens_per_minute=600)}  # One estimate is nearly all of it.
    agent = Agent("agent", model=FunctionModel(answer, name="acme"))
    runtime = Runtime([agent], rate_limits=limits, clock=clock)
    for _ in range(10):
        assert (await asyncio.wait_for(runtime.run("agent", "go"), 120)).text == "hi"
        await clock.advance(1)  # The actual two tokens; the estimate would take most of a minute.


# -- a thousand runs -----------------------------------------------------------------------------------------


class Vendor:
    """A vendor that limits requests in every minute of the clock, and refuses the very first one."""

    def __init__(self, limit: int, clock: FakeClock) -> None:
        self.limit, self.clock = limit, clock
        self.served: list[int] = []
        self.refused = 0

    async def ask(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Answer, or refuse."""
        now = self.clock.now()
        recent = sum(at > now - 60_000 for at in self.served[-self.limit :])
        is_refused = not self.served or recent >= self.limit
        self.served.append(now)
        if is_refused:
            self.refused += 1
            raise RateLimited("too many", retry_after=15)
        yield TextChunk("hi")
        yield StopChunk("end_turn")


async def test_thousand_runs_obey_and_use_a_rate_limit() -> None:
    clock, count, limit = FakeClock(), 1000, 500
    vendor = Vendor(limit, clock)
    runtime = Runtime(
        [Agent("agent", model=FunctionModel(vendor.ask, name="acme:one"))],
        rate_limits={"acme": RateLimit(requests_per_minute=limit)},
        clock=clock,
        retry=RetryPolicy(idle_timeout=None, answer_timeout=None),
    )
    runs = asyncio.gather(*[runtime.run("agent", "go") for _ in range(count)])
    while not runs.done():
        await clock.advance(1)
    await runtime.close()
    assert [result.text for result in await runs] == ["hi"] * count
    assert 1 <= vendor.refused <= count // 100
    steady = vendor.served[-count // 2 :]
    assert len(steady) / (steady[-1] - steady[0]) * 60_000 > 0.9 * limit
