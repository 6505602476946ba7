"""Promises of the pages beyond their examples."""

from __future__ import annotations

import pytest

from wakeful import Agent, Plugin, Runtime, StateKey, Turn, call, tool
from wakeful.bus.local import MAX_BACKLOG
from wakeful.plugins import AfterTool, BeforeInference, GateTool
from wakeful.testing import Recorder
from wakeful.types.runs import Failed


@tool
async def ping() -> str:
    """Ping."""
    return "up"


@tool(approval=True)
async def reboot(host: str) -> str:
    """Reboot a host."""
    return f"{host} is back"


class Seen(Plugin):
    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str]] = []

    async def after_tool(self, ctx: AfterTool) -> None:
        self.outcomes.append((ctx.call.arguments["host"], ctx.outcome))


async def test_after_tool_sees_denied_and_answered_calls(scripted) -> None:
    wanted = [call("reboot", host=host) for host in ("a", "b", "c")]
    seen = Seen()
    agent = Agent("ops", model=scripted(wanted, "Done."), tools=[reboot], plugins=[seen])
    async with Runtime([agent]) as runtime:
        result = await runtime.run(agent, "Reboot all")
        a, b, c = result.tickets
        await runtime.resume(result.run_id, a.approve(), b.deny(), c.result("done by hand"))
    assert sorted(seen.outcomes) == [("a", "ok"), ("b", "blocked"), ("c", "ok")]


async def test_lagging_reader_loses_no_durable_event(scripted) -> None:
    model = scripted("Hello.", Turn(text=["x"] * (MAX_BACKLOG + 100)))
    async with Runtime([Agent("a", model=model)]) as runtime:
        await runtime.run("a", "Hi", thread="t1")
        seen = await Recorder().record(runtime.stream("a", "Go on", thread="t1"))
        log = [event async for event in runtime.events("t1", after=7, follow=False)]
    assert [event for event in seen.events if event.durable] == log
    assert [event.seq for event in seen.events] == sorted(event.seq for event in seen.events)


class Count(StateKey[int, int]):
    name = "count"
    default = 0


class Yes(Plugin):
    async def gate_tool(self, ctx: GateTool) -> bool:
        return True


class Writes(Plugin):
    keys = (Count,)

    async def gate_tool(self, ctx: GateTool) -> None:
        ctx.update(Count, 1)


@pytest.mark.parametrize(
    ("plugin", "told"),
    [(Yes(), "return None to allow the call"), (Writes(), "write in before_tool")],
)
async def test_invalid_gate_is_refused_with_advice(scripted, plugin, told) -> None:
    agent = Agent("a", model=scripted(call("ping")), tools=[ping], plugins=[plugin])
    async with Runtime([agent]) as runtime:
        result = await runtime.run(agent, "Ping", check=False)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "HookFailed"
    assert told in result.termination.message


async def test_requests_of_scripted_model_are_copies(scripted) -> None:
    model = scripted(call("ping"), "Up.")
    async with Runtime([Agent("a", model=model, tools=[ping])]) as runtime:
        await runtime.run("a", "Ping")
    assert [len(request.messages) for request in model.requests] == [1, 3]


async def test_failing_tool_changes_nothing(scripted) -> None:
    from wakeful import ToolContext

    @tool
    async def fails(ctx: ToolContext) -> str:
        """Fail."""
        ctx.update(Count, 1)
        ctx.end_run("never")
        raise ValueError("no")

    agent = Agent("a", model=scripted(call("fails"), "Sorry."), tools=[fails])
    async with Runtime([agent], keys=[Count]) as runtime:
        result = await runtime.run(agent, "Go")
        kinds = [event.type async for event in runtime.events(result.thread_id, follow=False)]
    assert result.text == "Sorry."
    assert "state_delta" not in kinds


async def test_call_of_unoffered_tool_does_not_run(scripted) -> None:
    class Hide(Plugin):
        async def before_inference(self, ctx: BeforeInference) -> None:
            ctx.plan.exclude_tools("ping")

    agent = Agent("a", model=scripted(call("ping"), "Right."), tools=[ping], plugins=[Hide()])
    async with Runtime([agent]) as runtime:
        result = await runtime.run(agent, "Ping")
        reply = (await runtime.threads.messages(result.thread_id))[2].reply
    assert reply is not None
    assert reply.error == "not_found"


async def test_question_of_delegate_is_answered_at_root(scripted) -> None:
    lead = Agent("lead", model=scripted(call("agent_run_ops", prompt="Reboot"), "It is up."), delegates=["ops"])
    ops = Agent("ops", model=scripted(call("reboot", host="a"), "Rebooted."), tools=[reboot])
    async with Runtime([lead, ops]) as runtime:
        waiting = await runtime.run(lead, "Reboot", thread="t1")
        (ticket,) = waiting.tickets
        assert (ticket.tool, ticket.run_id == waiting.run_id) == ("reboot", False)
        result = await runtime.resume(waiting.run_id, ticket.approve())
    assert result.text == "It is up."


async def test_queued_input_runs_when_waiting_run_is_done(scripted) -> None:
    agent = Agent("ops", model=scripted(call("reboot", host="a"), "Back.", "And hello."), tools=[reboot])
    async with Runtime([agent]) as runtime:
        first = await runtime.run(agent, "Reboot a", thread="t1")
        await runtime.send("t1", "Hello")
        (waiting,) = await runtime.runs.list(status="waiting")
        assert waiting.id == first.run_id
        await runtime.resume(first.run_id, first.tickets[0].approve())
        async for event in runtime.events("t1"):
            if event.type == "run_finish" and event.run_id != first.run_id:
                break
        assert [message.text for message in await runtime.threads.messages("t1")][-2:] == ["Hello", "And hello."]
