"""The emitter of a running backend: reasoning, calls and results, progress, artifacts, state and usage."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loop.helpers import Hold, events_of, soon
from wakeful import Agent, Plugin, Runtime, ScriptedModel, StateKey, call
from wakeful.backends import BackendResult, FailedStatus
from wakeful.types import Artifact, ServerTool, Text, Thinking, Usage
from wakeful.types.content import Image, Url
from wakeful.types.events import (
    ArtifactAdded,
    InferenceComplete,
    MessageAdded,
    ReasoningDelta,
    RunFinish,
    ServerToolUpdate,
    StateDelta,
    StreamReset,
    ToolProgress,
)
from wakeful.types.runs import Cancelled

from .helpers import REMOTE, Scripted, recorded, serving


class Topic(StateKey[str, str]):
    """The topic of a conversation."""

    name = "topic"
    scope = "thread"
    default = ""


class Keeps(Plugin):
    """Registers the state key."""

    keys = (Topic,)


def kept(runtime_events: Any) -> Any:
    return runtime_events.of(MessageAdded)[-1].message


async def test_emitted_reasoning_and_calls_are_in_answer() -> None:
    async def work(request: Any) -> BackendResult:
        request.emit.reasoning("Let me ")
        request.emit.reasoning("look.")
        request.emit.call("c1", "search", {"q": "tea"})
        request.emit.result("c1", ["green"])
        request.emit.call("c2", "buy")
        request.emit.result("c2", "sold out", failed=True)
        request.emit("Green ")
        return BackendResult("far", response="Green tea.")

    seen = await recorded(serving(Scripted(work, capabilities=REMOTE)))
    assert [(e.offset, e.delta) for e in seen.of(ReasoningDelta)] == [(0, "Let me "), (7, "look.")]
    updates = [(e.tool.id, e.tool.status, e.tool.input, e.tool.result) for e in seen.of(ServerToolUpdate)]
    assert updates == [
        ("c1", "running", {"q": "tea"}, None),
        ("c1", "done", {"q": "tea"}, ["green"]),
        ("c2", "running", None, None),
        ("c2", "failed", None, "sold out"),
    ]
    assert kept(seen).content == (
        Thinking("Let me look."),
        ServerTool("c1", "search", {"q": "tea"}, ["green"]),
        ServerTool("c2", "buy", None, "sold out", "failed"),
        Text("Green tea."),
    )


async def test_emitted_calls_survive_another_final_answer() -> None:
    """The text is withdrawn and restarts; the call was made, and is shown again."""

    async def work(request: Any) -> BackendResult:
        request.emit("A draft")
        request.emit.call("c1", "search")
        return BackendResult("far", response="The answer")

    seen = await recorded(serving(Scripted(work, capabilities=REMOTE)))
    assert seen.one(StreamReset).attempt == 0
    # A call without a result counts as failed.
    assert kept(seen).content == (ServerTool("c1", "search", status="failed"), Text("The answer"))


async def test_emitted_parts_are_withdrawn_when_backend_fails() -> None:
    async def work(request: Any) -> BackendResult:
        request.emit.call("c1", "search")
        return BackendResult("far", FailedStatus("no luck"))

    seen = await recorded(serving(Scripted(work, capabilities=REMOTE)))
    assert seen.one(StreamReset)
    assert [m.role for m in [e.message for e in seen.of(MessageAdded)]] == ["user"]


async def test_emitted_progress_is_live_and_names_its_call() -> None:
    async def work(request: Any) -> BackendResult:
        request.emit.progress(0.5, message="halfway")
        request.emit.call("c1", "search")
        request.emit.progress(done=1, total=3, call_id="c1")
        return BackendResult("far", response="done")

    seen = await recorded(serving(Scripted(work, capabilities=REMOTE)))
    found = [(e.call_id, e.name, e.fraction, e.done, e.total, e.message) for e in seen.of(ToolProgress)]
    assert found == [("", "far", 0.5, None, None, "halfway"), ("c1", "search", None, 1, 3, "")]


async def test_delegate_progress_belongs_to_call_of_parent() -> None:
    async def work(request: Any) -> BackendResult:
        request.emit.progress(0.5)
        return BackendResult("far", response="done")

    lead = Agent("lead", model=ScriptedModel([call("agent_run_far", prompt="go"), "ok"]), delegates=["far"])
    runtime = Runtime([lead, Agent("far", backend=Scripted(work, capabilities=REMOTE))])
    found = [e async for e in runtime.stream("lead", "hi", thread="t") if isinstance(e, ToolProgress)]
    (progress,) = found
    (row,) = await runtime.runs.calls(progress.run.parent_run_id or "")
    assert (progress.call_id, progress.run.agent_id) == (row.id, "far")


async def test_emitted_artifacts_are_events_and_results() -> None:
    async def work(request: Any) -> BackendResult:
        request.emit.artifact(Artifact({"rows": 1}, id="table", name="t.json"))
        request.emit.artifact(Artifact({"rows": 2}, id="table", name="t.json"))
        request.emit.artifact(Artifact(Url("https://x/a.png"), media_type="image/png"))
        return BackendResult("far", response="done")

    runtime = serving(Scripted(work, capabilities=REMOTE))
    seen = await recorded(runtime)
    assert [e.artifact.content for e in seen.of(ArtifactAdded)][:2] == [{"rows": 1}, {"rows": 2}]
    assert kept(seen).content == (Text("done"), Image(Url("https://x/a.png", "image/png")))
    result = await runtime.wait(seen.of(RunFinish)[-1].run_id)
    assert [(a.id, a.content) for a in result.artifacts][:1] == [("table", {"rows": 2})]
    assert len(result.artifacts) == 2


async def test_updated_state_is_durable_and_an_event() -> None:
    hold = Hold()

    async def work(request: Any) -> BackendResult:
        await request.update(Topic, "tea")
        await hold.here()
        return BackendResult("far", response="done")

    agent = Agent("far", backend=Scripted(work, capabilities=REMOTE), plugins=[Keeps()])
    runtime = Runtime([agent])
    handle = await runtime.start("far", "hi", thread="t")
    await soon(hold.reached.wait())
    # While the backend still runs.
    assert [e.changes for e in await events_of(runtime, "t", StateDelta)] == [{"topic": "tea"}]
    assert await runtime.threads.state("t") == {"topic": "tea"}
    hold.released.set()
    await handle.result()


async def test_update_of_unknown_key_is_refused() -> None:
    async def work(request: Any) -> BackendResult:
        await request.update(Topic, "tea")
        return BackendResult("far")

    result = await serving(Scripted(work, capabilities=REMOTE)).run("far", "hi", check=False)
    assert "'topic'" in (result.error or "")


async def test_emitted_usage_counts_for_run_and_reports() -> None:
    async def work(request: Any) -> BackendResult:
        request.emit.usage(Usage(10, 5, cost=7))
        request.emit.usage(Usage(1, 2))
        return BackendResult("far", response="done")

    runtime = serving(Scripted(work, capabilities=REMOTE))
    seen = await recorded(runtime)
    assert seen.one(InferenceComplete).usage == Usage(11, 7, cost=7)
    assert seen.of(RunFinish)[-1].usage == Usage(11, 7, cost=7)
    (row,) = await runtime.usage(by=["agent", "model"])
    assert (row.agent, row.requests, row.usage) == ("far", 1, Usage(11, 7, cost=7))


async def test_emitted_usage_counts_when_run_is_cancelled() -> None:
    hold = Hold()

    async def work(request: Any) -> BackendResult:
        request.emit.usage(Usage(10, 5))
        await hold.here()
        return BackendResult("far")

    runtime = serving(Scripted(work, capabilities=REMOTE))
    handle = await runtime.start("far", "hi", thread="t")
    await soon(hold.reached.wait())
    await handle.cancel()
    result = await handle.result()
    assert (type(result.termination), result.usage) == (Cancelled, Usage(10, 5))


@pytest.mark.parametrize(
    ("emit", "text"),
    [
        (lambda emit: emit(1), "emit takes a text, not int"),
        (lambda emit: emit.reasoning(None), "emit.reasoning takes a text, not NoneType"),
        (lambda emit: emit.call("c", "n", object()), "the arguments of n can't be stored as JSON"),
        (lambda emit: (emit.call("c", "n"), emit.call("c", "n")), "call 'c' was emitted before"),
        (lambda emit: emit.result("c"), "there is no call 'c' (emitted calls: none)"),
        (lambda emit: emit.progress("half"), "takes a fraction, such as 0.5, not 'half'"),
        (lambda emit: emit.progress(done=0.5), "done and total are whole numbers, not 0.5"),
        (lambda emit: emit.artifact({"a": 1}), "takes an Artifact(...), not {'a': 1}"),
        (lambda emit: emit.artifact(Artifact(object())), "an artifact's content can't be stored as JSON"),
        (lambda emit: emit.usage({"input_tokens": 0.5}), "takes a Usage(...) of whole numbers"),
    ],
)
async def test_invalid_emission_is_refused(emit: Any, text: str) -> None:
    async def work(request: Any) -> BackendResult:
        emit(request.emit)
        return BackendResult("far", response="done")

    result = await serving(Scripted(work, capabilities=REMOTE)).run("far", "hi", check=False)
    assert text in (result.error or "")


async def test_undeclared_artifact_is_refused() -> None:
    async def work(request: Any) -> BackendResult:
        request.emit.artifact(Artifact(1))
        return BackendResult("far", response="done")

    result = await serving(Scripted(work)).run("far", "hi", check=False)
    assert "its capabilities declare output='text'" in (result.error or "")


async def test_emission_after_the_end_is_refused() -> None:
    emitters: list[Any] = []

    async def work(request: Any) -> BackendResult:
        emitters.append(request.emit)
        return BackendResult("far", response="done")

    await serving(Scripted(work, capabilities=REMOTE)).run("far", "hi")
    await asyncio.sleep(0)
    for late in (emitters[0].reasoning, emitters[0]):
        with pytest.raises(Exception, match="the request is over"):
            late("more")
