"""Spans of runs that wait, change processes, and delegate: each activation has its own, in one trace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode
from recorded import Recorded, attribute, linked_ids, parent_id, span_id, trace_id

from wakeful import (
    Agent,
    Compaction,
    Delegate,
    Runtime,
    ScriptedModel,
    ToolContext,
    Turn,
    Usage,
    WindowPolicy,
    call,
    tool,
)
from wakeful.events import RunFinish
from wakeful.server import app

HERE = Path(__file__).parent


@tool(effect="idempotent")
async def pay(ctx: ToolContext, amount: int) -> str:
    """Pay."""
    return f"paid {amount}" if ctx.ask("Really?") else "not paid"


def payer() -> Agent[str]:
    """A scripted model for one process: it answers by what it is shown."""
    return Agent("payer", model=ScriptedModel([call("pay", amount=5), "Done."]), tools=[pay])


def resumed_payer() -> Agent[str]:
    return Agent("payer", model=ScriptedModel(["Done."]), tools=[pay])


async def test_parked_run_ends_its_spans(tmp_path: Path) -> None:
    recorded = Recorded()
    async with recorded.runtime(payer(), store=tmp_path / "t.db") as runtime:
        result = await runtime.run("payer", "Pay 5.")
        assert result.status == "waiting"
        run, parked = recorded.one("invoke_agent payer"), recorded.one("execute_tool pay")
    assert attribute(run, "wakeful.status") == "waiting"
    assert attribute(run, "wakeful.waits_for") == "user_input"
    assert attribute(parked, "wakeful.call.state") == "asked"
    assert {span.status.status_code for span in recorded.spans} == {StatusCode.UNSET}


async def test_resumed_run_continues_the_trace_in_another_process(tmp_path: Path) -> None:
    first, second = Recorded(), Recorded()
    async with first.runtime(payer(), store=tmp_path / "t.db") as runtime:
        waiting = await runtime.run("payer", "Pay 5.")
    async with second.runtime(resumed_payer(), store=tmp_path / "t.db") as runtime:
        with second.tracer.start_as_current_span("approval") as approval:
            done = await runtime.resume(waiting.run_id, answers={waiting.tickets[0].id: True})
        assert done.text == "Done."
    before, after = first.one("invoke_agent payer"), second.one("invoke_agent payer")
    assert trace_id(before) == trace_id(after)
    assert parent_id(after) == span_id(before)
    # It links to the activation before it and to the answer.
    assert linked_ids(after) == {span_id(before), approval.get_span_context().span_id}
    assert attribute(after, "wakeful.trigger") == "resume"
    again = second.one("execute_tool pay")
    assert attribute(again, "wakeful.attempt") == 2
    assert parent_id(again) == span_id(after)
    assert attribute(again, "gen_ai.tool.call.id") == attribute(
        first.one("execute_tool pay"), "gen_ai.tool.call.id"
    )


async def test_every_activation_links_to_the_one_before(tmp_path: Path) -> None:
    @tool(effect="pure")
    async def ask_twice(ctx: ToolContext) -> str:
        """Ask."""
        return f"{ctx.ask('One?')} {ctx.ask('Two?')}"

    recorded = Recorded()
    model = ScriptedModel([call("ask_twice"), "Done."])
    async with recorded.runtime(Agent("a", model=model, tools=[ask_twice]), store=tmp_path / "t.db") as runtime:
        result = await runtime.run("a", "Go.")
        for answer in ("yes", "no"):
            result = await runtime.resume(result.run_id, answers={result.tickets[0].id: answer})
    one, two, three = recorded.named("invoke_agent a")
    assert parent_id(two) == parent_id(three) == span_id(one)
    assert [linked_ids(span) for span in (one, two, three)] == [set(), {span_id(one)}, {span_id(two)}]


PROCESS = """
import asyncio, os, sys
from wakeful import Agent, Runtime, ScriptedModel, call, tool
from opentelemetry.sdk.trace import TracerProvider
from wakeful.extensions.telemetry import Telemetry

@tool
async def charge() -> str:
    "Charge."
    print(flush=True)
    await asyncio.Event().wait()

async def main():
    model = ScriptedModel([call("charge")])
    telemetry = Telemetry(tracer_provider=TracerProvider())
    runtime = Runtime([Agent("a", model=model, tools=[charge])], store=sys.argv[1], telemetry=telemetry)
    await runtime.run("a", "go", thread="t")

asyncio.run(main())
"""


async def test_takeover_after_kill_continues_the_trace(tmp_path: Path) -> None:
    """The dead process's spans are lost, and what is in the store says so."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, str(tmp_path / "t.db"), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    process._transport.close()  # type: ignore[attr-defined]
    recorded = Recorded()

    @tool
    async def charge() -> str:
        """Charge."""
        return "charged"

    agent = Agent("a", model=ScriptedModel(["I don't know."]), tools=[charge])
    async with recorded.runtime(agent, store=tmp_path / "t.db") as runtime:
        (run,) = await runtime.runs.list(thread="t")
        await runtime.wait(run.id)
    after, lost = recorded.one("invoke_agent a"), recorded.one("execute_tool charge")
    assert [event.name for event in after.events] == ["wakeful.recovered"]
    assert attribute(after, "wakeful.trigger") == "recover"
    assert parent_id(after) is not None
    assert linked_ids(after) == {parent_id(after)}  # The lost activation was the first.
    assert attribute(lost, "error.type") == "unknown_outcome"
    assert (parent_id(lost), trace_id(lost)) == (span_id(after), trace_id(after))


async def test_sampling_decision_is_kept_with_the_run(tmp_path: Path) -> None:
    """Another process with another sampler follows the decision of the first."""
    first = Recorded(sampler=ParentBased(ALWAYS_OFF))
    second = Recorded(sampler=ParentBased(TraceIdRatioBased(1.0)))
    async with first.runtime(payer(), store=tmp_path / "t.db") as runtime:
        waiting = await runtime.run("payer", "Pay 5.")
    async with second.runtime(resumed_payer(), store=tmp_path / "t.db") as runtime:
        await runtime.resume(waiting.run_id, answers={waiting.tickets[0].id: True})
    assert first.spans == second.spans == []


# -- below a run ---------------------------------------------------------------------------------------------


def boss(*delegates: Any, script: Any, **options: Any) -> Agent[str]:
    return Agent("boss", model=ScriptedModel(script), delegates=[*delegates], **options)


def helper() -> Agent[str]:
    return Agent("helper", model=ScriptedModel([Turn(text="Help!", usage=Usage(input_tokens=3, output_tokens=1))]))


@pytest.mark.parametrize("durable", [False, True])
async def test_delegate_is_below_the_call_that_asked(tmp_path: Path, durable: bool) -> None:
    recorded = Recorded()
    leader = boss(Delegate("helper", durable=durable), script=[call("agent_run_helper", prompt="Go."), "Done."])
    async with recorded.runtime(leader, helper(), store=tmp_path / "t.db") as runtime:
        await runtime.run("boss", "Go.")
    calls, child = recorded.named("execute_tool agent_run_helper"), recorded.one("invoke_agent helper")
    assert parent_id(child) == span_id(calls[0])
    assert {trace_id(span) for span in recorded.spans} == {trace_id(child)}
    assert attribute(calls[0], "wakeful.call.state") == ("parked" if durable else "ok")


async def test_background_child_has_a_trace_of_its_own(tmp_path: Path) -> None:
    @tool
    async def start(ctx: ToolContext) -> str:
        """Start."""
        await ctx.spawn("helper", "Go.")
        return "started"

    recorded = Recorded()
    leader = Agent("boss", model=ScriptedModel([call("start"), "Done.", "Noted."]), tools=[start])
    async with recorded.runtime(leader, helper(), store=tmp_path / "t.db") as runtime:
        result = await runtime.run("boss", "Go.")
        await runtime.wait(result.run_id)
    child, caller = recorded.one("invoke_agent helper"), recorded.one("execute_tool start")
    assert parent_id(child) is None
    assert trace_id(child) != trace_id(caller)
    assert linked_ids(child) == {span_id(caller)}


async def test_handoff_begins_another_span(tmp_path: Path) -> None:
    recorded = Recorded()
    first = Agent("front", model=ScriptedModel([call("handoff_to_back")]), handoffs=["back"])
    back = Agent("back", model=ScriptedModel(["Done."]))
    async with recorded.runtime(first, back, store=tmp_path / "t.db") as runtime:
        await runtime.run("front", "Go.")
    one, two = recorded.one("invoke_agent front"), recorded.one("invoke_agent back")
    assert parent_id(two) == span_id(one)
    assert [parent_id(chat) for chat in recorded.named("chat scripted")] == [span_id(one), span_id(two)]


async def test_message_starts_a_trace_that_links_to_its_sender() -> None:
    recorded = Recorded()
    async with recorded.runtime(helper()) as runtime:
        with recorded.tracer.start_as_current_span("sender") as sender:
            await runtime.send("inbox", "Hello.", agent="helper")
        async for event in runtime.events("inbox"):
            if isinstance(event, RunFinish):
                break
    run = recorded.one("invoke_agent helper")
    assert parent_id(run) is None
    assert linked_ids(run) == {sender.get_span_context().span_id}


async def test_worker_takes_the_trace_from_the_store(tmp_path: Path) -> None:
    """The caller's process executes nothing."""
    caller, worker = Recorded(), Recorded()
    store = tmp_path / "t.db"
    async with (
        caller.runtime(helper(), store=store, execute=False) as asking,
        worker.runtime(helper(), store=store),
    ):
        with caller.tracer.start_as_current_span("request") as request:
            await asking.run("helper", "Go.")
    assert caller.named("invoke_agent helper") == []
    assert parent_id(worker.one("invoke_agent helper")) == request.get_span_context().span_id


# -- between services ----------------------------------------------------------------------------------------


async def test_http_request_is_the_parent_of_its_run() -> None:
    recorded = Recorded()
    trace, parent = "a" * 32, "b" * 16
    served = app(recorded.runtime(helper()))
    async with served.router.lifespan_context(served):
        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            response = await client.post(
                "/v1/runs",
                json={"agent": "helper", "input": "Go.", "wait": 10},
                headers={"traceparent": f"00-{trace}-{parent}-01"},
            )
            assert response.status_code < 300, response.text
    run = recorded.one("invoke_agent helper")
    assert (trace_id(run), parent_id(run)) == (int(trace, 16), int(parent, 16))


@asynccontextmanager
async def serving(served: Any) -> AsyncIterator[str]:
    """Serve an application on a free loopback port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(served, log_config=None, timeout_graceful_shutdown=1))
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign]
        task = asyncio.create_task(server.serve([sock]))
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


async def test_remote_agent_is_in_the_trace_of_its_caller() -> None:
    """The context is sent as W3C headers over A2A, and read by our server."""
    near, far = Recorded(), Recorded()
    async with serving(app(far.runtime(helper()))) as url:
        async with near.runtime(Agent.remote("helper", a2a=url, allow_private=True, timeout=20)) as runtime:
            result = await runtime.run("helper", "Go.")
        assert result.text == "Help!"
    caller, run = near.one("invoke_agent helper"), far.one("invoke_agent helper")
    assert caller.kind is SpanKind.CLIENT
    assert (trace_id(run), parent_id(run)) == (trace_id(caller), span_id(caller))


async def test_remote_agent_gets_no_headers_without_telemetry() -> None:
    far = Recorded()
    async with serving(app(far.runtime(helper()))) as url:
        await Runtime([Agent.remote("helper", a2a=url, allow_private=True, timeout=20)]).run("helper", "Go.")
    assert parent_id(far.one("invoke_agent helper")) is None


async def test_summary_has_a_span_of_its_own() -> None:
    recorded = Recorded()
    policy = WindowPolicy(max_tokens=400, compaction=Compaction(keep=1, model="house:brief"))
    brief = ScriptedModel([Turn(text="Short.", usage=Usage(input_tokens=90, output_tokens=2))] * 3, name="brief")
    agent = Agent("a", model=ScriptedModel(["word " * 120] * 6), window=policy)
    async with recorded.runtime(agent, models={"house": lambda name: brief}) as runtime:
        for _ in range(6):
            await runtime.run("a", "Go on. " * 20, thread="t")
    summary = recorded.named("chat brief")[0]
    assert attribute(summary, "wakeful.purpose") == "summary"
    assert attribute(summary, "gen_ai.usage.input_tokens") == 90
    assert parent_id(summary) in {span_id(span) for span in recorded.named("invoke_agent a")}
