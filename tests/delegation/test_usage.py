"""The usage of a result is that of the whole tree, also if runs below it were stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from loop.helpers import soon
from wakeful import Agent, Delegate, Limits, Runtime, ScriptedModel, ToolContext, Turn, Usage, call, tool
from wakeful.models import Chunk, ModelRequest, StopChunk, TextChunk, UsageChunk

from .conftest import Place
from .helpers import ask


class Hanging:
    """A model that reports 200 tokens and streams until it is cancelled, or longer if it is stubborn."""

    name, live = "hanging", False

    def __init__(self, *, stubborn: bool = False) -> None:
        self.begun, self.released = 0, asyncio.Event()
        self._stubborn = stubborn

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        yield UsageChunk(Usage(input_tokens=200))
        yield TextChunk("Well")
        self.begun += 1
        with suppress(asyncio.CancelledError if self._stubborn else ()):
            await asyncio.Event().wait()
        await self.released.wait()
        yield StopChunk("end_turn")

    async def hangs(self, number: int) -> None:
        """Wait until so many answers have begun."""
        async with asyncio.timeout(60):
            while self.begun < number:
                await asyncio.sleep(0.001)


def used(tokens: int, *calls: Any) -> Turn:
    return Turn(text="" if calls else "Done.", calls=list(calls), usage=Usage(input_tokens=tokens))


def family(kid: Hanging, kind: dict[str, Any], *after: Turn) -> list[Agent]:
    """A lead with a child that is done, one that runs, and one whose own child runs."""
    asks = {"background": True} if "background" in kind else {}
    turns = [used(50, ask("done")), used(100, ask("kid", **asks), ask("middle", **asks)), *after]
    delegates = [Delegate(name, **kind) for name in ("done", "kid", "middle")]
    return [
        Agent("lead", model=ScriptedModel(turns), delegates=delegates),
        Agent("done", model=ScriptedModel([used(300)])),
        Agent("kid", model=kid),
        Agent(
            "middle",
            model=ScriptedModel([used(150, ask("kid", **asks)), used(0)]),
            delegates=[Delegate("kid", **kind)],
        ),
    ]


KINDS = pytest.mark.parametrize(
    "kind", [{}, {"durable": True}, {"background": True}], ids=["plain", "durable", "background"]
)


@KINDS
async def test_usage_of_cancelled_tree_is_whole(place: Place, kind: dict[str, Any]) -> None:
    kid = Hanging()
    async with Runtime(family(kid, kind, used(7)), store=place()) as runtime:
        started = await runtime.start("lead", "go")
        await kid.hangs(2)
        await soon(runtime.cancel(started.run_id))
        result = await started.result()
        assert result.usage.input_tokens == 1_000 + (7 if "background" in kind else 0)
        assert result.tasks == ()
        assert (await runtime.runs.result(started.run_id)).usage == result.usage


async def test_usage_of_stopped_tree_is_whole(place: Place) -> None:
    """The limit stops the lead while its tasks run; `run` returns once these have ended."""
    kid = Hanging()

    @tool
    async def wait() -> None:
        """Wait until the tasks run."""
        await kid.hangs(2)

    lead, *others = family(kid, {"background": True}, used(7, call("wait")))
    lead = Agent("lead", lead.model, tools=[wait], delegates=lead.delegates, limits=Limits(steps=3))
    async with Runtime([lead, *others], store=place()) as runtime:
        result = await soon(runtime.run("lead", "go"))
        assert (type(result.termination).__name__, result.tasks) == ("Stopped", ())
        assert result.usage.input_tokens == 1_007
        runs = await runtime.runs.list()
        assert {run.status for run in runs} == {"done"}


async def test_usage_has_task_that_the_model_cancelled(place: Place) -> None:
    kid = Hanging()

    @tool
    async def stop(ctx: ToolContext) -> None:
        """Stop the tasks."""
        await kid.hangs(1)
        for task in await ctx.tasks():
            await ctx.cancel_task(task, "enough")

    turns = [used(50, ask("kid", background=True)), used(100, call("stop")), used(7)]
    lead = Agent("lead", ScriptedModel(turns), tools=[stop], delegates=[Delegate("kid", background=True)])
    async with Runtime([lead, Agent("kid", model=kid)], store=place()) as runtime:
        result = await soon(runtime.run("lead", "go"))
        assert (result.text, result.usage.input_tokens) == ("Done.", 357)


async def test_result_names_tasks_that_still_run(tmp_path: Path) -> None:
    """Another process has the child, which takes its time to stop."""
    kid = Hanging(stubborn=True)

    @tool
    async def end(ctx: ToolContext) -> None:
        """End the run while its task runs."""
        await kid.hangs(1)
        ctx.end_run("enough")

    turns = [used(50, ask("kid", background=True)), used(100, call("end"))]
    lead = Agent("lead", ScriptedModel(turns), tools=[end], delegates=[Delegate("kid", background=True)])
    agents = [lead, Agent("kid", model=kid)]
    here = Runtime(agents, store=tmp_path / "a.db", execute=False, cancel_grace=0.05)
    there = Runtime(agents, store=tmp_path / "a.db")
    async with there, here:
        result = await soon(here.run("lead", "go"))
        (child,) = await here.runs.list(agent="kid")
        assert result.tasks == (child.id,)
        assert result.usage.input_tokens == 150
        kid.released.set()
        await soon(there.wait(child.id))
        later = await here.runs.result(result.run_id)
        assert (later.tasks, later.usage.input_tokens) == ((), 350)
