"""Stored values can always be read again: odd values of tools, hooks and callers are cleaned or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wakeful import (
    Agent,
    Decision,
    FunctionModel,
    Image,
    Plugin,
    RunResult,
    Runtime,
    Text,
    ToolContext,
    ToolResult,
    call,
    tool,
)
from wakeful.errors import InvalidDecision, InvalidInput, UsageError
from wakeful.types import Base64, Url
from wakeful.types.codec import encode
from wakeful.types.runs import Blocked, Cancelled

HALF = "a\ud83d"  # Half of a character, as from a text that was cut in the middle of one.
WHOLE = "a�"


def opened(path: Path, body: Callable[[ToolContext], Any], plugins: Any = (), **options: Any) -> Runtime:
    """An agent that calls a tool with this body, then says what the tool said."""

    @tool(effect="idempotent", **options)
    async def act(ctx: ToolContext) -> Any:
        """Act."""
        done = body(ctx)
        return await done if asyncio.iscoroutine(done) else done

    def answer(request: Any) -> Any:
        reply = request.messages[-1].reply
        return call("act") if reply is None else reply.content[0].text

    return Runtime([Agent("agent", model=FunctionModel(answer), tools=[act], plugins=plugins)], store=path)


async def read_again(path: Path, body: Callable[[ToolContext], Any], plugins: Any = ()) -> RunResult:
    """Run it in one process, and read all of it in the next; every event can be sent."""
    async with asyncio.timeout(120), opened(path, body, plugins) as runtime:
        async for event in runtime.stream("agent", "Go", thread="t", check=False):
            encode(event)
    async with opened(path, body, plugins) as runtime:
        (run,) = await runtime.runs.list()
        await runtime.runs.calls(run.id)
        assert [event async for event in runtime.events("t", follow=False)]
        return await runtime.runs.result(run.id)


# -- what a tool says ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (lambda ctx: ctx.end_run(5), "the reason to end a run is a text, not 5"),
        (lambda ctx: ctx.ask(5), "a question is a text, not 5"),
        (lambda ctx: ctx.stream(5), "what a tool streams is a text, not 5"),
        (lambda ctx: ctx.progress("half"), "progress is a fraction, such as 0.5, not 'half'"),
        (lambda ctx: ctx.progress(done=0.5), "done of a progress is a whole number, not 0.5"),
        (lambda ctx: ctx.activity("plan", object()), "an activity shows what can be JSON"),
        (lambda ctx: ctx.activity("plan", HALF), "an activity shows what can be JSON"),
        (lambda ctx: ctx.activity(5, []), "an activity's name is a text, not 5"),
        (lambda ctx: ctx.cancel_self(5), "the reason to cancel is a text, not 5"),
        (lambda ctx: ToolResult(message=5), "the message of a ToolResult is a text, not 5"),  # type: ignore[arg-type]
        (lambda ctx: ToolResult(metadata=[1]), "the metadata of a ToolResult is a dict, not [1]"),  # type: ignore[arg-type]
        (lambda ctx: Image(5), "the tool returned a part that isn't what it says: Image:"),  # type: ignore[arg-type]
        (lambda ctx: [Text("a"), Text(5)], "the tool returned a part that isn't what it says: Text:"),  # type: ignore[arg-type]
        (lambda ctx: Image(Url(HALF)), "the tool returned a part that isn't what it says: Image:"),
    ],
)
async def test_unencodable_tool_result_is_call_error(tmp_path: Path, body: Any, told: str) -> None:
    result = await read_again(tmp_path / "a.db", body)
    assert result.error is None
    assert told in result.text


async def test_lone_surrogate_from_tool_is_replaced(tmp_path: Path) -> None:
    ended = await read_again(tmp_path / "a.db", lambda ctx: ctx.end_run(HALF))
    assert getattr(ended.termination, "reason", "") == WHOLE
    asked = await read_again(tmp_path / "b.db", lambda ctx: ctx.ask(HALF))
    assert [ticket.message for ticket in asked.tickets] == [WHOLE]
    shown = await read_again(tmp_path / "c.db", lambda ctx: (ctx.stream(HALF), ctx.progress(0.5, message=HALF))[0])
    assert shown.error is None


# -- what a hook says ----------------------------------------------------------------------------------------


def hooked(phase: str, body: Callable[[Any], Any]) -> list[Plugin]:
    async def hook(self: Plugin, ctx: Any) -> Any:
        return body(ctx)

    return [type("Says", (Plugin,), {phase: hook})()]


@pytest.mark.parametrize(
    ("phase", "body", "told"),
    [
        ("run_start", lambda ctx: ctx.end_run(5), "the reason to end a run is a text, not 5"),
        ("gate_tool", lambda ctx: ctx.block(5), "the reason of a block is a text, not 5"),
        ("gate_tool", lambda ctx: ctx.suspend(5), "a question is a text, not 5"),
        (
            "before_inference",
            lambda ctx: ctx.plan.add_system(5),
            "to the system text is a text, not 5",
        ),
        ("before_inference", lambda ctx: setattr(ctx.plan, "model", 5), "by its name, is a text, not 5"),
        ("before_inference", lambda ctx: ctx.plan.exclude_tools(["act"]), "a tool's name is a text, not ['act']"),
        ("before_inference", lambda ctx: ctx.plan.include_only(["act"]), "a tool's name is a text, not ['act']"),
    ],
)
async def test_unencodable_hook_value_fails_hook_by_name(tmp_path: Path, phase: str, body: Any, told: str) -> None:
    result = await read_again(tmp_path / "a.db", lambda ctx: "done", hooked(phase, body))
    assert (result.error or "").startswith(f"HookFailed: plugin 'Says' failed in {phase}: UsageError: ")
    assert told in (result.error or "")


async def test_lone_surrogate_from_hook_is_replaced(tmp_path: Path) -> None:
    gates = hooked("gate_tool", lambda ctx: ctx.block(HALF, ends_run=True))
    blocked = await read_again(tmp_path / "a.db", lambda ctx: "done", gates)
    assert blocked.termination == Blocked(WHOLE)
    gates = hooked("gate_tool", lambda ctx: ctx.suspend(HALF))
    asked = await read_again(tmp_path / "b.db", lambda ctx: "done", gates)
    assert [ticket.message for ticket in asked.tickets] == [WHOLE]


# -- what a caller says --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [{"verdict": "aprove"}, {"reason": 5}, {"id": 5}, {"principal_id": 5}, {"id": HALF}, {"principal_id": HALF}],
)
async def test_unencodable_decision_changes_nothing(tmp_path: Path, wrong: Any) -> None:
    async with opened(tmp_path / "a.db", lambda ctx: "acted", approval=True) as runtime:
        waiting = await runtime.run("agent", "Go", thread="t")
        (ticket,) = waiting.tickets
        decision = Decision(ticket.id, **wrong)
        for answering in (runtime.resume(waiting.run_id, decision), runtime.tickets.submit(decision)):
            with pytest.raises((InvalidDecision, UsageError), match=next(iter(wrong)).removesuffix("_id")):
                await answering
        done = await runtime.resume(waiting.run_id, ticket.approve(True, reason=HALF))
        assert done.text == "acted"
        (kept,) = await runtime.tickets.decisions(ticket.id)
        assert kept.reason == WHOLE


async def test_reason_of_cancellation_is_text(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db", lambda ctx: ctx.ask("?")) as runtime:
        waiting = await runtime.run("agent", "Go", thread="t")
        with pytest.raises(UsageError, match="the reason to cancel is a text, not 5"):
            await runtime.cancel(waiting.run_id, 5)  # type: ignore[arg-type]
        assert await runtime.cancel(waiting.run_id, HALF)
        assert (await runtime.runs.result(waiting.run_id)).termination == Cancelled(WHOLE)


@pytest.mark.parametrize("part", [Image(5), Image(Base64("image/png", 5)), Image(Url(HALF)), Text(5)])  # type: ignore[arg-type]
async def test_input_part_type_is_checked(tmp_path: Path, part: Any) -> None:
    async with opened(tmp_path / "a.db", lambda ctx: "done") as runtime:
        with pytest.raises(InvalidInput, match=f"a part that isn't what it says: {type(part).__name__}"):
            await runtime.run("agent", [part], thread="t")
        assert not await runtime.runs.list()


async def test_id_with_lone_surrogate_is_unknown(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db", lambda ctx: "done") as runtime:
        for calling in (
            runtime.runs.get(HALF),
            runtime.threads.messages(HALF),
            runtime.tickets.answer(HALF, True),
            runtime.run("agent", "Go", request_id=HALF),
        ):
            with pytest.raises(UsageError, match="has half a character in it"):
                await calling
        with pytest.raises(UsageError, match="has half a character in it"):
            runtime.tenant(HALF)
