"""Tools that raise, return nonsense or write refused state: the model gets an error, and the run continues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from wakeful import Agent, Runtime, StateKey, ToolContext, ToolError, ToolResult, call, tool
from wakeful.errors import InvalidArguments, ToolCancelled, ToolDenied, ToolNotFound, ToolTimeout, UnknownStateKey
from wakeful.types.runs import NaturalEnd

from .helpers import Scripted, Spy, assert_settled, outcomes, replies_on, reply_text, soon, spying
from .test_cancel_tools import BESIDES


class Quota(ToolError):
    """An application's own kind of error."""

    kind = "quota"


class Tally(StateKey[int, int]):
    """A sum that takes no negative numbers."""

    name, merge, default = "tally", "commutative", 0

    def apply(self, value: int, update: int) -> int:
        if update < 0:
            raise ValueError("a tally only grows")
        return value + update


class Stranger(StateKey[int, int]):
    """A key that no runtime knows."""

    name = "stranger"


RAISED = [
    (ToolError("broken"), "failed", "broken"),
    (InvalidArguments("x must be even"), "invalid_arguments", "x must be even"),
    (ToolDenied("not for you"), "denied", "not for you"),
    (ToolNotFound("no such file tool"), "not_found", "no such file tool"),
    (ToolTimeout("the server was slow"), "timeout", "the server was slow"),
    (ToolCancelled("gave up"), "cancelled", "gave up"),
    (Quota("3 a day"), "quota", "3 a day"),
    (ValueError("bad"), "failed", "ValueError: bad"),
    (KeyError("k"), "failed", "KeyError: 'k'"),
    (StopIteration(), "failed", "StopIteration"),
    (StopAsyncIteration("x"), "failed", "StopAsyncIteration"),
    (SystemExit(3), "failed", "SystemExit: 3"),
    (ExceptionGroup("both", [ValueError("a")]), "failed", "both (1 sub-exception): ValueError: a"),
    (RecursionError("deep"), "failed", "RecursionError: deep"),
]


@BESIDES
@pytest.mark.parametrize(("error", "kind", "text"), RAISED, ids=[type(e).__name__ for e, _, _ in RAISED])
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_tool_exception_is_reported_to_model(
    scripted: Scripted, besides: Sequence[str], error: BaseException, kind: str, text: str, sync: bool
) -> None:
    def fail() -> None:
        """Fail."""
        raise error

    async def fail_later() -> None:
        """Fail."""
        raise error

    bad = tool(name="bad")(fail if sync else fail_later)
    calls = [call("bad"), *[call(other) for other in besides]]
    model = scripted(calls, "I see")
    tools = [bad, *[spying(Spy(), o) for o in besides]]
    runtime = Runtime([Agent("agent", model=model, tools=tools, expose_errors=True)])
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert (result.text, result.termination) == ("I see", NaturalEnd())
    reply = next(r for r in await replies_on(runtime, "t") if r.name == "bad")
    assert reply.error == kind
    assert text in reply_text(reply)
    assert await outcomes(runtime, result.run_id) == {"bad": "error", **dict.fromkeys(besides, "ok")}
    await assert_settled(runtime, "t")


async def test_first_errors_of_group_are_reported(scripted: Scripted) -> None:
    @tool
    async def gathers() -> str:
        """Fail in many ways."""
        inner = ExceptionGroup("inner", [KeyError("k")])
        raise ExceptionGroup("all", [inner, *[ValueError(str(n)) for n in range(6)]])

    model = scripted(call("gathers"), "done")
    runtime = Runtime([Agent("agent", model=model, tools=[gathers], expose_errors=True)])
    await runtime.run("agent", "go", thread="t")
    (reply,) = await replies_on(runtime, "t")
    assert reply_text(reply) == (
        "ExceptionGroup: all (7 sub-exceptions): ExceptionGroup: inner (1 sub-exception): KeyError: 'k'; "
        "ValueError: 0; ValueError: 1; ValueError: 2; ValueError: 3; and 2 more"
    )


async def test_error_without_text_is_reported_by_name(scripted: Scripted) -> None:
    @tool
    async def wait() -> None:
        """Wait too long."""
        raise TimeoutError

    model = scripted(call("wait"), "I see")
    runtime = Runtime([Agent("agent", model=model, tools=[wait], expose_errors=True)])
    await runtime.run("agent", "go", thread="t")
    (reply,) = await replies_on(runtime, "t")
    assert reply_text(reply) == "TimeoutError"


@pytest.mark.parametrize("value", [object(), {"x": object()}, lambda: None, ToolResult(data=object())])
async def test_unencodable_result_is_reported_to_model(scripted: Scripted, value: Any) -> None:
    runtime = Runtime([Agent("agent", model=scripted(call("odd"), "I see"), tools=[spying(Spy(), "odd", value)])])
    result = await runtime.run("agent", "go", thread="t")
    assert result.text == "I see"
    (reply,) = await replies_on(runtime, "t")
    assert reply.error == "failed"
    assert "can't be shown as JSON" in reply_text(reply)
    await assert_settled(runtime, "t")


@pytest.mark.parametrize("arguments", [{"x": "many"}, {"y": 1}, {"x": None}])
async def test_invalid_arguments_never_reach_tool(scripted: Scripted, arguments: Any) -> None:
    spy = Spy()
    runtime = Runtime([Agent("agent", model=scripted(call("act", **arguments), "ok"), tools=[spying(spy, "act")])])
    result = await runtime.run("agent", "go", thread="t")
    assert spy.ran == []
    assert await outcomes(runtime, result.run_id) == {"act": "error"}
    assert (await replies_on(runtime, "t"))[0].error == "invalid_arguments"


# -- state ---------------------------------------------------------------------------------------------------


@tool
async def add(n: int, ctx: ToolContext) -> str:
    """Add to the tally."""
    ctx.update(Tally, n)
    return f"added {n}"


@tool
async def total(ctx: ToolContext) -> str:
    """Say the tally."""
    return str(ctx.state[Tally])


def tally(model: Any, *tools: Any) -> Runtime:
    """A runtime that keeps a tally."""
    return Runtime([Agent("agent", model=model, tools=[add, total, *tools])], keys=[Tally])


async def test_failing_reducer_spares_siblings(scripted: Scripted) -> None:
    calls = [call("add", n=1), call("add", n=-5), call("add", n=2), call("add", n=-1)]
    runtime = tally(scripted(calls, call("total"), "done"))
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert (result.text, result.termination) == ("done", NaturalEnd())
    told = [(r.error, reply_text(r)) for r in await replies_on(runtime, "t")]
    assert [error for error, _ in told] == [None, "state", None, "state", None]
    assert "state key 'tally': its reducer failed: ValueError: unexpected error, reference" in told[1][1]
    assert told[-1] == (None, "3")
    await assert_settled(runtime, "t")


async def test_failing_reducer_of_single_call_is_reported(scripted: Scripted) -> None:
    runtime = tally(scripted(call("add", n=-1), "I see"))
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert result.text == "I see"
    assert await outcomes(runtime, result.run_id) == {"add": "error"}


async def test_refused_command_keeps_nothing(scripted: Scripted) -> None:
    @tool
    async def much(ctx: ToolContext) -> str:
        """Do much, and one thing wrong."""
        ctx.update(Tally, 100)
        ctx.update(Tally, -1)
        ctx.end_run("finished")
        return "done"

    runtime = tally(scripted(call("much"), call("total"), "still here"), much)
    result = await soon(runtime.run("agent", "go", thread="t"))
    assert result.text == "still here"
    assert [reply_text(r) for r in await replies_on(runtime, "t")][-1] == "0"


async def test_unknown_key_is_refused_where_it_is_used(scripted: Scripted) -> None:
    seen: list[BaseException] = []

    @tool
    async def stray(ctx: ToolContext) -> str:
        """Write what nobody registered."""
        ctx.update(Tally, 7)
        try:
            ctx.update(Stranger, 1)
        except UnknownStateKey as error:
            seen.append(error)
            raise
        return "never"

    runtime = tally(scripted(call("stray"), call("total"), "done"), stray)
    await runtime.run("agent", "go", thread="t")
    assert "'stranger' isn't registered" in str(seen[0])
    first, second = await replies_on(runtime, "t")
    assert first.error == "failed"
    assert reply_text(second) == "0"


async def test_too_large_value_is_refused(scripted: Scripted) -> None:
    class Notes(StateKey[str, str]):
        """Text."""

        name, default = "notes", ""

    @tool
    async def write(n: int, ctx: ToolContext) -> str:
        """Write so much."""
        ctx.update(Notes, "x" * n)
        return "written"

    agent = Agent("agent", model=scripted([call("write", n=3), call("write", n=400_000)], "ok"), tools=[write])
    runtime = Runtime([agent], keys=[Notes])
    await runtime.run("agent", "go", thread="t")
    first, second = await replies_on(runtime, "t")
    assert (first.error, second.error) == (None, "state")
    assert "the limit is" in reply_text(second)
    await assert_settled(runtime, "t")


async def test_updates_of_failed_tool_are_dropped(scripted: Scripted) -> None:
    @tool
    async def half(ctx: ToolContext) -> str:
        """Write, then fail."""
        ctx.update(Tally, 5)
        ctx.end_run("no")
        raise ToolError("half way")

    runtime = tally(scripted(call("half"), call("total"), "done"), half)
    result = await runtime.run("agent", "go", thread="t")
    assert result.termination == NaturalEnd()
    assert reply_text((await replies_on(runtime, "t"))[-1]) == "0"
