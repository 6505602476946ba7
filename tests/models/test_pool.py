"""Pools: distribution of threads, failover and exhaustion."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from loop.faults import AT_ONCE, Streams, goes_on
from wakeful import Agent, FunctionModel, ModelRequest, Pool, Runtime, ScriptedModel, Usage
from wakeful.errors import (
    BadCredentials,
    ConfigurationError,
    ContentFiltered,
    ContextOverflow,
    InvalidRequest,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelUnavailable,
    PoolExhausted,
    RateLimited,
    ScriptError,
    StreamBroken,
)
from wakeful.models import (
    Attempt,
    Chunk,
    Member,
    ModelFacts,
    ModelRegistry,
    PoolModel,
    StopChunk,
    TextChunk,
    forbid_live_models,
)
from wakeful.models.shared.guard import COOLDOWN, FAILURES
from wakeful.testing import FakeClock
from wakeful.types.events import ErrorRaised, InferenceComplete
from wakeful.types.runs import Failed, NaturalEnd

DOWN = ModelUnavailable("down")
KEY = BadCredentials("no key")


def scripted(name: str, *turns: Any) -> ScriptedModel:
    return ScriptedModel(turns, name=name)


def pooled(*members: Any, **options: Any) -> PoolModel:
    """A pool in its own registry."""
    found = ModelRegistry({"pool": Pool(members, **options)}, clock=FakeClock()).resolve("pool")
    assert isinstance(found, PoolModel)
    return found


def in_order(*models: Any, **options: Any) -> Pool:
    """A pool that uses its members in the given order."""
    weights = [Member(m, weight=1e9 ** (len(models) - n)) for n, m in enumerate(models)]
    return Pool(weights, **options)


async def run(pool: Pool, thread: str = "t", **options: Any) -> tuple[Any, Runtime]:
    runtime = Runtime([Agent("agent", model="pool")], models={"pool": pool}, retry=AT_ONCE, **options)
    return await asyncio.wait_for(runtime.run("agent", "go", thread=thread, check=False), 120), runtime


# -- whom a thread is served by ------------------------------------------------------------------------------


def home(pool: PoolModel, thread: str, run_id: str = "r") -> str:
    return pool.choose(Attempt(thread, run_id)).name


def test_pool_distributes_threads_by_weight() -> None:
    members = [Member(scripted("a"), 1), Member(scripted("b"), 3)]
    pool, other = pooled(*members), pooled(*members)
    served = {f"t{n}": home(pool, f"t{n}") for n in range(2000)}
    assert served == {thread: home(other, thread) for thread in served}
    counted = Counter(served.values())
    assert 400 < counted["a"] < 600


def test_pool_may_be_sticky_by_run() -> None:
    pool = pooled(scripted("a"), scripted("b"), sticky="run")
    assert {home(pool, "t", f"r{n}") for n in range(20)} == {"a", "b"}
    assert len({home(pool, f"t{n}", "r") for n in range(20)}) == 1


def test_pool_moves_only_threads_of_a_removed_member() -> None:
    a, b, c = scripted("a"), scripted("b"), scripted("c")
    before, after = pooled(a, b, c), pooled(a, b)
    for n in range(200):
        old = home(before, f"t{n}")
        assert old == "c" or home(after, f"t{n}") == old


def test_pool_failover_member_serves_only_when_others_are_down() -> None:
    pool = pooled(scripted("a"), Member(scripted("b"), weight=1e9, role="failover"))
    assert {home(pool, f"t{n}") for n in range(50)} == {"a"}


# -- who stands in -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [KEY, ModelNotFound("gone"), ModelError("odd"), RateLimited("quota"), OSError("?")]
)
async def test_pool_switches_at_once_when_a_retry_is_useless(error: Exception) -> None:
    first, second = scripted("a", error), scripted("b", "hello")
    result, runtime = await run(in_order(first, second))
    assert (result.text, result.termination) == ("hello", NaturalEnd())
    events = [event async for event in runtime.events("t", follow=False)]
    assert [e.source for e in events if isinstance(e, ErrorRaised)] == ["model"]
    assert [e.model for e in events if isinstance(e, InferenceComplete)] == ["b"]


@pytest.mark.parametrize(("seconds", "waited"), [(5, True), (5.1, False), (3600, False)])
async def test_pool_waits_for_a_short_rate_limit(seconds: float, waited: bool) -> None:
    clock = FakeClock()
    first, second = scripted("a", RateLimited("slow", retry_after=seconds), "first"), scripted("b", "second")
    work = asyncio.create_task(run(in_order(first, second), clock=clock))
    while len(first.requests) < 1:
        await asyncio.sleep(0)
    await clock.advance(6)
    assert (await work)[0].text == ("first" if waited else "second")


@pytest.mark.parametrize("error", [InvalidRequest("bad"), ContextOverflow("long"), ContentFiltered("no")])
async def test_pool_does_not_switch_on_request_errors(error: ModelError) -> None:
    first, second = scripted("a", error), scripted("b", "never")
    result, _ = await run(in_order(first, second))
    assert isinstance(result.termination, Failed)
    assert result.termination.error == type(error).__name__
    assert second.requests == []


async def test_pool_does_not_hide_a_script_error() -> None:
    result, _ = await run(in_order(scripted("a"), scripted("b", "never")))
    assert result.termination.error == ScriptError.__name__


async def test_pool_retries_transient_errors_before_it_switches() -> None:
    first, second = scripted("a", DOWN, ModelOverloaded("full"), DOWN), scripted("b", DOWN, "hello")
    result, _ = await run(in_order(first, second))
    assert (result.text, len(first.requests), len(second.requests)) == ("hello", 3, 2)


async def test_pool_continues_a_broken_answer_with_another_member() -> None:
    first = Streams(*[[TextChunk(f"{n} "), StreamBroken("cut")] for n in range(3)], name="a")
    second = Streams([TextChunk("3"), StopChunk("end_turn")], name="b")
    result, _ = await run(in_order(first, second))
    assert result.text == "0 1 2 3"
    before = goes_on(second.requests[0])
    assert before is not None
    assert before.text == "0 1 2 "


async def test_pool_tries_a_member_once_for_an_answer() -> None:
    clock = FakeClock()
    first, second = scripted("a", RateLimited("quota"), "next"), scripted("b", DOWN, DOWN, DOWN)
    result, runtime = await run(in_order(first, second), clock=clock)
    assert result.termination.error == PoolExhausted.__name__
    assert (len(first.requests), len(second.requests)) == (1, 3)
    await clock.advance(31)
    # Each answer has its own attempt.
    assert (await runtime.run("agent", "again", thread="t")).text == "next"


async def test_pool_quarantines_a_member_with_a_bad_key() -> None:
    clock = FakeClock()
    first, second = scripted("a", KEY, "first again"), scripted("b", "one", "two")
    _, runtime = await run(in_order(first, second), clock=clock)
    assert (await runtime.run("agent", "go", thread="t")).text == "two"
    assert len(first.requests) == 1
    await clock.advance(301)
    assert (await runtime.run("agent", "go", thread="t")).text == "first again"


async def test_pool_does_not_switch_on_cancellation() -> None:
    asked = asyncio.Event()

    async def wait(request: ModelRequest) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    second = scripted("b", "never")
    work = asyncio.create_task(run(in_order(FunctionModel(wait, name="a"), second)))
    await asked.wait()
    work.cancel()
    await asyncio.wait([work])
    assert second.requests == []


# -- nobody is left ------------------------------------------------------------------------------------------


async def test_pool_exhausted_error_lists_every_member() -> None:
    pool = in_order(scripted("a", KEY), scripted("b", RateLimited("quota")), scripted("c", ModelNotFound("gone")))
    result, _ = await run(pool)
    assert result.termination.error == "PoolExhausted"
    lines = result.termination.message.splitlines()
    assert lines[0] == "pool 'pool': no model is left:"
    assert lines[1:] == [
        "  - a: BadCredentials: no key",
        "  - b: RateLimited: quota",
        "  - c: ModelNotFound: gone",
    ]


@pytest.mark.parametrize("switches", [0, 1])
async def test_pool_limits_switches(switches: int) -> None:
    models = [scripted(name, KEY) for name in "abc"]
    result, _ = await run(in_order(*models, max_switches=switches))
    assert result.termination.error == "PoolExhausted"
    assert f"after {switches} switches" in result.termination.message
    assert "c: not tried" in result.termination.message
    assert [len(model.requests) for model in models] == [1, switches, 0]


# -- with breakers -------------------------------------------------------------------------------------------


@pytest.fixture
def live() -> Iterator[None]:
    before = forbid_live_models(False)
    yield
    forbid_live_models(before)


class Live:
    """A live model that fails with the given error until that is None."""

    live = True

    def __init__(self, name: str, error: ModelError | None = None) -> None:
        self.name, self.error, self.asked = name, error, 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        yield TextChunk(self.name)
        yield StopChunk("end_turn")


@pytest.mark.usefixtures("live")
async def test_pool_skips_a_member_with_an_open_breaker() -> None:
    clock = FakeClock()
    first, second = Live("a", DOWN), Live("b")
    result, runtime = await run(in_order(first, second), clock=clock)
    assert (result.text, first.asked) == ("b", 3)
    assert (await runtime.run("agent", "go", thread="t")).text == "b"
    assert first.asked == FAILURES, "the failure that opens the breaker is the last"
    assert (await runtime.run("agent", "go", thread="t")).text == "b"
    assert first.asked == FAILURES
    first.error = None
    await clock.advance(COOLDOWN)
    assert (await runtime.run("agent", "go", thread="t")).text == "a"


@pytest.mark.usefixtures("live")
async def test_pool_waits_for_retry_after_of_the_last_member() -> None:
    clock = FakeClock()
    model = Live("a", RateLimited("slow", retry_after=3))
    runtime = Runtime([Agent("agent", model=in_order(model))], retry=AT_ONCE, clock=clock)
    first = asyncio.create_task(runtime.run("agent", "go"))
    while not model.asked:
        await asyncio.sleep(0)
    second = asyncio.create_task(runtime.run("agent", "go"))
    await clock.advance(2)
    assert model.asked == 1
    model.error = None
    await clock.advance(2)
    assert [r.text for r in await asyncio.gather(first, second)] == ["a", "a"]


# -- a model like any other ----------------------------------------------------------------------------------


async def test_pool_model_streams_directly_with_failover() -> None:
    pool = pooled(*in_order(scripted("a", DOWN), scripted("b", KEY), scripted("c", "hello")).members)
    chunks = [chunk async for chunk in pool.stream(ModelRequest("", []))]
    assert chunks == [TextChunk("hello"), StopChunk("end_turn")]
    assert not pool.live


def knowing(name: str, window: int | None, most: int | None = 10) -> ScriptedModel:
    model = scripted(name)
    model.facts = ModelFacts(context_window=window, max_output=most)  # type: ignore[attr-defined]
    return model


def test_pool_facts_are_the_smallest_of_its_members() -> None:
    # Edge case 45.
    facts = pooled(knowing("a", 100), knowing("b", 50, 20)).facts
    assert (facts.context_window, facts.max_output) == (50, 10)
    assert pooled(knowing("a", 100), knowing("b", None)).facts.context_window is None
    assert pooled(knowing("a", 100), scripted("b")).facts.context_window is None


async def test_agent_accepts_a_pool_object() -> None:
    runtime = Runtime([Agent("agent", model=Pool([scripted("a", "one", "two")]))])
    assert (await runtime.run("agent", "go")).text == "one"
    assert (await runtime.run("agent", "go")).usage == Usage()


@pytest.mark.parametrize(
    ("members", "options", "says"),
    [
        ((), {}, "no member that serves"),
        ((Member("acme:a", role="failover"),), {}, "no member that serves"),
        (("acme:a", "acme:a"), {}, "'acme:a' is in it twice"),
        (("acme:a", "nobody:b"), {}, "no vendor 'nobody'"),
        (("other",), {}, "'other' is a pool itself"),
        (("acme:a", Member("acme:b", weight=0)), {}, "weight of 'acme:b' must be more than 0"),
        (("acme:a",), {"sticky": "day"}, "sticky is 'thread' or 'run'"),
        (("acme:a",), {"max_switches": -1}, "can't be negative"),
    ],
)
def test_invalid_pool_is_refused_by_the_runtime(members: Any, options: Any, says: str) -> None:
    models: Any = {
        "acme": lambda name: scripted(name),
        "other": Pool(["acme:a"]),
        "pool": Pool(members, **options),
    }
    with pytest.raises(ConfigurationError, match=says):
        Runtime([Agent("agent", model="pool")], models=models)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        (
            "openai:gpt-5-mini",
            r"a Pool takes a list: Pool\(\['openai:gpt-5-mini', ...\]\); not 'openai:gpt-5-mini'",
        ),
        (3, "a Pool takes a list"),
        ([3], "not 3"),
        ([Member(None)], "not None"),  # type: ignore[arg-type]
    ],
)
def test_pool_requires_a_list_of_models(members: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Pool(members)


def test_pool_of_an_agent_is_checked() -> None:
    with pytest.raises(ConfigurationError, match=r"agent 'agent': pool .*no vendor 'nobody'"):
        Runtime([Agent("agent", model=Pool(["nobody:b"]))])


async def test_pool_skips_a_member_that_cannot_be_created() -> None:
    def broken(name: str) -> Any:
        raise BadCredentials("set ACME_KEY")

    models: Any = {"acme": broken, "pool": in_order("acme:a", scripted("b", "hello"))}
    runtime = Runtime([Agent("agent", model="pool")], models=models)
    assert (await runtime.run("agent", "go")).text == "hello"
