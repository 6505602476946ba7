"""A failed run raises `RunFailed` to its caller; one without a caller is logged."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from wakeful import (
    Agent,
    ModelError,
    Plugin,
    RunFailed,
    Runtime,
    ScriptedModel,
    TokenBudget,
    Turn,
    Usage,
    call,
    tool,
)
from wakeful.errors import BadCredentials, HookFailed, NoOutput
from wakeful.events import RunFinish, RunStart
from wakeful.models import forbid_live_models
from wakeful.types import Failed, Stopped


def failing(*before: Any, store: Any = None) -> Runtime:
    return Runtime([Agent("a", model=ScriptedModel([*before, ModelError("it broke")]), tools=[ask])], store=store)


@tool(approval=True)
async def ask() -> str:
    """Ask first."""
    return "asked"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def collect(events: Any, seen: list[Any]) -> None:
    async for event in events:
        seen.append(event)  # noqa: PERF401


# -- raising -------------------------------------------------------------------------------------------------


async def test_run_raises_failure_with_result_and_cause(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RunFailed, match=r"^run \S+ of a failed: ModelError: it broke$") as caught:
        await failing().run("a", "go")
    assert caught.value.result.termination == Failed("ModelError", "it broke")
    assert isinstance(caught.value.__cause__, ModelError)
    assert warnings(caplog) == []


def test_run_sync_and_resume_sync_raise_failure() -> None:
    with pytest.raises(RunFailed, match="it broke"):
        failing().run_sync("a", "go")
    runtime = failing(call("ask"))
    waiting = runtime.run_sync("a", "go")
    with pytest.raises(RunFailed, match="it broke"):
        runtime.resume_sync(waiting.run_id, waiting.tickets[0].approve())


async def test_failed_run_is_data_without_check() -> None:
    runtime = failing(call("ask"))
    waiting = await runtime.run("a", "go", check=False)
    assert waiting.status == "waiting"
    result = await runtime.resume(waiting.run_id, waiting.tickets[0].approve(), check=False)
    assert result.error == "ModelError: it broke"
    assert (await runtime.wait(result.run_id, check=False)).error == result.error
    assert (await runtime.runs.result(result.run_id)).error == result.error


async def test_waits_for_failed_run_raise() -> None:
    runtime = failing(call("ask"))
    waiting = await runtime.run("a", "go")
    with pytest.raises(RunFailed):
        await runtime.tickets.answer(waiting.tickets[0].id, True)
    with pytest.raises(RunFailed) as caught:
        await runtime.wait(waiting.run_id)
    assert isinstance(caught.value.__cause__, ModelError)
    with pytest.raises(RunFailed, match="ScriptError"):
        await runtime.runs.retry(waiting.run_id)


async def test_handle_raises_failure_of_earlier_run(tmp_path: Path) -> None:
    """The exception was raised in another process: nothing is chained."""
    async with failing(store=tmp_path / "a.db") as first:
        handle = await first.start("a", "go", request_id="one")
        with pytest.raises(RunFailed):
            await handle.result()
    async with failing(store=tmp_path / "a.db") as second:
        handle = await second.start("a", "go", request_id="one")
        with pytest.raises(RunFailed, match="ModelError: it broke") as caught:
            await handle.result()
        assert caught.value.__cause__ is None
        assert (await handle.result(check=False)).error == "ModelError: it broke"


async def test_stream_raises_failure_after_last_event() -> None:
    seen: list[Any] = []
    with pytest.raises(RunFailed, match="it broke"):
        await collect(failing().stream("a", "go"), seen)
    assert isinstance(seen[-1], RunFinish)
    seen = [event async for event in failing().stream("a", "go", check=False)]
    assert isinstance(seen[-1], RunFinish)


async def test_failing_hook_is_chained_with_its_cause() -> None:
    class Broken(Plugin):
        name = "broken"

        async def run_start(self, ctx: Any) -> None:
            raise KeyError("inside")

    with pytest.raises(RunFailed) as caught:
        await Runtime([Agent("a", model=ScriptedModel(["hi"]), plugins=[Broken()])]).run("a", "go")
    assert isinstance(caught.value.__cause__, HookFailed)
    assert isinstance(caught.value.__cause__.__cause__, KeyError)


async def test_stopped_and_cancelled_runs_return() -> None:
    dear = Turn(calls=(call("ask"),), usage=Usage(input_tokens=500))
    stopped = await Runtime([Agent("a", model=ScriptedModel([dear]), tools=[ask], stop=[TokenBudget(9)])]).run(
        "a", "go"
    )
    assert isinstance(stopped.termination, Stopped)
    with pytest.raises(NoOutput, match="stopped by token_budget"):
        _ = stopped.output
    runtime = failing(call("ask"))
    waiting = await runtime.run("a", "go")
    await runtime.cancel(waiting.run_id, "enough")
    with pytest.raises(NoOutput, match="cancelled: enough"):
        _ = (await runtime.wait(waiting.run_id)).output


async def test_output_is_text_without_output_type() -> None:
    assert (await Runtime([Agent("a", model=ScriptedModel(["hi"]))]).run("a", "go")).output == "hi"


def test_missing_key_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    runtime = Runtime([Agent("assistant", model="openai:gpt-5-mini")])
    before = forbid_live_models(False)
    try:
        with pytest.raises(RunFailed, match="set OPENAI_API_KEY in the environment") as caught:
            runtime.run_sync("assistant", "Weather in Paris?")
    finally:
        forbid_live_models(before)
    assert isinstance(caught.value.__cause__, BadCredentials)


# -- logging -------------------------------------------------------------------------------------------------


async def test_failure_without_caller_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    runtime = failing()
    async with runtime:
        handle = await runtime.start("a", "go")
        async with asyncio.timeout(60):
            async for event in handle.events():
                if isinstance(event, RunFinish):
                    break
    assert warnings(caplog) == [f"run {handle.run_id} of a failed: ModelError: it broke"]


async def test_failure_of_sent_input_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with failing() as runtime:
        await runtime.send("t", "go", agent="a")
        async with asyncio.timeout(60):
            async for event in runtime.events("t"):
                if isinstance(event, RunFinish):
                    break
    (message,) = warnings(caplog)
    assert message.endswith(" of a failed: ModelError: it broke")


async def test_awaited_start_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        await leave.wait()
        return ""

    model = ScriptedModel([call("wait"), ModelError("it broke")])
    async with Runtime([Agent("a", model=model, tools=[wait])]) as runtime:
        handle = await runtime.start("a", "go")
        await entered.wait()
        waiting = asyncio.create_task(handle.result())
        await asyncio.sleep(0)
        leave.set()
        with pytest.raises(RunFailed):
            await waiting
    assert warnings(caplog) == []


async def test_failure_after_left_stream_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with failing() as runtime:
        async with aclosing(cast(Any, runtime.stream("a", "go", thread="t"))) as events:
            async for event in events:
                if isinstance(event, RunStart):
                    break
        async with asyncio.timeout(60):
            async for event in runtime.events("t"):
                if isinstance(event, RunFinish):
                    break
    (message,) = warnings(caplog)
    assert message.endswith(" of a failed: ModelError: it broke")
