"""What is read belongs to the reader: changing it changes neither the run nor what others read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from loop.helpers import Hold, Scripted, soon
from wakeful import (
    AfterTool,
    Agent,
    BeforeTool,
    GateAnswer,
    GateTool,
    MemoryStore,
    Plugin,
    Principal,
    Runtime,
    ToolResult,
    call,
    tool,
)
from wakeful.types.copies import own
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
    lambda runtime, run_id: runtime.messages("t"),
    lambda runtime, run_id: runtime.get_run(run_id),
    lambda runtime, run_id: runtime.list_runs(),
    lambda runtime, run_id: runtime.calls(run_id),
    lambda runtime, run_id: runtime.ledger(run_id),
    lambda runtime, run_id: runtime.tickets(run_id),
    lambda runtime, run_id: runtime.tickets(),
    lambda runtime, run_id: runtime.get_thread("t"),
    lambda runtime, run_id: runtime.threads(),
    lambda runtime, run_id: runtime.result(run_id),
]


async def logged(runtime: Runtime, **options: Any) -> list[Any]:
    return [event async for event in runtime.events("t", follow=False, **options)]


async def test_what_a_reader_changes_reaches_neither_the_tool_nor_other_readers(
    scripted: Scripted, store: MemoryStore | Path
) -> None:
    desk = Desk()
    agent = Agent("desk", scripted(call("pay", **WANTED), "done"), tools=[desk.pay(approval=True)])
    async with Runtime([agent], store=store) as runtime:
        principal = Principal("ada", claims={"order": 1})
        waiting = await runtime.run("desk", "go", thread="t", principal=principal)
        await runtime.describe("t", metadata={"order": 7})
        before = [await read(runtime, waiting.run_id) for read in READS]
        kept = own(before), await logged(runtime), await logged(runtime, snapshot=True)
        spoil([before, waiting, await logged(runtime), await logged(runtime, snapshot=True)])
        assert [await read(runtime, waiting.run_id) for read in READS] == kept[0]
        assert await logged(runtime) == kept[1]
        await runtime.resume(waiting.run_id, waiting.tickets[0].approve())
        assert desk.given == [WANTED]
        told = (await runtime.messages("t"))[2]
        spoil(told)
        again = (await runtime.messages("t"))[2]
        assert again.reply is not None
        assert again.reply.metadata == {"order": 7}


async def test_what_a_follower_changes_reaches_no_call_that_comes_later(
    scripted: Scripted, store: MemoryStore | Path
) -> None:
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


async def test_what_a_hook_changes_in_a_call_reaches_no_tool(scripted: Scripted) -> None:
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
    (row,) = await runtime.calls(result.run_id)
    _, answer, told, _ = await runtime.messages("t")
    assert desk.given == [WANTED]
    assert row.arguments == answer.calls[0].arguments == WANTED
    assert told.reply is not None
    assert told.reply.metadata == {"order": 7}


def test_what_has_nothing_to_change_is_not_copied(scripted: Scripted) -> None:
    result = Runtime([Agent("desk", scripted("done"))]).run_sync("desk", "go")
    assert own(result) is result
    assert own(("a", 1, None)) == ("a", 1, None)


@pytest.mark.parametrize("value", [{}, [], {"a": [1]}, [{"a": 1}], ({},)])
def test_a_copy_is_equal_and_another(value: Any) -> None:
    copy = own(value)
    assert copy == value
    assert copy is not value
