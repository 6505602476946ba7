"""The text of an unexpected exception is for operators: the model and callers get its type and a reference."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.helpers import Scripted
from wakeful import (
    Agent,
    FunctionModel,
    Plugin,
    RunFailed,
    Runtime,
    ScriptedModel,
    StateKey,
    ToolContext,
    ToolError,
    call,
    task,
    tool,
)
from wakeful.plugins import GateAnswer, GateTool, Step, action

SECRET = "password=hunter2"


@tool
async def broken() -> str:
    """Break."""
    raise ValueError(SECRET)


class BrokenHook(Plugin):
    name = "broken"

    async def before_inference(self, ctx: Any) -> None:
        raise ValueError(SECRET)


async def break_model(request: Any) -> str:
    raise ValueError(SECRET)


def by_tool(**options: Any) -> Agent:
    return Agent("a", model=ScriptedModel([call("broken"), "done"]), tools=[broken], **options)


def by_hook(**options: Any) -> Agent:
    return Agent("a", model=ScriptedModel(["done"]), plugins=[BrokenHook()], **options)


def by_model(**options: Any) -> Agent:
    return Agent("a", model=FunctionModel(break_model), **options)


def by_backend(**options: Any) -> Agent:
    return Agent("a", backend=Scripted(ValueError(SECRET)), **options)


class Total(StateKey[int, int]):
    name = "total"
    default = 0

    def apply(self, value: int, update: int) -> int:
        raise ValueError(SECRET)


class Unshowable:
    def model_dump(self, mode: str) -> Any:
        raise ValueError(SECRET)


@dataclass
class Order:
    item: str

    def __post_init__(self) -> None:
        raise ArithmeticError(SECRET)  # A ValueError would speak to the model.


def by_reducer(**options: Any) -> Agent:
    class Adds(Plugin):
        keys = (Total,)

        async def step_start(self, ctx: Step) -> None:
            ctx.update(Total, 1)

    return Agent("a", model=ScriptedModel(["done"]), plugins=[Adds()], **options)


def by_tool_update(**options: Any) -> Agent:
    @tool
    async def adds(ctx: ToolContext) -> None:
        """Add."""
        ctx.update(Total, 1)

    class Keys(Plugin):
        keys = (Total,)

    return Agent("a", model=ScriptedModel([call("adds"), "done"]), tools=[adds], plugins=[Keys()], **options)


def by_action(**options: Any) -> Agent:
    class Acts(Plugin):
        async def run_start(self, ctx: Step) -> None:
            ctx.schedule("act", 1, phase="step_start")

        @action("act")
        async def act(self, payload: int, ctx: Step) -> None:
            raise msgspec.ValidationError(SECRET)

    return Agent("a", model=ScriptedModel(["done"]), plugins=[Acts()], **options)


def by_result(**options: Any) -> Agent:
    @tool
    async def returns() -> Unshowable:
        """Return."""
        return Unshowable()

    return Agent("a", model=ScriptedModel([call("returns"), "done"]), tools=[returns], **options)


def by_gate(**options: Any) -> Agent:
    class Gates(Plugin):
        async def gate_tool(self, ctx: GateTool) -> GateAnswer:
            return ctx.supply(Unshowable())

    return Agent("a", model=ScriptedModel([call("broken"), "done"]), tools=[broken], plugins=[Gates()], **options)


def by_argument(**options: Any) -> Agent:
    @tool
    async def orders(order: Order) -> None:
        """Order."""

    model = ScriptedModel([call("orders", order={"item": "tea"}), "done"])
    return Agent("a", model=model, tools=[orders], **options)


WAYS = pytest.mark.parametrize(
    "make",
    [
        by_tool,
        by_hook,
        by_model,
        by_backend,
        by_reducer,
        by_tool_update,
        by_action,
        by_result,
        by_gate,
        by_argument,
    ],
)


async def visible(runtime: Runtime, run_id: str) -> str:
    """Everything that the model, readers of events and exports, and remote callers can see of a run."""
    result = await runtime.runs.result(run_id)
    record = await runtime.runs.get(run_id)
    parts: list[Any] = [
        result,
        record,
        await runtime.runs.tree(run_id),
        list(await runtime.runs.list()),
        list(await runtime.runs.calls(run_id)),
        list(await runtime.threads.messages(record.thread_id)),
        [event async for event in runtime.events(record.thread_id, follow=False)],
        [line async for line in runtime.threads.export(record.thread_id)],
    ]
    return msgspec.json.encode(parts, enc_hook=repr).decode() + repr(parts)


@WAYS
async def test_text_is_hidden_and_kept_for_operators(
    make: Callable[..., Agent], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Runtime([make()], store=tmp_path / "a.db") as runtime:
        result = await runtime.run("a", "go", check=False)
        shown = await visible(runtime, result.run_id)
        assert SECRET not in shown
        (detail,) = await runtime.runs.errors(result.run_id)
        assert SECRET in detail.text
        assert re.search("(Value|Arithmetic|Validation)Error", shown)
        assert f"unexpected error, reference {detail.reference}" in shown
        logged = [record for record in caplog.records if detail.reference in record.getMessage()]
        assert [record.levelno for record in logged] == [logging.WARNING]
        assert SECRET in caplog.text


@WAYS
async def test_expose_errors_shows_text(make: Callable[..., Agent]) -> None:
    runtime = Runtime([make(expose_errors=True)])
    result = await runtime.run("a", "go", check=False)
    assert SECRET in await visible(runtime, result.run_id)
    assert not await runtime.runs.errors(result.run_id)


async def test_developer_gets_original_exception() -> None:
    with pytest.raises(RunFailed) as caught:
        await Runtime([by_hook()]).run("a", "go")
    assert SECRET not in str(caught.value)
    assert SECRET in str(caught.value.__cause__)


async def test_tool_error_speaks_to_model() -> None:
    @tool
    async def refuse() -> str:
        """Refuse."""
        raise ToolError("the account is closed")

    runtime = Runtime([Agent("a", model=ScriptedModel([call("refuse"), "done"]), tools=[refuse])])
    result = await runtime.run("a", "go")
    assert "the account is closed" in await visible(runtime, result.run_id)
    assert not await runtime.runs.errors(result.run_id)


async def test_record_keeps_last_errors_only() -> None:
    turns = [[call("broken"), call("broken")] for _ in range(12)]
    runtime = Runtime([Agent("a", model=ScriptedModel([*turns, "done"]), tools=[broken])])
    result = await runtime.run("a", "go")
    assert len(await runtime.runs.errors(result.run_id)) == 16


async def test_function_task_hides_text() -> None:
    @task
    async def fails() -> None:
        raise ValueError(SECRET)

    async with Runtime([by_tool()], tasks=[fails]) as runtime:
        handle = await runtime.tasks.spawn(fails)
        result = await handle.result(check=False)
        assert SECRET not in await visible(runtime, result.run_id)
        (detail,) = await runtime.runs.errors(result.run_id)
        assert (detail.source, detail.text) == ("task fails", f"ValueError: {SECRET}")


async def test_logged_text_has_no_lone_surrogates(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def reads() -> str:
        """Read."""
        raise OSError("no file caf\udce9")

    runtime = Runtime([Agent("a", model=ScriptedModel([call("reads"), "done"]), tools=[reads])])
    await runtime.run("a", "go")
    assert "OSError: no file caf\ufffd" in caplog.text
    assert caplog.text.encode()


async def test_unreadable_argument_ends_call_not_run() -> None:
    result = await Runtime([by_argument()]).run("a", "go")
    assert result.text == "done"
