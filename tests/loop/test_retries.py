"""How long a run waits for its model, and how often it asks again: by the runtime's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from wakeful import Agent, ModelRequest, ModelSettings, Plugin, RetryPolicy, Runtime, ScriptedModel
from wakeful.errors import (
    BadCredentials,
    ConfigurationError,
    ContextOverflow,
    ModelError,
    ModelOverloaded,
    ModelTimeout,
    ModelUnavailable,
    RateLimited,
)
from wakeful.models import Chunk, StopChunk, TextChunk
from wakeful.testing import FakeClock
from wakeful.types import ConsecutiveErrors
from wakeful.types.events import ErrorRaised
from wakeful.types.runs import Failed, NaturalEnd, Stopped

from .faults import AT_ONCE
from .helpers import Scripted, assert_cancelled, assert_settled, events_of, soon, until

DOWN = ModelUnavailable("down")


def started(model: Any, clock: FakeClock | None = None, **options: Any) -> tuple[Runtime, asyncio.Task[Any]]:
    """A run that is under way on thread `t`."""
    runtime = Runtime([Agent("agent", model=model, **options)], clock=clock)
    return runtime, asyncio.create_task(runtime.run("agent", "go", thread="t", check=False))


async def asked(model: ScriptedModel, times: int) -> None:
    """Wait until the model was asked so often, and what follows has settled."""
    await until(lambda: len(model.requests) >= times)
    for _ in range(20):
        await asyncio.sleep(0)


# -- asking again --------------------------------------------------------------------------------------------


async def test_transient_failure_is_retried_twice_by_default(scripted: Scripted) -> None:
    model = scripted(DOWN, DOWN, "back")
    runtime, run = started(model, retry=AT_ONCE)
    result = await soon(run)
    assert (result.termination, result.text, result.steps) == (NaturalEnd(), "back", 1)
    await assert_settled(runtime, "t")


async def test_third_failure_in_row_ends_run(scripted: Scripted) -> None:
    _, run = started(scripted(DOWN, DOWN, ModelOverloaded("full")), retry=AT_ONCE)
    assert (await soon(run)).termination == Failed("ModelOverloaded", "full")


@pytest.mark.parametrize(
    "error", [BadCredentials("no key"), ContextOverflow("long"), ModelError("odd"), OSError("?")]
)
async def test_permanent_failure_is_not_retried(scripted: Scripted, error: Exception) -> None:
    model = scripted(error)
    _, run = started(model)
    assert isinstance((await soon(run)).termination, Failed)
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("error", "failures", "least", "most"),
    [
        (DOWN, 1, 0, 0.5),
        (DOWN, 2, 0, 1),
        (DOWN, 9, 0, 8),
        (DOWN, 10_000, 0, 8),
        (ModelOverloaded("full"), 1, 0, 2),
        (ModelOverloaded("full"), 2, 0, 4),
        (RateLimited("slow", retry_after=20), 1, 20, 20),
        (RateLimited("slow", retry_after=0.1), 4, 0.1, 4),
    ],
)
def test_backoff_is_jittered_or_given_by_vendor(
    error: ModelError, failures: int, least: float, most: float
) -> None:
    pauses = [RetryPolicy().backoff_after(failures, error) for _ in range(200)]
    assert least <= min(pauses) <= max(pauses) <= most
    if most > least:
        assert max(pauses) - min(pauses) > (most - least) / 2, "full jitter, not a little"


async def test_retry_after_uses_runtime_clock(scripted: Scripted) -> None:
    clock, model = FakeClock(), scripted(RateLimited("slow down", retry_after=20), "back")
    runtime, run = started(model, clock)
    await asked(model, 1)
    (error,) = await events_of(runtime, "t", ErrorRaised)
    assert (error.error, error.message, error.source) == ("RateLimited", "slow down", "model")
    assert error.retry_at == clock.now() + 20_000
    await clock.advance(19.9)
    assert len(model.requests) == 1
    await clock.advance(0.2)
    assert (await soon(run)).text == "back"


async def test_retry_after_beyond_cap_is_not_waited_for(scripted: Scripted) -> None:
    _, run = started(scripted(RateLimited("tomorrow", retry_after=60.5)))
    why = "tomorrow; a wait of 60.5 s is more than RetryPolicy(max_retry_after=60)"
    assert (await soon(run)).termination == Failed("RateLimited", why)


@pytest.mark.parametrize("stop", [(), (ConsecutiveErrors(3),)])
async def test_each_failure_is_an_error_event(scripted: Scripted, stop: Any) -> None:
    runtime, run = started(scripted(DOWN, DOWN, DOWN), retry=AT_ONCE, stop=stop)
    await soon(run)
    errors = await events_of(runtime, "t", ErrorRaised)
    assert [(e.error, e.message, e.source) for e in errors] == [("ModelUnavailable", "down", "model")] * 3
    assert [e.retry_at is None for e in errors] == [False, False, True]


async def test_permanent_failure_is_an_error_event(scripted: Scripted) -> None:
    runtime, run = started(scripted(BadCredentials("no key")))
    await soon(run)
    (error,) = await events_of(runtime, "t", ErrorRaised)
    assert (error.error, error.message, error.retry_at) == ("BadCredentials", "no key", None)


async def test_misconfigured_model_fails_by_its_error(scripted: Scripted) -> None:
    _, run = started(scripted(ConfigurationError("there is no region; set AWS_REGION")))
    assert (await soon(run)).termination == Failed("ConfigurationError", "there is no region; set AWS_REGION")


async def test_cancel_ends_backoff_at_once(scripted: Scripted) -> None:
    # Edge case 41.
    clock, model = FakeClock(), scripted(RateLimited("slow down", retry_after=20))
    runtime, run = started(model, clock)
    await asked(model, 1)
    (record,) = await runtime.runs.list(thread="t")
    assert await soon(runtime.cancel(record.id, "enough"))
    await soon(run)
    await assert_cancelled(runtime, "t", "enough")
    await clock.advance(60)
    assert len(model.requests) == 1


async def test_cancelled_caller_ends_backoff_and_keeps_text() -> None:
    clock = FakeClock()

    class Cut:
        name, live, asked = "cut", False, 0

        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            self.asked += 1
            yield TextChunk("Half an ans")
            raise RateLimited("slow down", retry_after=20)

    model = Cut()
    runtime, run = started(model, clock)
    await until(lambda: model.asked)
    for _ in range(20):
        await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(run)
    await assert_cancelled(runtime, "t")
    assert [m.text for m in await runtime.threads.messages("t")] == ["go", "Half an ans"]


async def test_agent_retry_policy_overrides_runtimes(scripted: Scripted) -> None:
    impatient = Agent("agent", model=scripted(DOWN), retry=RetryPolicy(retries=0))
    runtime = Runtime([impatient], retry=RetryPolicy(retries=5))
    assert isinstance((await soon(runtime.run("agent", "go", check=False))).termination, Failed)


async def test_stop_policy_replaces_retry_count(scripted: Scripted) -> None:
    model = scripted(*[DOWN] * 4, "back")
    _, run = started(model, stop=[ConsecutiveErrors(5)], retry=AT_ONCE)
    assert (await soon(run)).text == "back"
    _, run = started(scripted(DOWN, DOWN), stop=[ConsecutiveErrors(2)], retry=AT_ONCE)
    ending = (await soon(run)).termination
    assert isinstance(ending, Stopped)
    assert ending.policy == "consecutive_errors"


async def test_hook_may_end_run_instead_of_retry(scripted: Scripted) -> None:
    class Enough(Plugin):
        async def after_inference(self, ctx: Any) -> None:
            if ctx.error is not None:
                ctx.end_run("enough")

    model = scripted(DOWN)
    runtime, run = started(model, plugins=[Enough()])
    assert (await soon(run)).termination.reason == "enough"  # type: ignore[union-attr]
    await assert_settled(runtime, "t")


async def test_failures_are_counted_across_processes(tmp_path: Path, scripted: Scripted) -> None:
    clock, model = FakeClock(), scripted(RateLimited("slow", retry_after=20))
    agent = Agent("agent", model=model, stop=[ConsecutiveErrors(2)])
    first = Runtime([agent], store=tmp_path / "a.db", clock=clock)
    run = asyncio.create_task(first.run("agent", "go", thread="t"))
    await asked(model, 1)
    await until(lambda: not run.done())
    (record,) = await first.runs.list(thread="t")
    while record.failures == 0:
        (record,) = await first.runs.list(thread="t")
    await first._scope.shared.worker.state.lease.close()
    model.turns.append(DOWN)
    second = Runtime([agent], store=tmp_path / "a.db", clock=clock)
    result = await soon(second.wait(record.id))
    assert isinstance(result.termination, Stopped)
    run.cancel()
    await asyncio.wait([run])
    await first.close()
    await second.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"retries": -1},
        {"retries": 1.5},
        {"stream_retries": 10**30},
        {"retries": None},
        {"backoff": "1"},
        {"backoff": True},
        {"backoff": float("inf")},
        {"backoff": float("nan")},
        {"max_backoff": None},
        {"idle_timeout": 0},
        {"answer_timeout": -5},
        {"answer_timeout": float("inf")},
    ],
)
def test_retry_policy_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        RetryPolicy(**wrong)


# -- waiting for an answer -----------------------------------------------------------------------------------


class Stalls:
    """A model that stands still before one of its pieces, once; closing is noted."""

    name, live = "stalls", False

    def __init__(self, *pieces: str, at: int = 0) -> None:
        self.pieces, self.at = pieces, at
        self.stalled, self.closed, self.asked = asyncio.Event(), 0, 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.asked += 1
        said = sum(len(m.text) for m in request.messages[1:-1])
        try:
            for place, piece in enumerate(self.pieces):
                if self.asked == 1 and place == self.at:
                    self.stalled.set()
                    await asyncio.Event().wait()
                if place >= said:
                    yield TextChunk(piece)
            yield StopChunk("end_turn")
        finally:
            self.closed += 1


async def waits(runtime: Runtime, model: Stalls, clock: FakeClock, seconds: float) -> bool:
    """Whether the run still waits for the first request after so long."""
    await soon(model.stalled.wait())
    await clock.advance(seconds)
    return model.closed == 0


@pytest.mark.parametrize("at", [0, 1])
async def test_idle_stream_is_closed_and_continued(at: int) -> None:
    clock, model = FakeClock(), Stalls("a", "b", at=at)
    runtime, run = started(model, clock)
    assert await waits(runtime, model, clock, 59.9)
    await clock.advance(2)
    assert model.closed
    await clock.advance(1)
    assert (await soon(run)).text == "ab"
    (error,) = await events_of(runtime, "t", ErrorRaised)
    assert (error.error, error.message) == ("ModelTimeout", "model 'stalls' sent nothing for 60 s")


async def test_model_load_time_is_not_counted() -> None:
    clock = FakeClock()

    class Loads(ScriptedModel):
        loading = asyncio.Event()

        async def prepare(self) -> None:
            loaded = asyncio.Event()
            clock.call_later(100, loaded.set)
            self.loading.set()
            await loaded.wait()

    model = Loads(["here"])
    runtime, run = started(model, clock)
    await soon(model.loading.wait())
    await clock.advance(101)
    assert (await soon(run)).text == "here"
    assert await events_of(runtime, "t", ErrorRaised) == []


async def test_idle_timeout_doubles_with_reasoning() -> None:
    clock, model = FakeClock(), Stalls("a")
    runtime, run = started(model, clock, settings=ModelSettings(reasoning="low"))
    assert await waits(runtime, model, clock, 119.9)
    await clock.advance(2)
    assert model.closed
    await clock.advance(1)
    assert (await soon(run)).text == "a"


@pytest.mark.parametrize("settings", [ModelSettings(), ModelSettings(timeout=170)], ids=["policy", "settings"])
async def test_idle_timeout_restarts_within_answer_timeout(settings: ModelSettings) -> None:
    clock = FakeClock()

    class Slow:
        name, live, asked = "slow", False, 0

        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            self.asked += 1
            while True:
                arrived = asyncio.Event()
                clock.call_later(50, arrived.set)
                await arrived.wait()
                yield TextChunk(".")

    model = Slow()
    policy = RetryPolicy(idle_timeout=60, answer_timeout=900 if settings.timeout else 170, stream_retries=0)
    runtime, run = started(model, clock, retry=policy, settings=settings)
    await until(lambda: model.asked)
    await clock.advance(169)
    assert not run.done()
    await clock.advance(2)
    ending = (await soon(run)).termination
    assert isinstance(ending, Failed)
    assert "hadn't finished its answer after 170 s" in ending.message
    assert [m.text for m in await runtime.threads.messages("t")] == ["go", "..."]


async def test_no_timeouts_wait_for_ever() -> None:
    clock, model = FakeClock(), Stalls("a")
    runtime, run = started(model, clock, retry=RetryPolicy(idle_timeout=None, answer_timeout=None))
    assert await waits(runtime, model, clock, 1_000_000)
    run.cancel()
    await asyncio.wait([run])
    assert model.closed == 1


async def test_cancellation_beats_simultaneous_timeout() -> None:
    clock, model = FakeClock(), Stalls("a")
    runtime, run = started(model, clock)
    await soon(model.stalled.wait())
    (record,) = await runtime.runs.list(thread="t")
    clock.call_later(60, lambda: asyncio.ensure_future(runtime.cancel(record.id, "now")))
    await clock.advance(60)
    await soon(run)
    await assert_cancelled(runtime, "t", "now")


async def test_timeout_is_an_ordinary_error(scripted: Scripted) -> None:
    _, run = started(scripted(ModelTimeout("slow"), "back"), retry=AT_ONCE)
    assert (await soon(run)).text == "back"
