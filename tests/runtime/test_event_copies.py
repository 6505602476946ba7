"""Results belong to their reader: a change to one affects neither the run nor other readers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from loop.helpers import Hold, Scripted, soon
from wakeful import Agent, MemoryStore, Plugin, Principal, Runtime, ToolResult, call, tool
from wakeful.plugins import AfterTool, BeforeTool, GateAnswer, GateTool
from wakeful.types.copies import copy_mutable
from wakeful.types.events import MessageAdded, MessagesSnapshot, ToolCallReady


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryStore | Path:
    return MemoryStore() if request.param == "memory" else tmp_path / "app.db"


WANTED = {"order": 7, "lines": [{"item": "tea"}]}


def spoil(value: Any) -> None:
    """Change whatever can be changed."""
    if isinstance(value, dict):
        for item in value.values():  # pyright: ignore[reportUnknownVariableType]
            spoil(item)
        value["order"] = "spoiled"
    elif isinstance(value, list | tuple):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            spoil(item)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            spoil(getattr(value, name))


class Desk:
    """A tool that notes what it is given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def pay(self, **options: Any) -> Any:
        @tool(**options)
        async def pay(order: Any, lines: list[Any]) -> ToolResult:
            """Pay for an order."""
            self.given.append({"order": order, "lines": lines})
            return ToolResult(data="paid", message="paid", metadata={"order": 7})

        return pay


READS: list[Callable[[Runtime, str], Any]] = [
    lambda runtime, run_id: runtime.threads.messages("t"),
    lambda runtime, run_id: runtime.runs.get(run_id),
    lambda runtime, run_id: runtime.runs.list(),
    lambda runtime, run_id: runtime.runs.calls(run_id),
    lambda runtime, run_id: runtime.runs.ledger(run_id),
    lambda runtime, run_id: runtime.tickets.list(run_id),
    lambda runtime, run_id: runtime.tickets.list(),
    lambda runtime, run_id: runtime.threads.get("t"),
    lambda runtime, run_id: runtime.threads.list(),
    lambda runtime, run_id: runtime.runs.result(run_id),
]


async def logged(runtime: Runtime, **options: Any) -> list[Any]:
    return [event async for event in runtime.events("t", follow=False, **options)]


async def test_reader_changes_stay_in_its_event_copy(scripted: Scripted, store: MemoryStore | Path) -> None:
    desk = Desk()
    agent = Agent("desk", scripted(call("pay", **WANTED), "done"), tools=[desk.pay(approval=True)])
    async with Runtime([agent], store=store) as runtime:
        principal = Principal("ada", claims={"order": 1})
        waiting = await runtime.run("desk", "go", thread="t", principal=principal)
        await runtime.threads.describe("t", metadata={"order": 7})
        before = [await read(runtime, waiting.run_id) for read in READS]
        kept = copy_mutable(before), await logged(runtime), await logged(runtime, snapshot=True)
        spoil([before, waiting, await logged(runtime), await logged(runtime, snapshot=True)])
        assert [await read(runtime, waiting.run_id) for read in READS] == kept[0]
        assert await logged(runtime) == kept[1]
        await runtime.resume(waiting.run_id, waiting.tickets[0].approve())
        assert desk.given == [WANTED]
        told = (await runtime.threads.messages("t"))[2]
        spoil(told)
        again = (await runtime.threads.messages("t"))[2]
        assert again.reply is not None
        assert again.reply.metadata == {"order": 7}


async def test_follower_changes_stay_out_of_later_calls(scripted: Scripted, store: MemoryStore | Path) -> None:
    desk, hold = Desk(), Hold()

    @tool
    async def first() -> str:
        """Wait."""
        await hold.here()
        return "first"

    asked = [call("first"), call("pay", **WANTED)]
    agent = Agent("desk", scripted(asked, "done"), tools=[first, desk.pay()], sequential=True)
    async with Runtime([agent], store=store) as runtime:
        stream = runtime.stream("desk", "go", thread="t")
        async for event in stream:
            spoil(event)
            if isinstance(event, ToolCallReady) and event.name == "pay":
                break
        async for event in runtime.events("t", snapshot=True):
            spoil(event)
            if isinstance(event, MessagesSnapshot):
                break
        hold.released.set()
        async for event in stream:
            spoil(event)
        assert desk.given == [WANTED]
        answer = [e.message for e in await logged(runtime) if isinstance(e, MessageAdded)][1]
        assert answer.calls[1].arguments == WANTED


async def test_hook_changes_to_call_stay_out_of_tool(scripted: Scripted) -> None:
    class Careless(Plugin):
        async def gate_tool(self, ctx: GateTool) -> GateAnswer:
            spoil([ctx.call, ctx.arguments])
            return None

        async def before_tool(self, ctx: BeforeTool) -> None:
            spoil([ctx.call, ctx.arguments])

        async def after_tool(self, ctx: AfterTool) -> None:
            spoil([ctx.call, ctx.reply])

    desk = Desk()
    agent = Agent("desk", scripted(call("pay", **WANTED), "done"), tools=[desk.pay()], plugins=[Careless()])
    runtime = Runtime([agent], store=MemoryStore())
    result = await soon(runtime.run("desk", "go", thread="t"))
    (row,) = await runtime.runs.calls(result.run_id)
    _, answer, told, _ = await runtime.threads.messages("t")
    assert desk.given == [WANTED]
    assert row.arguments == answer.calls[0].arguments == WANTED
    assert told.reply is not None
    assert told.reply.metadata == {"order": 7}


def test_immutable_events_are_not_copied(scripted: Scripted) -> None:
    result = Runtime([Agent("desk", scripted("done"))]).run_sync("desk", "go")
    assert copy_mutable(result) is result
    assert copy_mutable(("a", 1, None)) == ("a", 1, None)


@pytest.mark.parametrize("value", [{}, [], {"a": [1]}, [{"a": 1}], ({},)])
def test_event_copy_is_equal_but_not_same(value: Any) -> None:
    copy = copy_mutable(value)
    assert copy == value
    assert copy is not value
