"""The log: no errors that a caller gets anyway, and each traceback once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, holding, soon, until
from wakeful import Agent, Capacity, FunctionModel, MemoryStore, Plugin, Runtime, ToolError, call, tool
from wakeful.errors import StoreError
from wakeful.plugins import Step


class Broken(MemoryStore):
    """A store that reads no messages once it is broken."""

    error: Exception | None = None

    async def messages(self, *args: Any, **options: Any) -> Any:
        if self.error is not None:
            raise self.error
        return await super().messages(*args, **options)


@tool
async def boom() -> str:
    """Fail."""
    raise KeyError("boom")


@tool
async def refuse() -> str:
    """Refuse."""
    raise ToolError("no")


class Failing(Plugin):
    async def run_start(self, ctx: Step) -> None:
        raise KeyError("hook")


def crash(_: Any) -> str:
    raise KeyError("model")


@pytest.mark.parametrize("kind", ["tool", "hook", "model"])
async def test_exposed_failure_is_logged_at_debug(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    agents = {
        "tool": lambda: Agent("agent", model=scripted(call("boom"), "ok"), tools=[boom], expose_errors=True),
        "hook": lambda: Agent("agent", model=scripted(), plugins=[Failing()], expose_errors=True),
        "model": lambda: Agent("agent", model=FunctionModel(crash), expose_errors=True),
    }
    with caplog.at_level(logging.DEBUG, "wakeful"):
        await Runtime([agents[kind]()]).run("agent", "go", check=False)
    (record,) = [r for r in caplog.records if r.exc_info is not None]
    assert (record.name, record.levelname) == ("wakeful", "DEBUG")
    assert caplog.text.count("Traceback") == (2 if kind == "hook" else 1)  # The hook's own, and ours around it.
    assert [r for r in caplog.records if r.levelno > logging.DEBUG] == []


async def test_intended_tool_error_is_not_logged(scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "wakeful"):
        await Runtime([Agent("agent", model=scripted(call("refuse"), "ok"), tools=[refuse])]).run("agent", "go")
    assert caplog.text == ""


async def test_error_raised_to_starter_is_not_logged(scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    store = Broken()
    runtime = Runtime([Agent("agent", model=scripted("one"))], store=store)
    await runtime.run("agent", "go", thread="t")
    store.error = OSError("disk on fire")
    with pytest.raises(OSError, match="disk on fire"):
        await runtime.start("agent", "two", thread="t")
    await until(lambda: not runtime._scope.dispatch.tasks)
    assert caplog.text == ""


@pytest.mark.parametrize("running", [None, 1])
async def test_error_raised_to_queued_caller_is_not_logged(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, running: int | None
) -> None:
    hold, store = Hold(), Broken()
    agent = Agent("agent", model=scripted(call("wait"), "one"), tools=[holding(hold)])
    async with Runtime([agent], store=store, capacity=Capacity(running=running)) as runtime:
        first = asyncio.create_task(runtime.run("agent", "one", thread="t"))
        await soon(hold.reached.wait())
        second = asyncio.create_task(runtime.run("agent", "two", thread="t"))
        while not await runtime.mail.pending("t"):
            await asyncio.sleep(0)
        store.error = OSError("disk on fire")
        hold.released.set()
        await soon(first)
        with pytest.raises(OSError, match="disk on fire"):
            await soon(second)
        await until(lambda: not runtime._scope.dispatch.tasks)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("error", "level", "tracebacks"),
    [(OSError("disk on fire"), "ERROR", 1), (StoreError("disk on fire"), "WARNING", 0)],
)
async def test_unobserved_error_is_logged_once(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, error: Exception, level: str, tracebacks: int
) -> None:
    store = Broken()
    runtime = Runtime([Agent("agent", model=scripted("one"))], store=store)
    await runtime.run("agent", "go", thread="t")
    store.error = error
    await runtime.send("t", "two")
    await until(lambda: not runtime._scope.dispatch.tasks)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("wakeful", level)
    assert "disk on fire" in record.getMessage()
    assert caplog.text.count("Traceback") == tracebacks
