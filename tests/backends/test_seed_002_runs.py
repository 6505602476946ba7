"""Seed 002, rows 2.22 to 2.35: events, answer and state of a backend's run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loop.helpers import Hold, events_of, log_of, soon, until
from loop.helpers import Scripted as Models
from wakeful import Agent, MemoryStore, Message, Runtime, SqliteStore, call
from wakeful.backends import (
    AbortRequest,
    BackendConfig,
    BackendFactory,
    BackendOutput,
    BackendResult,
    CancelledStatus,
    Completed,
    ExecutionBackend,
    FailedStatus,
    Parent,
    Suspended,
    TimedOut,
    WaitingInput,
)
from wakeful.errors import ConfigurationError, CorruptRow, ExecutionFailed, InvalidConfig, StoreUnavailable
from wakeful.stores import Commit, Committed, StateWrite
from wakeful.testing import Recorder
from wakeful.types import Artifact
from wakeful.types.events import InferenceComplete, MessageAdded, RunFinish, StepEnd, TextDelta
from wakeful.types.runs import (
    Blocked,
    Cancelled,
    EndRequested,
    Failed,
    NaturalEnd,
    Stopped,
)

from .helpers import REMOTE, FailingStore, Scripted, recorded, serving

HANDLES, OUTPUT = "__runtime_remote_backend", "__runtime_backend_output"


async def state_of(runtime: Runtime, thread: str = "t") -> dict[str, Any]:
    stored = await runtime.store.load(thread)
    assert stored is not None
    state = {name: msgspec.json.decode(data) for name, data in stored.state.items()}
    return {name: value for name, value in state.items() if name != "__runtime_backend_attempt"}


async def test_seed_2_22_event_order_with_commit_before_end() -> None:
    seen: list[str] = []

    class Watching(MemoryStore):
        async def commit(self, commit: Commit) -> Committed:
            done = await super().commit(commit)
            seen.append(" ".join(getattr(e, "type", "message") for e in commit.log))
            return done

    async def answer(request: Any) -> BackendResult:
        await asyncio.sleep(0)
        seen.append("backend")
        return BackendResult("far", response="hello")

    shown = await recorded(serving(Scripted(answer), Watching()))
    assert shown.types == [
        "run_start",
        "message",
        "step_start",
        "text_delta",
        "message",
        "inference_complete",
        "step_end",
        "run_finish",
    ]
    # Events are shown after their commit: the answer's comes before the step ends.
    assert seen == [
        "run_start message step_start",
        "backend",
        "message inference_complete",
        "step_end run_finish",
    ]


class Broken(BackendFactory):
    """A factory that builds nothing."""

    name = "broken"

    def build(self, endpoint: Mapping[str, Any]) -> ExecutionBackend:
        raise InvalidConfig("nobody knows how")


async def test_seed_2_23_invalid_backend_is_refused_before_events() -> None:
    store = MemoryStore()
    agent = Agent("far", backend=BackendConfig("broken", {}))
    with pytest.raises(ConfigurationError, match=r"^agent 'far': backend 'broken': nobody knows how$"):
        Runtime([agent], backends=[Broken()], store=store)
    with pytest.raises(ConfigurationError, match="no factory of that name"):
        Runtime([Agent("far", backend=BackendConfig("unheard", {}))], store=store)
    assert await store.threads() == []


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (ExecutionFailed("boom"), Failed("ExecutionFailed", "boom")),
        (ValueError("odd"), Failed("ValueError", "odd")),
    ],
)
async def test_seed_2_24_error_is_a_result_with_bare_message(error: Exception, ending: Failed) -> None:
    """A deliberate difference: the text of an unexpected exception is shown with `expose_errors` only."""
    runtime = Runtime([Agent("far", backend=Scripted(error), expose_errors=True)])
    result = await runtime.run("far", "hi", thread="t", check=False)
    assert (result.termination, result.text, result.status) == (ending, "", "done")
    assert result.steps == 1  # The row says 0; the backend was called, so the attempt is a step.
    assert result.status_reason == "error"
    log = await log_of(runtime, "t")
    assert [e.type for e in log] == ["run_start", "message", "step_start", "step_end", "run_finish"]


async def test_seed_2_24_emitted_text_is_withdrawn_on_error() -> None:
    def fail(request: Any) -> BackendResult:
        request.emit("half an ans")
        raise ExecutionFailed("boom")

    seen = await recorded(serving(Scripted(fail)))
    assert seen.types[3:] == ["text_delta", "stream_reset", "step_end", "run_finish"]
    assert seen.one(MessageAdded).message.role == "user"


def slow(hold: Hold) -> Any:
    async def run(request: Any) -> BackendResult:
        await request.save({"task": "T1"})
        await hold.here()
        return BackendResult("far", response="too late")

    return run


@pytest.mark.parametrize("kind", ["none", "cooperative", "abort", "cooperative_and_abort"])
async def test_seed_2_25_cancelled_run_is_aborted_once(kind: Any) -> None:
    hold = Hold()
    capabilities = msgspec.structs.replace(REMOTE, cancellation=kind)
    backend = Scripted(slow(hold), capabilities=capabilities)
    runtime = serving(backend, cancel_grace=0.05)
    handle = await runtime.start("far", "hi", thread="t")
    await soon(hold.reached.wait())
    assert await handle.cancel("enough")
    result = await handle.result()
    assert result.termination == Cancelled("enough")
    assert result.status_reason == "cancelled"
    expected = AbortRequest(
        agent_id="far", identity=backend.requests[0].identity, parent=None, state={"task": "T1"}
    )
    assert backend.aborts == ([expected] if "abort" in kind else [])
    assert [e.type for e in await log_of(runtime, "t")][-2:] == ["step_end", "run_finish"]


async def test_seed_2_25_abort_knows_continuation_and_parent(scripted: Models) -> None:
    """The remote side of a child that works on an answer is told both, and the latest state."""
    hold = Hold()
    asks = BackendResult("far", WaitingInput("which?"), state={"task": "T0"})
    backend = Scripted(asks, slow(hold), capabilities=REMOTE)
    lead = Agent("lead", scripted(call("agent_run_far", prompt="go")), delegates=["far"])
    runtime = Runtime([lead, Agent("far", backend=backend)])
    waiting = await runtime.run("lead", "hi", thread="t")
    answering = asyncio.create_task(runtime.resume(waiting.run_id, waiting.tickets[0].answer("red")))
    await soon(hold.reached.wait())
    await runtime.cancel(waiting.run_id)
    await soon(answering)
    (abort,) = backend.aborts
    (asked,) = await runtime.runs.calls(waiting.run_id)
    assert abort.parent == Parent(waiting.run_id, "t", asked.id)
    assert (abort.is_continuation, abort.state) == (True, {"task": "T1"})
    assert abort.identity == backend.requests[0].identity


async def test_seed_2_25_waiting_run_is_aborted() -> None:
    async def ask(request: Any) -> BackendResult:
        return BackendResult("far", WaitingInput("which?"), state={"task": "T1"})

    backend = Scripted(ask, capabilities=REMOTE)
    store = MemoryStore()
    result = await serving(backend, store).run("far", "hi", thread="t")
    runtime = serving(backend, store)  # Another process, with only the store.
    assert await runtime.cancel(result.run_id)
    assert [(a.state, a.is_continuation) for a in backend.aborts] == [({"task": "T1"}, False)]
    assert not await runtime.cancel(result.run_id)
    assert len(backend.aborts) == 1


async def test_seed_2_25_cooperative_backend_may_return() -> None:
    async def watch(request: Any) -> BackendResult:
        await request.control.cancelled.wait()
        return BackendResult("far", CancelledStatus())

    capabilities = msgspec.structs.replace(REMOTE, cancellation="cooperative")
    backend = Scripted(watch, capabilities=capabilities)
    runtime = serving(backend)
    handle = await runtime.start("far", "hi")
    await until(lambda: backend.requests)
    await soon(handle.cancel())
    assert isinstance((await handle.result()).termination, Cancelled)


async def test_seed_2_26_failed_abort_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    hold = Hold()

    class Stubborn(Scripted):
        async def abort(self, request: AbortRequest) -> None:
            await super().abort(request)
            raise ExecutionFailed("it won't")

    backend = Stubborn(slow(hold), capabilities=REMOTE)
    runtime = serving(backend)
    handle = await runtime.start("far", "hi")
    await soon(hold.reached.wait())
    with caplog.at_level(logging.WARNING, "wakeful"):
        assert await handle.cancel()
    assert isinstance((await handle.result()).termination, Cancelled)
    assert len(backend.aborts) == 1
    assert "it won't" in caplog.text


async def test_seed_2_26_hung_abort_is_abandoned_after_grace() -> None:
    hold, stuck = Hold(), Hold()

    class Hanging(Scripted):
        async def abort(self, request: AbortRequest) -> None:
            await stuck.here()

    runtime = serving(Hanging(slow(hold), capabilities=REMOTE), cancel_grace=0.05)
    handle = await runtime.start("far", "hi")
    await soon(hold.reached.wait())
    assert await soon(handle.cancel())
    assert stuck.times == 1
    assert isinstance((await handle.result()).termination, Cancelled)


@pytest.mark.parametrize(
    ("response", "output", "text"),
    [
        ("response", BackendOutput("output"), "output"),
        ("response", BackendOutput(), "response"),
        (None, BackendOutput(), ""),
    ],
)
async def test_seed_2_27_text_of_the_answer(response: Any, output: BackendOutput, text: str) -> None:
    runtime = serving(Scripted(BackendResult("far", response=response, output=output)))
    assert (await runtime.run("far", "hi", thread="t")).text == text
    # A missing text of the output is filled in.
    assert (await state_of(runtime)).get(OUTPUT) == ({"text": text} if text else None)


async def test_seed_2_28_delta_and_message_only_for_text() -> None:
    runtime = serving(Scripted("hello", ""))
    seen = await recorded(runtime)
    assert [(d.delta, d.offset, d.attempt) for d in seen.of(TextDelta)] == [("hello", 0, 0)]
    added = [e.message for e in seen.of(MessageAdded) if e.message.role == "assistant"]
    assert [m.text for m in added] == ["hello"]
    assert added[0].id == seen.one(TextDelta).message_id
    empty = await recorded(runtime)
    assert empty.of(TextDelta) == []
    assert [e.message.role for e in empty.of(MessageAdded)] == ["user"]
    assert empty.one(RunFinish).termination == NaturalEnd()


ENDS: list[tuple[BackendResult, bool]] = [
    (BackendResult("far", response="x"), True),
    (BackendResult("far", Completed(), EndRequested("done"), response="x"), True),
    (BackendResult("far", Completed(), Stopped("budget"), response="x"), False),
    (BackendResult("far", Completed(), Blocked("no"), response="x"), False),
    (BackendResult("far", Suspended("later"), response="x"), False),
    (BackendResult("far", FailedStatus("boom"), response="x"), False),
    (BackendResult("far", CancelledStatus(), response="x"), False),
    (BackendResult("far", TimedOut(), response="x"), False),
]


@pytest.mark.parametrize(("result", "complete"), ENDS)
async def test_seed_2_29_inference_complete_only_for_natural_end(result: BackendResult, complete: bool) -> None:
    runtime = Runtime([Agent("far", "label", backend=Scripted(result, capabilities=REMOTE))])
    await runtime.run("far", "hi", thread="t", check=False)
    found = await events_of(runtime, "t", InferenceComplete)
    assert [(e.model, e.usage.total_tokens) for e in found] == ([("label", 0)] if complete else [])


async def test_seed_2_29_inference_complete_has_duration_and_agent_id(fake_clock: Any) -> None:
    hold = Hold()

    async def answer(request: Any) -> BackendResult:
        await hold.here()
        return BackendResult("far", response="x")

    runtime = serving(Scripted(answer), clock=fake_clock)
    handle = await runtime.start("far", "hi", thread="t")
    await soon(hold.reached.wait())
    await fake_clock.advance(1.5)
    hold.released.set()
    await handle.result()
    (complete,) = await events_of(runtime, "t", InferenceComplete)
    assert (complete.model, complete.duration_ms) == ("far", 1500)


async def test_seed_2_30_unwritten_answer_is_a_storage_error() -> None:
    def has_answer(commit: Commit) -> bool:
        return any(isinstance(e, Message) and e.role == "assistant" for e in commit.log)

    store = FailingStore(has_answer)
    runtime = serving(Scripted("hello"), store)
    recorder = Recorder()
    with pytest.raises(StoreUnavailable, match="the disk is gone"):
        await recorder.record(runtime.stream("far", "hi", thread="t"))
    assert recorder.types == ["run_start", "message", "step_start", "text_delta"]
    assert [e for e in await store.events("t") if isinstance(e, StepEnd | RunFinish)] == []
    await runtime.close()


async def test_seed_2_31_same_events_without_durable_store(tmp_path: Path) -> None:
    in_memory = await recorded(serving(Scripted("hello")))
    store = SqliteStore(tmp_path / "x.db")
    runtime = serving(Scripted("hello"), store)
    on_disk = await recorded(runtime)
    await runtime.close()
    await store.close()
    assert in_memory.types == on_disk.types


async def test_seed_2_32_reason_of_backend_wins() -> None:
    runtime = serving(
        Scripted(
            BackendResult("far", status_reason="quota", response="x"),
            BackendResult("far", Suspended(), status_reason="rate_limit"),
            capabilities=REMOTE,
        )
    )
    assert (await runtime.run("far", "hi", thread="t")).status_reason == "quota"
    result = await runtime.run("far", "hi", thread="t")
    run = await runtime.runs.get(result.run_id)
    assert run.waiting is not None
    assert (result.status_reason, run.waiting.reason, run.waiting.detail) == (
        "rate_limit",
        "rate_limit",
        "rate_limit",
    )


def as_json(finish: RunFinish) -> Any:
    return msgspec.json.decode(msgspec.json.encode(finish))["backend"]


async def test_seed_2_33_run_finish_fields() -> None:
    made = BackendOutput(artifacts=(Artifact({"n": 1}, name="n"),), raw={"whole": True})
    runtime = serving(Scripted("plain", BackendResult("far", response="more", output=made), capabilities=REMOTE))
    plain = (await recorded(runtime)).one(RunFinish)
    assert as_json(plain) == {"status": "done", "reason": "natural_end"}
    more = (await recorded(runtime)).one(RunFinish)
    assert as_json(more) == {
        "status": "done",
        "reason": "natural_end",
        "artifacts": [{"content": {"n": 1}, "name": "n"}],
        "raw": {"whole": True},
    }
    # The response is the message that the run record names; the log refers to it.
    run = await runtime.runs.get(more.run_id)
    assert run.backend == more.backend
    assert [m.text for m in await runtime.threads.messages("t") if m.id == run.answer_id] == ["more"]
    result = await runtime.wait(more.run_id)
    assert (result.text, result.artifacts, result.raw) == ("more", made.artifacts, made.raw)
    assert result.status_reason == "natural_end"


async def test_seed_2_34_state_of_backend_or_previous_one() -> None:
    made = BackendOutput("two", raw=2)
    runtime = serving(
        Scripted(
            BackendResult("far", state={"n": 1}),
            BackendResult("far", output=made),
            ExecutionFailed("boom"),
            BackendResult("far", state={"n": 2}),
            capabilities=REMOTE,
        )
    )
    found: list[dict[str, Any]] = []
    for _ in range(4):
        await runtime.run("far", "hi", thread="t", check=False)
        found.append(await state_of(runtime))
    kept = {"text": "two", "raw": 2}
    assert found == [
        {HANDLES: {"": "t", "far": {"n": 1}}},
        {HANDLES: {"": "t", "far": {"n": 1}}, OUTPUT: kept},
        {HANDLES: {"": "t", "far": {"n": 1}}, OUTPUT: kept},
        {HANDLES: {"": "t", "far": {"n": 2}}, OUTPUT: kept},
    ]
    # No observer sees it.
    assert "state_delta" not in [e.type for e in await log_of(runtime, "t")]


class Unreadable(MemoryStore):
    """A store whose state can't be read once it is broken."""

    broken = False

    async def load(self, thread_id: str) -> Any:
        if self.broken:
            raise CorruptRow(f"thread {thread_id!r} can't be read")
        return await super().load(thread_id)


async def test_seed_2_35_unreadable_state_fails_run() -> None:
    store = Unreadable()
    backend = Scripted(
        "none yet", BackendResult("far", state={"n": 1}), "there", "not reached", capabilities=REMOTE
    )
    runtime = serving(backend, store)
    for _ in range(3):
        await runtime.run("far", "hi", thread="t")
    # No state, no state of this agent, and its saved state.
    assert [request.state for request in backend.requests] == [None, None, {"n": 1}]
    store.broken = True
    with pytest.raises(CorruptRow):
        await runtime.run("far", "hi", thread="t")
    assert len(backend.requests) == 3


@pytest.mark.parametrize("bad", [b'"text"', b'{"far":[1]}', b"7"])
async def test_seed_2_35_invalid_saved_state_fails_run(bad: bytes) -> None:
    store = MemoryStore()
    await store.commit(Commit(thread_id="t", version=0, state=[StateWrite(HANDLES, bad)]))
    backend = Scripted("not reached", capabilities=REMOTE)
    result = await serving(backend, store).run("far", "hi", thread="t", check=False)
    assert isinstance(result.termination, Failed)
    assert "can't be read" in result.termination.message
    assert backend.requests == []
