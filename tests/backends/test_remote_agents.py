"""Requests and results of backends, and their agents beside other agents."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from loop.helpers import (
    Hold,
    assert_settled,
    events_of,
    replies_on,
    reply_text,
    soon,
)
from loop.helpers import Scripted as Models
from wakeful import Agent, Document, Image, Limits, ModelSettings, Runtime, ToolContext, call, tool
from wakeful.backends import (
    BackendOutput,
    BackendResult,
    Capabilities,
    WaitingInput,
)
from wakeful.errors import ExecutionFailed
from wakeful.types import Artifact, Url
from wakeful.types.content import Base64
from wakeful.types.events import (
    ErrorRaised,
    Handoff,
)
from wakeful.types.runs import Cancelled, Failed, NaturalEnd, Stopped

from .helpers import REMOTE, Scripted, serving

FULL = msgspec.structs.replace(REMOTE, transcript="full")


# -- requests and results -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transcript", "messages"),
    [("full", ["one", "answer 1", "two"]), ("incremental", ["two"]), ("single_prompt", ["two"])],
)
async def test_request_has_declared_transcript(transcript: Any, messages: list[str]) -> None:
    capabilities = msgspec.structs.replace(REMOTE, transcript=transcript)
    backend = Scripted("answer 1", "answer 2", capabilities=capabilities)
    runtime = serving(backend)
    for text in ("one", "two"):
        await runtime.run("far", text, thread="t")
    assert [m.text for m in backend.requests[1].messages] == messages
    assert [m.text for m in backend.requests[1].new_messages] == ["two"]


async def test_prompt_has_messages_since_the_last_attempt() -> None:
    """A failed prompt isn't repeated in the next one, whatever failed it."""
    hold = Hold()
    backend = Scripted(ExecutionFailed("boom"), stuck(hold), BackendResult("far"), "ok", "fine")
    runtime = serving(backend)
    await runtime.run("far", "one", thread="t", check=False)
    handle = await runtime.start("far", "two", thread="t")
    await soon(hold.reached.wait())
    await handle.cancel()
    refused = ModelSettings(temperature=1)  # Never sent.
    await runtime.run("far", "three", thread="t", settings=refused, check=False)
    for text in ("four", "five", "six"):
        await runtime.run("far", text, thread="t")
    prompts = [[message.text for message in request.messages] for request in backend.requests]
    assert prompts == [["one"], ["two"], ["three\n\nfour"], ["five"], ["six"]]


async def test_retried_run_sends_its_prompt_again() -> None:
    backend = Scripted(ExecutionFailed("boom"), "ok")
    runtime = serving(backend)
    failed = await runtime.run("far", "one", thread="t", check=False)
    assert (await runtime.runs.retry(failed.run_id)).text == "ok"
    assert [m.text for m in backend.requests[1].messages] == ["one"]


async def test_full_transcript_has_failed_prompts() -> None:
    backend = Scripted(
        ExecutionFailed("boom"), "ok", capabilities=msgspec.structs.replace(REMOTE, transcript="full")
    )
    runtime = serving(backend)
    for text in ("one", "two"):
        await runtime.run("far", text, thread="t", check=False)
    request = backend.requests[1]
    assert [m.text for m in request.messages] == ["one", "two"]
    assert [m.text for m in request.new_messages] == ["two"]


async def test_files_are_in_message_and_result() -> None:
    made = (
        Artifact({"bytes": "aGk="}, name="pic", media_type="image/png"),
        Artifact({"uri": "https://x/y.pdf"}, name="paper", media_type="application/pdf"),
        Artifact(Url("https://x/z.png"), media_type="image/png"),
        Artifact({"n": 1}, id="data"),
    )
    result = BackendResult("far", response="here", output=BackendOutput(artifacts=made))
    runtime = serving(Scripted(result, capabilities=REMOTE))
    result = await runtime.run("far", "hi", thread="t")
    assert list((await runtime.threads.messages("t"))[-1].content)[1:] == [
        Image(Base64("image/png", "aGk=")),
        Document(Url("https://x/y.pdf", "application/pdf"), "paper"),
        Image(Url("https://x/z.png", "image/png")),
    ]
    assert [a.name or a.id for a in result.artifacts] == ["pic", "paper", None, "data"]


async def test_large_output_is_stored_without_contents() -> None:
    big = Artifact({"bytes": "x" * 300_000}, name="big", media_type="image/png")
    result = BackendResult("far", response="here", output=BackendOutput(artifacts=(big,)))
    runtime = serving(Scripted(result, capabilities=REMOTE))
    result = await runtime.run("far", "hi", thread="t")
    assert result.termination == NaturalEnd()
    assert [(a.name, a.content) for a in result.artifacts] == [("big", None)]
    assert isinstance((await runtime.threads.messages("t"))[-1].content[1], Image)  # The message has the contents.
    assert [e.source for e in await events_of(runtime, "t", ErrorRaised)] == ["backend"]


class Colour(msgspec.Struct):
    """A colour."""

    name: str


async def test_typed_answer_is_parsed_and_repaired() -> None:
    backend = Scripted("red", '{"name": "red"}', capabilities=REMOTE)
    runtime = Runtime([Agent("far", backend=backend, output=Colour)])
    result = await runtime.run("far", "which?", thread="t")
    assert (result.output, result.termination) == (Colour("red"), NaturalEnd())
    assert "doesn't fit the required output" in backend.requests[1].new_messages[0].text
    assert (await runtime.wait(result.run_id)).output == Colour("red")


async def test_stateless_backend_is_not_asked_for_repair() -> None:
    backend = Scripted("red")
    result = await Runtime([Agent("far", backend=backend, output=Colour)]).run("far", "which?", check=False)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "OutputInvalid"


# -- other agents --------------------------------------------------------------------------------------------


async def test_child_run_is_a_delegate_request_with_parent(scripted: Models) -> None:
    backend = Scripted("42")
    lead = Agent("lead", scripted(call("agent_run_far", prompt="6 x 7?"), "It is 42."), delegates=["far"])
    runtime = Runtime([lead, Agent("far", backend=backend)])
    result = await runtime.run("lead", "go", thread="t")
    assert result.text == "It is 42."
    (request,) = backend.delegated
    (made,) = await runtime.runs.calls(result.run_id)
    assert request.parent.run_id == result.run_id
    assert (request.parent.thread_id, request.parent.call_id) == ("t", made.id)
    assert [m.text for m in request.messages] == ["6 x 7?"]
    (reply,) = await replies_on(runtime, "t")
    assert reply_text(reply) == "42"


async def test_tool_runs_agent_with_backend(scripted: Models) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask far."""
        return (await ctx.run_agent("far", "6 x 7?")).text

    near = Agent("near", scripted(call("ask"), "done"), tools=[ask])
    runtime = Runtime([near, Agent("far", backend=Scripted("42"))])
    await runtime.run("near", "go", thread="t")
    assert [reply_text(r) for r in await replies_on(runtime, "t")] == ["42"]


@pytest.mark.parametrize("capabilities", [REMOTE, FULL])
async def test_handoff_to_agent_with_backend(scripted: Models, capabilities: Capabilities) -> None:
    backend = Scripted("I have it", capabilities=capabilities)
    near = Agent("near", scripted(call("handoff_to_far")), handoffs=["far"])
    runtime = Runtime([near, Agent("far", backend=backend)])
    result = await runtime.run("near", "go", thread="t")
    assert (result.agent_id, result.text) == ("far", "I have it")
    assert [m.role for m in backend.requests[0].messages] == ["user", "assistant", "tool"]
    await assert_settled(runtime, "t")


async def test_handoff_is_refused_when_backend_sees_no_history(scripted: Models) -> None:
    @tool
    async def pass_on(ctx: ToolContext) -> str:
        """Hand off directly."""
        ctx.handoff("far")
        return "passed on"

    backend = Scripted()
    model = scripted(call("handoff_to_far"), call("pass_on"), "I go on myself")
    runtime = Runtime([Agent("near", model, handoffs=["far"], tools=[pass_on]), Agent("far", backend=backend)])
    result = await runtime.run("near", "go", thread="t")
    assert (result.agent_id, result.text) == ("near", "I go on myself")
    refused, _ = await replies_on(runtime, "t")
    assert refused.error == "denied"
    assert "its backend takes a single prompt" in reply_text(refused)
    assert await events_of(runtime, "t", Handoff) == []
    assert backend.requests == []
    (noted,) = await events_of(runtime, "t", ErrorRaised)
    assert noted.source == "handoff"


async def test_limits_apply_to_agent_with_backend() -> None:
    ask = BackendResult("far", WaitingInput("Which?"))
    agent = Agent("far", backend=Scripted(ask, ask, capabilities=REMOTE), limits=Limits(steps=2))
    runtime = Runtime([agent])
    result = await runtime.run("far", "hi")
    for _ in range(2):
        result = await runtime.resume(result.run_id, result.tickets[0].answer("x"))
    assert isinstance(result.termination, Stopped)
    assert result.termination.policy == "max_steps"


def stuck(hold: Hold) -> Any:
    async def run(request: Any) -> BackendResult:
        await request.save({"task": "T1"})
        await hold.here()
        return BackendResult("far")

    return run


async def test_cancellation_reaches_backend_of_child(scripted: Models) -> None:
    hold = Hold()
    backend = Scripted(stuck(hold), capabilities=REMOTE)
    lead = Agent("lead", scripted(call("agent_run_far", prompt="go")), delegates=["far"])
    runtime = Runtime([lead, Agent("far", backend=backend)])
    handle = await runtime.start("lead", "go", thread="t")
    await soon(hold.reached.wait())
    assert await soon(handle.cancel())
    (abort,) = backend.aborts
    assert abort.state == {"task": "T1"}
    assert abort.parent is not None
    assert abort.parent.run_id == handle.run_id
    assert {type(run.outcome.termination) for run in await runtime.runs.list() if run.outcome} == {Cancelled}


def asking_child(scripted: Models, *turns: Any) -> tuple[Runtime, Scripted]:
    asked = BackendResult("far", WaitingInput("Which?"), state={"task": "T1"})
    backend = Scripted(asked, *turns[:1], capabilities=REMOTE)
    lead = Agent("lead", scripted(call("agent_run_far", prompt="go"), *turns[1:]), delegates=["far"])
    return Runtime([lead, Agent("far", backend=backend)]), backend


async def test_question_of_child_is_answered_at_parent(scripted: Models) -> None:
    runtime, backend = asking_child(scripted, "Red it is.", "It will be red.")
    result = await runtime.run("lead", "go", thread="t")
    (ticket,) = result.tickets
    assert (result.status, ticket.asked_by, ticket.message) == ("waiting", "remote", "Which?")
    result = await runtime.resume(result.run_id, ticket.answer("red"))
    assert result.text == "It will be red."
    again = backend.delegated[1]
    assert (again.is_continuation, again.state) == (True, {"task": "T1"})
    assert [reply_text(r) for r in await replies_on(runtime, "t")] == ["Red it is."]


async def test_cancellation_aborts_waiting_child(scripted: Models) -> None:
    runtime, backend = asking_child(scripted)
    result = await runtime.run("lead", "go", thread="t")
    assert await runtime.cancel(result.run_id)
    assert [abort.state for abort in backend.aborts] == [{"task": "T1"}]


async def test_close_aborts_remote_work() -> None:
    hold = Hold()
    backend = Scripted(stuck(hold), capabilities=REMOTE)
    runtime = serving(backend)
    await runtime.start("far", "hi")
    await soon(hold.reached.wait())
    await soon(runtime.close())
    assert len(backend.aborts) == 1


async def test_steering_input_is_the_next_request() -> None:
    hold = Hold()

    async def first(request: Any) -> BackendResult:
        await hold.here()
        return BackendResult("far", response="one")

    backend = Scripted(first, "two", capabilities=REMOTE)
    runtime = serving(backend)
    handle = await runtime.start("far", "hi", thread="t")
    await soon(hold.reached.wait())
    await runtime.send("t", "and this", policy="steer")
    hold.released.set()
    assert (await soon(handle.result())).text == "two"
    assert [m.text for m in backend.requests[1].new_messages] == ["and this"]
