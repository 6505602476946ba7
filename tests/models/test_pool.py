"""Pools: whom a thread is served by, who stands in, and when nobody is left."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from loop.faults import AT_ONCE, Streams, goes_on
from wakeful import Agent, FunctionModel, Member, ModelFacts, ModelRequest, Pool, Runtime, ScriptedModel, Usage
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
    NoModelLeft,
    RateLimited,
    ScriptError,
    StreamBroken,
)
from wakeful.models import Attempt, Chunk, ModelRegistry, PoolModel, StopChunk, TextChunk, forbid_live_models
from wakeful.models._guard import COOLDOWN, FAILURES
from wakeful.testing import FakeClock
from wakeful.types.events import ErrorRaised, InferenceComplete
from wakeful.types.runs import Failed, NaturalEnd

DOWN = ModelUnavailable("down")
KEY = BadCredentials("no key")


def scripted(name: str, *turns: Any) -> ScriptedModel:
    return ScriptedModel(turns, name=name)


def pooled(*members: Any, **options: Any) -> PoolModel:
    """A pool in a registry of its own."""
    found = ModelRegistry({"pool": Pool(members, **options)}, clock=FakeClock()).resolve("pool")
    assert isinstance(found, PoolModel)
    return found


def in_order(*models: Any, **options: Any) -> Pool:
    """A pool that asks the first, as all its threads are that one's, and then the others one by one."""
    weights = [Member(m, weight=1e9 ** (len(models) - n)) for n, m in enumerate(models)]
    return Pool(weights, **options)


async def run(pool: Pool, thread: str = "t", **options: Any) -> tuple[Any, Runtime]:
    runtime = Runtime([Agent("agent", model="pool")], models={"pool": pool}, patience=AT_ONCE, **options)
    return await asyncio.wait_for(runtime.run("agent", "go", thread=thread), 20), runtime


# -- whom a thread is served by ------------------------------------------------------------------------------


def home(pool: PoolModel, thread: str, run_id: str = "r") -> str:
    return pool.choose(Attempt(thread, run_id)).name


def test_a_thread_keeps_its_member_and_members_share_the_threads_by_weight() -> None:
    members = [Member(scripted("a"), 1), Member(scripted("b"), 3)]
    pool, other = pooled(*members), pooled(*members)
    served = {f"t{n}": home(pool, f"t{n}") for n in range(2000)}
    assert served == {thread: home(other, thread) for thread in served}
    counted = Counter(served.values())
    assert 400 < counted["a"] < 600


def test_it_may_be_the_run_that_keeps_its_member() -> None:
    pool = pooled(scripted("a"), scripted("b"), sticky="run")
    assert {home(pool, "t", f"r{n}") for n in range(20)} == {"a", "b"}
    assert len({home(pool, f"t{n}", "r") for n in range(20)}) == 1


def test_only_the_threads_of_a_member_that_leaves_move() -> None:
    a, b, c = scripted("a"), scripted("b"), scripted("c")
    before, after = pooled(a, b, c), pooled(a, b)
    for n in range(200):
        old = home(before, f"t{n}")
        assert old == "c" or home(after, f"t{n}") == old


def test_one_for_failover_serves_nobody_by_itself() -> None:
    pool = pooled(scripted("a"), Member(scripted("b"), weight=1e9, role="failover"))
    assert {home(pool, f"t{n}") for n in range(50)} == {"a"}


# -- who stands in -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [KEY, ModelNotFound("gone"), ModelError("odd"), RateLimited("quota"), OSError("?")]
)
async def test_another_member_answers_at_once_where_asking_again_is_no_use(error: Exception) -> None:
    first, second = scripted("a", error), scripted("b", "hello")
    result, runtime = await run(in_order(first, second))
    assert (result.text, result.termination) == ("hello", NaturalEnd())
    events = [event async for event in runtime.events("t", follow=False)]
    assert [e.source for e in events if isinstance(e, ErrorRaised)] == ["model"]
    assert [e.model for e in events if isinstance(e, InferenceComplete)] == ["b"]


@pytest.mark.parametrize(("seconds", "waited"), [(5, True), (5.1, False), (3600, False)])
async def test_a_rate_limit_is_waited_for_where_it_is_short(seconds: float, waited: bool) -> None:
    clock = FakeClock()
    first, second = scripted("a", RateLimited("slow", retry_after=seconds), "first"), scripted("b", "second")
    work = asyncio.create_task(run(in_order(first, second), clock=clock))
    while len(first.requests) < 1:
        await asyncio.sleep(0)
    await clock.advance(6)
    assert (await work)[0].text == ("first" if waited else "second")


@pytest.mark.parametrize("error", [InvalidRequest("bad"), ContextOverflow("long"), ContentFiltered("no")])
async def test_nobody_stands_in_where_the_request_is_at_fault(error: ModelError) -> None:
    first, second = scripted("a", error), scripted("b", "never")
    result, _ = await run(in_order(first, second))
    assert isinstance(result.termination, Failed)
    assert result.termination.error == type(error).__name__
    assert second.requests == []


async def test_a_script_that_ran_out_is_told_and_not_covered_up() -> None:
    result, _ = await run(in_order(scripted("a"), scripted("b", "never")))
    assert result.termination.error == ScriptError.__name__


async def test_what_may_pass_is_tried_again_first_and_then_left() -> None:
    first, second = scripted("a", DOWN, ModelOverloaded("full"), DOWN), scripted("b", DOWN, "hello")
    result, _ = await run(in_order(first, second))
    assert (result.text, len(first.requests), len(second.requests)) == ("hello", 3, 2)


async def test_an_answer_that_broke_off_for_good_is_gone_on_with_by_another() -> None:
    first = Streams(*[[TextChunk(f"{n} "), StreamBroken("cut")] for n in range(3)], name="a")
    second = Streams([TextChunk("3"), StopChunk("end_turn")], name="b")
    result, _ = await run(in_order(first, second))
    assert result.text == "0 1 2 3"
    before = goes_on(second.requests[0])
    assert before is not None
    assert before.text == "0 1 2 "


async def test_a_member_that_was_left_is_not_asked_again_for_the_same_answer() -> None:
    clock = FakeClock()
    first, second = scripted("a", RateLimited("quota"), "next"), scripted("b", DOWN, DOWN, DOWN)
    result, runtime = await run(in_order(first, second), clock=clock)
    assert result.termination.error == NoModelLeft.__name__
    assert (len(first.requests), len(second.requests)) == (1, 3)
    await clock.advance(31)
    # What another answer was asked for says nothing about this one.
    assert (await runtime.run("agent", "again", thread="t")).text == "next"


async def test_one_whose_key_is_refused_is_not_asked_first_for_a_while() -> None:
    clock = FakeClock()
    first, second = scripted("a", KEY, "first again"), scripted("b", "one", "two")
    _, runtime = await run(in_order(first, second), clock=clock)
    assert (await runtime.run("agent", "go", thread="t")).text == "two"
    assert len(first.requests) == 1
    await clock.advance(301)
    assert (await runtime.run("agent", "go", thread="t")).text == "first again"


async def test_cancelling_asks_nobody_else() -> None:
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


async def test_when_nobody_is_left_every_member_is_named_with_its_reason() -> None:
    pool = in_order(scripted("a", KEY), scripted("b", RateLimited("quota")), scripted("c", ModelNotFound("gone")))
    result, _ = await run(pool)
    assert result.termination.error == "NoModelLeft"
    lines = result.termination.message.splitlines()
    assert lines[0] == "pool 'pool': no model is left:"
    assert lines[1:] == [
        "  - a: BadCredentials: no key",
        "  - b: RateLimited: quota",
        "  - c: ModelNotFound: gone",
    ]


@pytest.mark.parametrize("switches", [0, 1])
async def test_so_many_switches_and_no_more(switches: int) -> None:
    models = [scripted(name, KEY) for name in "abc"]
    result, _ = await run(in_order(*models, switches=switches))
    assert result.termination.error == "NoModelLeft"
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
    """A live model that fails with what it is given, until that is None."""

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
async def test_a_member_whose_breaker_is_open_is_passed_over_until_it_is_well() -> None:
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
async def test_one_that_said_to_come_back_soon_is_waited_for_if_there_is_nobody_else() -> None:
    clock = FakeClock()
    model = Live("a", RateLimited("slow", retry_after=3))
    runtime = Runtime([Agent("agent", model=in_order(model))], patience=AT_ONCE, clock=clock)
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


async def test_whoever_asks_it_directly_is_answered_by_whoever_can() -> None:
    pool = pooled(*in_order(scripted("a", DOWN), scripted("b", KEY), scripted("c", "hello")).members)
    chunks = [chunk async for chunk in pool.stream(ModelRequest("", []))]
    assert chunks == [TextChunk("hello"), StopChunk("end_turn")]
    assert not pool.live


def knowing(name: str, window: int | None, most: int | None = 10) -> ScriptedModel:
    model = scripted(name)
    model.facts = ModelFacts(context_window=window, max_output=most)  # type: ignore[attr-defined]
    return model


def test_its_bounds_are_the_least_of_its_members_and_unknown_if_one_is() -> None:
    # Edge case 45.
    facts = pooled(knowing("a", 100), knowing("b", 50, 20)).facts
    assert (facts.context_window, facts.max_output) == (50, 10)
    assert pooled(knowing("a", 100), knowing("b", None)).facts.context_window is None
    assert pooled(knowing("a", 100), scripted("b")).facts.context_window is None


async def test_an_agent_may_be_given_a_pool_itself() -> None:
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
        (("acme:a",), {"switches": -1}, "can't be negative"),
    ],
)
def test_a_pool_that_cannot_work_is_refused_when_the_runtime_is_made(
    members: Any, options: Any, says: str
) -> None:
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
def test_what_is_no_list_of_models_is_no_pool(members: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Pool(members)


def test_a_pool_that_was_given_to_an_agent_is_checked_too() -> None:
    with pytest.raises(ConfigurationError, match=r"agent 'agent': pool .*no vendor 'nobody'"):
        Runtime([Agent("agent", model=Pool(["nobody:b"]))])


async def test_a_member_that_cannot_be_made_is_passed_over() -> None:
    def broken(name: str) -> Any:
        raise BadCredentials("set ACME_KEY")

    models: Any = {"acme": broken, "pool": in_order("acme:a", scripted("b", "hello"))}
    runtime = Runtime([Agent("agent", model="pool")], models=models)
    assert (await runtime.run("agent", "go")).text == "hello"
