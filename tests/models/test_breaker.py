"""The circuit breaker of a model: failures, cooldown and probes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from wakeful import Agent, FunctionModel, ModelRequest, RetryPolicy, Runtime, Usage
from wakeful.errors import BadCredentials, ModelUnavailable, RateLimited, StreamBroken
from wakeful.models import Chunk, ModelRegistry, StopChunk, TextChunk, forbid_live_models
from wakeful.models.shared.guard import COOLDOWN, FAILURES, Breaker, Guard, Permit
from wakeful.models.shared.rate_limits import Bucket
from wakeful.testing import FakeClock

REQUEST = ModelRequest("", [])
DOWN = ModelUnavailable("down")


def stream_guarded(clock: FakeClock) -> tuple[Guard, Breaker]:
    breaker = Breaker(clock)
    return Guard("acme:one", [Bucket(clock)], breaker), breaker


async def enter(guard: Guard) -> Permit:
    return await asyncio.wait_for(guard.enter(REQUEST, 60), 120)


async def fail(guard: Guard, times: int = 1, error: BaseException = DOWN) -> None:
    for _ in range(times):
        (await enter(guard)).failed(error)


async def test_breaker_opens_after_five_failures_for_thirty_seconds() -> None:
    clock = FakeClock()
    guard, _ = stream_guarded(clock)
    await fail(guard, FAILURES)
    with pytest.raises(
        ModelUnavailable, match=r"'acme:one' isn't asked for another 30 s: 5 calls.*down"
    ) as caught:
        await enter(guard)
    assert (caught.value.transient, caught.value.retry_after) == (True, 30)
    assert guard.blocked_for() is not None
    await clock.advance(COOLDOWN)
    assert guard.blocked_for() is None
    (await enter(guard)).succeeded(Usage())
    await fail(guard, FAILURES - 1)
    await enter(guard)


async def test_breaker_resets_its_count_on_success() -> None:
    guard, _ = stream_guarded(FakeClock())
    for _ in range(3):
        await fail(guard, FAILURES - 1)
        (await enter(guard)).succeeded(Usage())
    assert guard.blocked_for() is None


@pytest.mark.parametrize(
    "error", [RateLimited("slow"), BadCredentials("no key"), asyncio.CancelledError(), ValueError()]
)
async def test_breaker_ignores_permanent_errors(error: BaseException) -> None:
    guard, _ = stream_guarded(FakeClock())
    await fail(guard, FAILURES * 2, error)
    assert guard.blocked_for() is None


async def half_open(clock: FakeClock) -> tuple[Guard, Permit]:
    """A guard after the cooldown, and the permit of its probe."""
    guard, _ = stream_guarded(clock)
    await fail(guard, FAILURES)
    await clock.advance(COOLDOWN)
    return guard, await enter(guard)


async def test_breaker_lets_one_probe_pass_while_others_wait() -> None:
    guard, probe = await half_open(FakeClock())
    others = [asyncio.create_task(enter(guard)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(other.done() for other in others)
    probe.succeeded(Usage())
    assert len(await asyncio.gather(*others)) == 3


async def test_breaker_reopens_when_the_probe_fails() -> None:
    guard, probe = await half_open(FakeClock())
    others = [asyncio.create_task(enter(guard)) for _ in range(3)]
    await asyncio.sleep(0)
    probe.failed(DOWN)
    refused = await asyncio.gather(*others, return_exceptions=True)
    assert [type(one) for one in refused] == [ModelUnavailable] * 3


async def test_breaker_releases_an_abandoned_probe() -> None:
    # Edge case 44.
    guard, probe = await half_open(FakeClock())
    waiting = asyncio.create_task(enter(guard))
    await asyncio.sleep(0)
    probe.failed(GeneratorExit())
    second = await waiting
    assert guard.blocked_for() is not None, "the one that waited is the probe now"
    second.succeeded(Usage())
    assert guard.blocked_for() is None


async def test_breaker_drops_cancelled_waiters() -> None:
    guard, probe = await half_open(FakeClock())
    impatient = asyncio.create_task(enter(guard))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    probe.succeeded(Usage())
    await enter(guard)


async def test_breaker_ignores_streams_of_an_earlier_generation() -> None:
    # Edge cases 42 and 43: only the first outcome of a permit counts, for the generation that it started in.
    clock = FakeClock()
    guard, _ = stream_guarded(clock)
    old = [await enter(guard) for _ in range(FAILURES)]
    await fail(guard, FAILURES)
    old[0].succeeded(Usage())
    assert guard.blocked_for() is not None, "it doesn't close a breaker that opened since"
    await clock.advance(COOLDOWN)
    probe = await enter(guard)
    for one in old[1:]:
        one.failed(DOWN)
    blocked = guard.blocked_for()
    assert blocked is not None
    assert blocked[0] == 0, "the probe is still out"
    probe.succeeded(Usage())
    for one in old:
        one.failed(DOWN)
    probe.failed(DOWN)
    await fail(guard, FAILURES - 1)
    assert guard.blocked_for() is None


# -- in a runtime --------------------------------------------------------------------------------------------


@pytest.fixture
def live() -> Iterator[None]:
    before = forbid_live_models(False)
    yield
    forbid_live_models(before)


class Sick:
    """A live model that fails until it recovers."""

    live = True

    def __init__(self, name: str = "acme:sick") -> None:
        self.name, self.well, self.asked = name, False, 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.asked += 1
        if not self.well:
            raise StreamBroken("cut")
        yield TextChunk("well")
        yield StopChunk("end_turn")


@pytest.mark.usefixtures("live")
async def test_breaker_is_shared_by_all_runs_of_a_runtime() -> None:
    clock, model = FakeClock(), Sick()
    agents = [Agent(name, model="sick") for name in ("one", "two")]
    runtime = Runtime(agents, models={"sick": model}, clock=clock, retry=RetryPolicy(retries=4, backoff=0))
    first = await asyncio.wait_for(runtime.run("one", "go", check=False), 120)
    assert (first.status, model.asked) == ("done", FAILURES)
    work = asyncio.create_task(runtime.run("two", "go"))
    await clock.advance(COOLDOWN - 1)
    assert model.asked == FAILURES
    model.well = True
    await clock.advance(2)
    assert (await asyncio.wait_for(work, 120)).text == "well"
    assert model.asked == FAILURES + 1


def test_breaker_is_absent_for_models_without_network() -> None:
    model = FunctionModel(lambda request: "hi")
    assert ModelRegistry({"mine": model}).guard(model) is None


def test_breaker_belongs_to_a_model_name() -> None:
    models: Any = {"acme": Sick}
    registry = ModelRegistry(models)
    one, other = registry.resolve("acme:one"), registry.resolve("acme:other")
    assert registry.guard(one) is registry.guard(registry.resolve("acme:one"))
    assert registry.guard(one) is not registry.guard(other)
