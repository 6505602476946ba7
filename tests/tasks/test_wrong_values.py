"""Wrong values for tasks and schedules: refused at once, and the thread stays readable."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import Scripted, replies_on, reply_text
from wakeful import (
    Agent,
    Capacity,
    ConfigurationError,
    Principal,
    Runtime,
    SqliteStore,
    ToolContext,
    call,
    task,
    tool,
)
from wakeful.errors import InvalidArguments, InvalidInput, UnknownStateKey, UsageError
from wakeful.models import FunctionModel


def echo() -> Agent:
    """An agent that says what it was told."""
    return Agent("agent", model=FunctionModel(lambda request: request.messages[-1].text))


@task
async def add(n: int) -> int:
    """One more."""
    return n + 1


@pytest.mark.parametrize(
    "options",
    [
        {"name": 5},
        {"name": ""},
        {"name": "x" * 129},
        {"name": "a\nb"},
        {"name": "a\x00b"},
        {"wake": "always"},
        {"wake": ["run"]},
        {"principal": Principal(5)},  # type: ignore[arg-type]
        {"principal": Principal("a", claims={"by": object()})},
        {"arguments": 5},
        {"arguments": {5: 1}},
        {"arguments": {"n": 2}},
    ],
)
async def test_spawn_refuses_unencodable_values(tmp_path: Path, options: dict[str, Any]) -> None:
    async with Runtime([echo()], tasks=[add], store=SqliteStore(tmp_path / "a.db")) as runtime:
        with pytest.raises(UsageError):
            await runtime.tasks.spawn(add, thread="t", n=1, **options)
        assert await runtime.tasks.list("t") == []
        assert await (await runtime.tasks.spawn(add, thread="t", name="größer, 1 von 2", n=1)).value() == 2


async def nothing() -> None:
    """Do nothing."""


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("options", [{"name": 5}, {"wake": "always"}, {"n": 1}, {"prompt": "go"}, {"prompt": ""}])
async def test_coroutine_of_invalid_spawn_is_closed(scripted: Scripted, options: dict[str, Any]) -> None:
    coroutines = [nothing(), nothing(), nothing()]

    @tool
    async def begin(ctx: ToolContext) -> str:
        """Begin it."""
        return (await ctx.spawn(coroutines[0], **options)).id

    async with Runtime([Agent("a", model=scripted(call("begin"), "ok"), tools=[begin])]) as runtime:
        await runtime.run("a", "go", thread="t")
        (reply,) = await replies_on(runtime, "t")
        assert reply.error == "failed"
        assert await runtime.tasks.list("t") == []
        with pytest.raises(UsageError):
            await runtime.tasks.spawn(coroutines[1], **options)
        with pytest.raises(UsageError):
            await runtime.schedules.put("s", coroutines[2], delay=-1)
    assert [coroutine.cr_frame for coroutine in coroutines] == [None] * 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": 5}, "a task's name is a text"),
        ({"wake": "always"}, "wake is one of inbox, run"),
        ({"detached": "yes"}, "detached is True or False"),
        ({"arguments": {"n": 2}}, "'n' is given twice"),
    ],
)
async def test_invalid_spawn_in_tool_is_tool_error(
    tmp_path: Path, scripted: Scripted, options: dict[str, Any], said: str
) -> None:
    @tool
    async def begin(ctx: ToolContext) -> str:
        """Begin it."""
        with pytest.raises(InvalidInput, match=said):
            await ctx.spawn(add, n=1, **options)
        return "refused"

    agent = Agent("agent", model=scripted(call("begin"), "ok"), tools=[begin])
    async with Runtime([agent], tasks=[add], store=SqliteStore(tmp_path / "a.db")) as runtime:
        await runtime.run("agent", "go", thread="t")
        assert reply_text((await replies_on(runtime, "t"))[0]) == "refused"


@pytest.mark.parametrize("method", ["spawn", "run_agent"])
async def test_unknown_seed_key_in_tool_is_tool_error(scripted: Scripted, method: str) -> None:
    @tool
    async def begin(ctx: ToolContext) -> str:
        """Begin it."""
        for key in ("k", 5):
            with pytest.raises(UnknownStateKey):
                await getattr(ctx, method)("agent", "go", state={key: 1})
        return "refused"

    lead = Agent("lead", model=scripted(call("begin"), "ok"), tools=[begin])
    async with Runtime([lead, echo()]) as runtime:
        await runtime.run("lead", "go", thread="t")
        assert reply_text((await replies_on(runtime, "t"))[0]) == "refused"
        assert await runtime.tasks.list("t") == []


@pytest.mark.parametrize("name", ["survey", "parent"])
async def test_task_name_needs_owner_thread(name: str) -> None:
    async with Runtime([echo()], tasks=[add]) as runtime:
        with pytest.raises(InvalidArguments, match=f"'{name}' would name nothing"):
            await runtime.tasks.spawn(add, name=name, n=1)
        assert await runtime.runs.list() == []
        assert await (await runtime.tasks.spawn(add, n=1)).value() == 2


@pytest.mark.parametrize("wrong", [{"id": 5}, {"kind": 5}, {"claims": 5}, {"claims": {"x": object()}}])
async def test_principal_type_is_checked(wrong: dict[str, Any]) -> None:
    who = Principal(**{"id": "ann", **wrong})
    async with Runtime([echo()]) as runtime:
        done = await runtime.run("agent", "go", thread="t", principal=Principal("ann", claims={"role": ["a"]}))
        for begin in (runtime.run, runtime.start):
            with pytest.raises(InvalidInput, match="a principal has an id"):
                await begin("agent", "go", principal=who)
        with pytest.raises(InvalidInput, match="a principal has an id"):
            await runtime.resume(done.run_id, answers={"k": 1}, principal=who)


@pytest.mark.parametrize(
    "wrong",
    [
        {"running": 0},
        {"running": -1},
        {"running": "x"},
        {"running": 1.5},
        {"running": True},
        {"per_tenant": 0},
        {"per_tenant": "x"},
        {"queued": "x"},
        {"queued": -1},
        {"per_agent": 3},
        {"per_agent": {"w": "x"}},
        {"per_agent": {"w": 0}},
        {"per_agent": {1: 1}},
    ],
)
def test_zero_capacity_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"Capacity: {next(iter(wrong))}"):
        Capacity(**wrong)
    assert Capacity(running=1, per_tenant=1, queued=0, per_agent={"w": 1}).running == 1


@pytest.mark.parametrize(
    "when",
    [
        {"cron": 5},
        {"cron": "* * * * *", "tz": 5},
        {"cron": "* * * * *", "tz": UTC},
        {"delay": 1, "tz": UTC},
        {"at": "2026-01-01"},
        {"at": datetime(2026, 1, 1)},
        *[{"delay": delay} for delay in (math.nan, math.inf, -5, 1e18, "x", timedelta(seconds=-1))],
        {"delay": 1, "arguments": 5},
        {"delay": 1, "principal": Principal(5)},  # type: ignore[arg-type]
    ],
)
async def test_schedule_refuses_invalid_time(when: dict[str, Any]) -> None:
    async with Runtime([echo()], tasks=[add]) as runtime:
        with pytest.raises((UsageError, ConfigurationError)):
            await runtime.schedules.put("s", add, **{"arguments": {"n": 1}, **when})
        assert await runtime.schedules.list() == []


async def test_schedule_error_names_valid_arguments() -> None:
    async with Runtime([echo()]) as runtime:
        with pytest.raises(InvalidArguments, match=r"takes an input.*schedules.put\('s', 'agent', input"):
            await runtime.schedules.put("s", "agent", delay=1)
        with pytest.raises(ConfigurationError, match=r"@reboot.*@hourly, @daily.*five fields"):
            await runtime.schedules.put("s", "agent", "go", cron="@reboot")


@pytest.mark.parametrize("delay", [1e18, math.nan, math.inf, 10**400, -1, "x"])
async def test_run_start_time_is_checked(delay: Any) -> None:
    async with Runtime([echo()]) as runtime:
        with pytest.raises(UsageError, match="a delay is in seconds and not negative, up to the year 9999"):
            await runtime.start("agent", "go", delay=delay)


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_sleep_time_is_checked(scripted: Scripted, effect: Any) -> None:
    @tool(effect=effect)
    async def nap(ctx: ToolContext) -> str:
        """Sleep."""
        for seconds in ("x", None, math.nan, math.inf, 1e18, True):
            with pytest.raises(InvalidInput, match="what to sleep is in seconds"):
                await ctx.sleep(seconds)  # type: ignore[arg-type]
        for time in ("2030", None, datetime(2030, 1, 1)):
            with pytest.raises(InvalidInput, match="time zone"):
                await ctx.sleep_until(time)  # type: ignore[arg-type]
        await ctx.sleep(-5)
        return "awake"

    agent = Agent("agent", model=scripted(call("nap"), "ok"), tools=[nap])
    async with Runtime([agent]) as runtime:
        await runtime.run("agent", "go", thread="t")
        assert reply_text((await replies_on(runtime, "t"))[0]) == "awake"


@pytest.mark.parametrize("tasks", [add, "add", {"add": add}, 5])
def test_runtime_checks_tasks_argument(tasks: Any) -> None:
    with pytest.raises(ConfigurationError, match="takes a list of tasks"):
        Runtime([echo()], tasks=tasks)
