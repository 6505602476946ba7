"""What a backend is sent and what comes back of it, and how agents with one work with others."""

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
from wakeful import (
    Agent,
    Artifact,
    Document,
    Image,
    Limits,
    Runtime,
    ToolContext,
    Url,
    call,
    tool,
)
from wakeful.backends import (
    BackendOutput,
    BackendResult,
    Capabilities,
    WaitingInput,
)
from wakeful.errors import ExecutionFailed
from wakeful.types.content import Base64
from wakeful.types.events import (
    ErrorRaised,
    Handoff,
)
from wakeful.types.runs import Cancelled, Failed, NaturalEnd, Stopped

from .helpers import REMOTE, Scripted, serving

FULL = msgspec.structs.replace(REMOTE, transcript="full")


# -- what is sent, and what comes back ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transcript", "messages"),
    [("full", ["one", "answer 1", "two"]), ("incremental", ["two"]), ("single_prompt", ["two"])],
)
async def test_what_a_backend_is_sent_of_a_conversation(transcript: Any, messages: list[str]) -> None:
    capabilities = msgspec.structs.replace(REMOTE, transcript=transcript)
    backend = Scripted("answer 1", "answer 2", capabilities=capabilities)
    runtime = serving(backend)
    for text in ("one", "two"):
        await runtime.run("far", text, thread="t")
    assert [m.text for m in backend.requests[1].messages] == messages
    assert [m.text for m in backend.requests[1].new_messages] == ["two"]


async def test_a_single_prompt_is_all_that_wasnt_answered() -> None:
    backend = Scripted(ExecutionFailed("boom"), "ok")
    runtime = serving(backend)
    for text in ("one", "two"):
        await runtime.run("far", text, thread="t")
    (prompt,) = backend.requests[1].messages
    assert (prompt.role, prompt.text) == ("user", "one\n\ntwo")


async def test_files_become_parts_of_the_message_and_all_of_it_is_in_the_result() -> None:
    made = (
        Artifact({"bytes": "aGk="}, name="pic", media_type="image/png"),
        Artifact({"uri": "https://x/y.pdf"}, name="paper", media_type="application/pdf"),
        Artifact(Url("https://x/z.png"), media_type="image/png"),
        Artifact({"n": 1}, id="data"),
    )
    runtime = serving(Scripted(BackendResult("far", response="here", output=BackendOutput(artifacts=made))))
    result = await runtime.run("far", "hi", thread="t")
    assert list((await runtime.messages("t"))[-1].content)[1:] == [
        Image(Base64("image/png", "aGk=")),
        Document(Url("https://x/y.pdf"), "paper"),
        Image(Url("https://x/z.png")),
    ]
    assert [a.name or a.id for a in result.artifacts] == ["pic", "paper", None, "data"]


async def test_an_output_that_is_too_large_for_the_state_fails_nothing() -> None:
    big = Artifact({"bytes": "x" * 300_000}, name="big", media_type="image/png")
    runtime = serving(Scripted(BackendResult("far", response="here", output=BackendOutput(artifacts=(big,)))))
    result = await runtime.run("far", "hi", thread="t")
    assert result.termination == NaturalEnd()
    assert [(a.name, a.content) for a in result.artifacts] == [("big", None)]
    assert isinstance((await runtime.messages("t"))[-1].content[1], Image)  # The message has it whole.
    assert [e.source for e in await events_of(runtime, "t", ErrorRaised)] == ["backend"]


class Colour(msgspec.Struct):
    """A colour."""

    name: str


async def test_a_typed_answer_is_read_from_the_text_and_asked_for_again_if_it_doesnt_fit() -> None:
    backend = Scripted("red", '{"name": "red"}', capabilities=REMOTE)
    runtime = Runtime([Agent("far", backend=backend, output=Colour)])
    result = await runtime.run("far", "which?", thread="t")
    assert (result.output, result.termination) == (Colour("red"), NaturalEnd())
    assert "doesn't fit the required output" in backend.requests[1].new_messages[0].text
    assert (await runtime.wait(result.run_id)).output == Colour("red")


async def test_a_backend_without_memory_is_not_asked_to_correct_itself() -> None:
    backend = Scripted("red")
    result = await Runtime([Agent("far", backend=backend, output=Colour)]).run("far", "which?")
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "OutputInvalid"


# -- other agents --------------------------------------------------------------------------------------------


async def test_a_child_is_a_delegate_request_that_knows_its_parent(scripted: Models) -> None:
    backend = Scripted("42")
    lead = Agent("lead", scripted(call("agent_run_far", prompt="6 x 7?"), "It is 42."), delegates=["far"])
    runtime = Runtime([lead, Agent("far", backend=backend)])
    result = await runtime.run("lead", "go", thread="t")
    assert result.text == "It is 42."
    (request,) = backend.delegated
    (made,) = await runtime.calls(result.run_id)
    assert request.parent.run_id == result.run_id
    assert (request.parent.thread_id, request.parent.call_id) == ("t", made.id)
    assert [m.text for m in request.messages] == ["6 x 7?"]
    (reply,) = await replies_on(runtime, "t")
    assert reply_text(reply) == "42"


async def test_a_tool_may_run_an_agent_with_a_backend(scripted: Models) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask far."""
        return (await ctx.run_agent("far", "6 x 7?")).text

    near = Agent("near", scripted(call("ask"), "done"), tools=[ask])
    runtime = Runtime([near, Agent("far", backend=Scripted("42"))])
    await runtime.run("near", "go", thread="t")
    assert [reply_text(r) for r in await replies_on(runtime, "t")] == ["42"]


@pytest.mark.parametrize("capabilities", [REMOTE, FULL])
async def test_a_conversation_is_handed_to_an_agent_with_a_backend(
    scripted: Models, capabilities: Capabilities
) -> None:
    backend = Scripted("I have it", capabilities=capabilities)
    near = Agent("near", scripted(call("handoff_to_far")), handoffs=["far"])
    runtime = Runtime([near, Agent("far", backend=backend)])
    result = await runtime.run("near", "go", thread="t")
    assert (result.agent_id, result.text) == ("far", "I have it")
    assert [m.role for m in backend.requests[0].messages] == ["user", "assistant", "tool"]
    await assert_settled(runtime, "t")


async def test_a_conversation_isnt_handed_to_an_agent_that_would_see_nothing_of_it(scripted: Models) -> None:
    @tool
    async def pass_on(ctx: ToolContext) -> str:
        """Hand over without asking."""
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


async def test_limits_hold_for_an_agent_with_a_backend() -> None:
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


async def test_cancelling_a_run_reaches_the_backend_of_its_child(scripted: Models) -> None:
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
    assert {type(run.outcome.termination) for run in await runtime.list_runs() if run.outcome} == {Cancelled}


def asking_child(scripted: Models, *turns: Any) -> tuple[Runtime, Scripted]:
    asked = BackendResult("far", WaitingInput("Which?"), state={"task": "T1"})
    backend = Scripted(asked, *turns[:1], capabilities=REMOTE)
    lead = Agent("lead", scripted(call("agent_run_far", prompt="go"), *turns[1:]), delegates=["far"])
    return Runtime([lead, Agent("far", backend=backend)]), backend


async def test_a_childs_question_is_answered_from_above(scripted: Models) -> None:
    runtime, backend = asking_child(scripted, "Red it is.", "It will be red.")
    result = await runtime.run("lead", "go", thread="t")
    (ticket,) = result.tickets
    assert (result.status, ticket.asked_by, ticket.message) == ("waiting", "remote", "Which?")
    result = await runtime.resume(result.run_id, ticket.answer("red"))
    assert result.text == "It will be red."
    again = backend.delegated[1]
    assert (again.is_continuation, again.state) == (True, {"task": "T1"})
    assert [reply_text(r) for r in await replies_on(runtime, "t")] == ["Red it is."]


async def test_cancelling_a_run_aborts_a_child_that_waits(scripted: Models) -> None:
    runtime, backend = asking_child(scripted)
    result = await runtime.run("lead", "go", thread="t")
    assert await runtime.cancel(result.run_id)
    assert [abort.state for abort in backend.aborts] == [{"task": "T1"}]


async def test_closing_the_runtime_aborts_what_runs_elsewhere() -> None:
    hold = Hold()
    backend = Scripted(stuck(hold), capabilities=REMOTE)
    runtime = serving(backend)
    await runtime.start("far", "hi")
    await soon(hold.reached.wait())
    await soon(runtime.close())
    assert len(backend.aborts) == 1


async def test_input_that_steers_is_the_backends_next_request() -> None:
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
