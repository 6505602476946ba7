"""The application that the tests of the command line run."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

from wakeful import (
    Agent,
    ClientTool,
    FunctionModel,
    Limits,
    MemoryStore,
    ModelError,
    ModelRequest,
    Plugin,
    Runtime,
    ScriptedModel,
    ToolContext,
    Turn,
    call,
    tool,
)
from wakeful.errors import StoreError
from wakeful.models import Chunk, StopChunk, TextChunk
from wakeful.plugins import GateAnswer, GateTool


@tool
async def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"Sunny in {city}"


@tool(approval=True)
async def refund(order: str, amount: float) -> str:
    """Refund an order."""
    return f"Refunded {amount:.2f} for {order}"


@tool(resumable=True)
async def register(ctx: ToolContext) -> str:
    """Ask for a name and an age."""
    name = ctx.ask("What is your name?")
    age = ctx.ask("How old are you?", schema={"type": "integer"})
    return f"{name!r} is {age!r}"


@tool
async def finish(ctx: ToolContext) -> str:
    """End the run."""
    ctx.end_run("enough")
    return "ended"


@tool
async def block() -> str:
    """Wait for ever, and tidy up when told to stop."""
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        print("tidied up", file=sys.stderr, flush=True)
    return "never"


@tool(effect="pure")
async def nap(ctx: ToolContext) -> str:
    """Sleep for a day."""
    await ctx.sleep(24 * 3600)
    return "slept"


@tool
async def halt(ctx: ToolContext) -> str:
    """Have the run stand still."""
    await made[-1].runs.pause(ctx.run.run_id)
    return "halted"


@tool
async def stubborn() -> str:
    """Wait for ever, whatever anybody says."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


class Guard(Plugin):
    """Lets no call pass, and ends the run."""

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        return ctx.block("nobody may ask for the weather", ends_run=True)


class BrokenStore(MemoryStore):
    """A store that can't write."""

    async def commit(self, *_: object, **__: object) -> None:  # type: ignore[override]
        raise StoreError("the disk is full")


async def halting(_: ModelRequest) -> AsyncIterator[Chunk]:
    """Say one thing, wait for a line on stdin, say another."""
    yield TextChunk("first ")
    await asyncio.to_thread(sys.stdin.readline)
    yield TextChunk("second")
    yield StopChunk("end_turn")


def halting_once(request: ModelRequest) -> object:
    return "On again." if request.messages[-1].role == "tool" else call("halt")


def paris() -> ScriptedModel:
    return ScriptedModel([call("weather", city="Paris"), Turn(text=["It is ", "sunny."])])


def pay() -> ScriptedModel:
    return ScriptedModel([call("refund", order="A7", amount=20.0), "That is settled."])


store = MemoryStore()
made: list[Runtime] = []
other = 3


def agents() -> list[Agent]:
    cities = [call("weather", city=city) for city in ("Paris", "Rome")]
    return [
        Agent("assistant", model=paris(), tools=[weather]),
        Agent("parallel", model=ScriptedModel([cities, "Sunny everywhere."]), tools=[weather]),
        Agent("halting", model=FunctionModel(halting)),
        Agent("support", model=pay(), tools=[refund]),
        Agent(
            "boss",
            model=ScriptedModel([call("agent_run_support", prompt="Refund A7"), "It is seen to."]),
            delegates=["support"],
        ),
        Agent("clerk", model=ScriptedModel([call("register"), "Registered."]), tools=[register]),
        Agent(
            "both",
            model=ScriptedModel([[*[call("refund", order=o, amount=1) for o in ("A7", "B2")], call("register")]]),
            tools=[refund, register],
        ),
        Agent("client", model=ScriptedModel([call("locate"), "Found."]), tools=[ClientTool("locate")]),
        Agent("ended", model=ScriptedModel([call("finish")]), tools=[finish]),
        Agent("failed", model=ScriptedModel([ModelError("the vendor is down"), "Back again."])),
        Agent("stopped", model=paris(), tools=[weather], limits=Limits(steps=1)),
        Agent("blocked", model=paris(), tools=[weather], plugins=[Guard()]),
        Agent("blocking", model=ScriptedModel([call("block"), "Where were we?"]), tools=[block]),
        Agent("stubborn", model=ScriptedModel([call("stubborn")]), tools=[stubborn]),
        Agent("sleeper", model=ScriptedModel([call("nap"), "Awake."]), tools=[nap]),
        Agent("halter", model=FunctionModel(halting_once), tools=[halt]),
        Agent("desk", model=ScriptedModel([call("handoff_to_poet")]), handoffs=["poet"]),
        Agent("poet", model=ScriptedModel(["A verse.", "Another verse."])),
        Agent(
            "lead",
            model=ScriptedModel([call("agent_run_assistant", prompt="?"), "Ask me."]),
            delegates=["assistant"],
        ),
    ]


def make() -> Runtime:
    """A fresh runtime, with scripts from their start."""
    return Runtime(agents())


def kept() -> Runtime:
    """A runtime whose threads outlive it."""
    made.append(Runtime(agents(), store=store))
    return made[-1]


def filed() -> Runtime:
    """A runtime whose threads are in a file that other processes see."""
    made.append(Runtime(agents(), store=os.environ["SAMPLE_STORE"]))
    return made[-1]


def broken() -> Runtime:
    return Runtime(agents(), store=BrokenStore())


def single() -> Runtime:
    return Runtime([Agent("only", model=ScriptedModel(["Here I am.", "Still here."]))])


def needy(setting: str) -> Runtime:
    return make()


async def eventual() -> Runtime:
    return make()


def nothing() -> None:
    return None


def misconfigured() -> Runtime:
    return Runtime([Agent("lost", model=paris(), delegates=["nobody"])])


def buggy() -> Runtime:
    return {}["runtime"]


runtime = make()
