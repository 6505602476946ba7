"""Runs of backends: streaming, crashes, waits, terminations."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loop.helpers import (
    Hold,
    assert_settled,
    assert_valid_history,
    events_of,
    replies_on,
    reply_text,
    soon,
    until,
    until_idle,
)
from wakeful import (
    Agent,
    MemoryStore,
    Runtime,
    SqliteStore,
)
from wakeful.backends import (
    Artifact,
    BackendOutput,
    BackendResult,
    CancelledStatus,
    Capabilities,
    FailedStatus,
    Question,
    Suspended,
    TimedOut,
    WaitingAuth,
    WaitingInput,
)
from wakeful.errors import ExecutionFailed, InvalidDecision, StaleFence, TicketClosed
from wakeful.loop import drive
from wakeful.runtime.requests import new_run
from wakeful.testing import FakeClock
from wakeful.types.events import (
    InferenceComplete,
    MessageAdded,
    RunStart,
    StreamReset,
    TextDelta,
)
from wakeful.types.runs import Cancelled, Failed, NaturalEnd, Stopped

from .helpers import REMOTE, Scripted, recorded, serving

FULL = msgspec.structs.replace(REMOTE, transcript="full")


def saying(*pieces: str, then: str | None = None) -> Any:
    async def say(request: Any) -> BackendResult:
        for piece in pieces:
            request.emit(piece)
            await asyncio.sleep(0)
        return BackendResult("far", response=then)

    return say


# -- streaming -----------------------------------------------------------------------------------------------


async def test_emitted_text_streams_with_offsets() -> None:
    seen = await recorded(serving(Scripted(saying("one ", "", "two", then="one two three"))))
    deltas = seen.of(TextDelta)
    assert [(d.offset, d.delta, d.attempt) for d in deltas] == [(0, "one ", 0), (4, "two", 0), (7, " three", 0)]
    answer = seen.of(MessageAdded)[-1].message
    assert {d.message_id for d in deltas} == {answer.id}
    assert answer.text == "one two three"


async def test_emitted_text_is_the_answer_when_result_has_none() -> None:
    seen = await recorded(serving(Scripted(saying("one ", "two"))))
    assert seen.of(MessageAdded)[-1].message.text == "one two"
    assert seen.text == "one two"


async def test_different_final_answer_withdraws_emitted_text() -> None:
    seen = await recorded(serving(Scripted(saying("a draft", then="the answer"))))
    reset = seen.one(StreamReset)
    assert [(d.attempt, d.offset, d.delta) for d in seen.of(TextDelta)] == [
        (0, 0, "a draft"),
        (1, 0, "the answer"),
    ]
    assert reset.attempt == 0
    assert seen.of(MessageAdded)[-1].message.text == "the answer"


async def test_emitted_text_is_kept_on_cancellation() -> None:
    hold = Hold()

    async def say(request: Any) -> BackendResult:
        request.emit("half an ans")
        await hold.here()
        return BackendResult("far")

    runtime = serving(Scripted(say))
    handle = await runtime.start("far", "hi", thread="t")
    await soon(hold.reached.wait())
    await handle.cancel()
    result = await handle.result()
    assert (result.text, type(result.termination)) == ("half an ans", Cancelled)
    assert await events_of(runtime, "t", InferenceComplete) == []
    await until_idle(runtime)
    await assert_settled(runtime, "t")


def opened(path: Path, backend: Scripted, clock: FakeClock) -> Runtime:
    return serving(backend, SqliteStore(path, synchronous="NORMAL"), clock=clock)


async def test_run_resumes_with_saved_state_after_crash(tmp_path: Path) -> None:
    clock, hold = FakeClock(), Hold()

    async def begin(request: Any) -> BackendResult:
        await request.save({"task": "T1"})
        request.emit("one ")
        await clock.advance(0.3)
        request.emit("two ")
        await asyncio.sleep(0)
        await hold.here()
        await request.save({"task": "never"})
        return BackendResult("far", response="from the dead")

    def adopt(request: Any) -> BackendResult:
        return BackendResult("far", response="eins zwei")

    before, after = Scripted(begin, capabilities=REMOTE), Scripted(adopt, capabilities=REMOTE)
    first = opened(tmp_path / "a.db", before, clock)
    work = asyncio.create_task(first.run("far", "hi", thread="t"))
    await soon(hold.reached.wait())
    while not (chunks := await first.store.chunks("t")):
        await asyncio.sleep(0)
    assert "one two ".startswith("".join(chunk.delta for chunk in chunks))
    await first._scope.shared.worker.state.lease.close()  # The owner dies.
    second = opened(tmp_path / "a.db", after, clock)
    (run,) = await second.runs.list()
    result = await soon(second.wait(run.id))
    assert result.text == "eins zwei"
    (request,) = after.requests
    assert (request.state, request.is_continuation) == ({"task": "T1"}, False)
    assert [m.text for m in request.new_messages] == ["hi"]
    assert [e.trigger for e in await events_of(second, "t", RunStart)] == ["new", "recover"]
    answer = (await second.threads.messages("t"))[-1]
    assert answer.id == chunks[0].message_id
    hold.released.set()
    assert (await soon(work)).text == "eins zwei"  # The dead owner wrote nothing more.
    assert await second.store.chunks("t") == []
    await first.close()
    await second.close()


async def test_failed_save_ends_run_when_backend_catches_it() -> None:
    class Fenced(MemoryStore):
        saves = 0

        async def commit(self, commit: Any) -> Any:
            self.saves += bool(commit.state)
            if commit.state and self.saves == 1:
                raise StaleFence("somebody else has it")
            return await super().commit(commit)

    async def careless(request: Any) -> BackendResult:
        try:
            await request.save({"task": "T1"})
        except StaleFence:
            pass
        return BackendResult("far", response="all is well")

    runtime = serving(Scripted(careless), Fenced())
    runtime._scope.bind()
    act = runtime._scope.dispatch.activations.new(new_run(runtime._scope.env.registry, "far", "hi", "t"), None, [])
    # Another process owns the run now, so this one must not end it.
    with pytest.raises(StaleFence):
        await drive(act, runtime._scope.dispatch)


async def test_callbacks_are_refused_after_request_ended() -> None:
    kept: list[Any] = []

    def keep(request: Any) -> BackendResult:
        kept.append(request)
        return BackendResult("far", response="done")

    await serving(Scripted(keep)).run("far", "hi")
    with pytest.raises(ExecutionFailed, match="the request is over"):
        await kept[0].save({})
    with pytest.raises(ExecutionFailed, match="the request is over"):
        kept[0].emit("more")


async def test_forked_thread_has_no_backend_state() -> None:
    backend = Scripted(
        BackendResult("far", response="one", state={"task": "T1"}),
        BackendResult("far", response="two", state={"task": "T2"}),
        "three",
        "four",
        capabilities=REMOTE,
    )
    runtime = serving(backend)
    await runtime.run("far", "hi", thread="t")
    forked = await runtime.threads.fork("t")
    copied = await runtime.threads.import_(runtime.threads.export("t"), into="copy")
    for thread in (forked, forked, "t"):
        await runtime.run("far", "more", thread=thread)
    await runtime.run("far", "more", thread=copied, check=False)
    assert [request.state for request in backend.requests] == [None, None, {"task": "T2"}, {"task": "T1"}, None]


# -- waiting -------------------------------------------------------------------------------------------------


async def test_question_is_answered_in_another_process() -> None:
    asked = BackendResult("far", WaitingInput("Which colour?"), output=BackendOutput(raw={"form": 1}))
    backend = Scripted(asked, "Red it is.", capabilities=REMOTE)
    store = MemoryStore()
    result = await serving(backend, store).run("far", "paint it", thread="t")
    assert (result.status, result.status_reason) == ("waiting", "input_required")
    (ticket,) = result.tickets
    assert (ticket.tool, ticket.arguments) == ("input_required", {"message": "Which colour?", "data": {"form": 1}})
    assert_valid_history(await serving(backend, store).threads.messages("t"), [ticket.call_id])
    assert await serving(backend, store).runs.check_parked() == []
    runtime = serving(backend, store)
    result = await runtime.resume(result.run_id, ticket.answer("red"))
    assert (result.text, result.termination) == ("Red it is.", NaturalEnd())
    request = backend.requests[1]
    assert request.is_continuation
    assert [reply_text(m.reply) for m in request.new_messages] == ["red"]
    assert request.messages == request.new_messages
    await assert_settled(runtime, "t")


@pytest.mark.parametrize(
    ("status", "name"),
    [(WaitingAuth(), "auth_required"), (Suspended(), "suspended"), (WaitingInput(), "input_required")],
)
async def test_question_may_be_denied(status: Any, name: str) -> None:
    backend = Scripted(BackendResult("far", status), "as you wish", capabilities=REMOTE)
    runtime = serving(backend)
    result = await runtime.run("far", "hi", thread="t")
    assert result.tickets[0].tool == name
    result = await runtime.resume(result.run_id, result.tickets[0].deny("no"))
    assert result.text == "as you wish"
    (reply,) = await replies_on(runtime, "t")
    assert (reply.name, reply.error) == (name, "denied")


async def test_open_questions_keep_their_tickets() -> None:
    one, two, three = (
        Question("1", "One?"),
        Question("2", "Two?", {"x": 1}, schema={"type": "integer"}),
        Question("3"),
    )
    backend = Scripted(
        BackendResult("far", WaitingInput(), questions=(one, two)),
        BackendResult("far", WaitingInput(), questions=(two, three)),
        BackendResult("far", WaitingInput(), questions=(two,)),
        "done",
        capabilities=REMOTE,
    )
    store = MemoryStore()
    asked = await serving(backend, store).run("far", "go", thread="t")
    first, second = asked.tickets
    assert second.arguments == {"message": "Two?", "question": "2", "data": {"x": 1}}
    runtime = serving(backend, store)
    half = await runtime.resume(asked.run_id, first.result({"a": [1]}))
    assert half.tickets[0].id == second.id
    assert half.tickets[1].arguments["question"] == "3"
    (told,) = [m.reply for m in backend.requests[1].new_messages if m.reply and m.reply.error is None]
    assert (bytes(told.data), told.metadata) == (
        b'{"a":[1]}',
        {"verdict": "approve", "question": "1", "mode": "result"},
    )
    assert_valid_history(await runtime.threads.messages("t"), [t.call_id for t in half.tickets])
    # The third is closed without an answer.
    with pytest.raises(InvalidDecision):
        await runtime.tickets.answer(second.id, "text")
    left = await runtime.resume(asked.run_id, half.tickets[1].deny("no"))
    assert [ticket.id for ticket in left.tickets] == [second.id]
    assert (await runtime.tickets.answer(second.id, 5)).text == "done"
    assert not await runtime.tickets.list(status="open")
    await assert_settled(runtime, "t")


async def test_ticket_is_closed_when_question_is_dropped() -> None:
    asked = BackendResult("far", WaitingInput(), questions=(Question("1"), Question("2")))
    backend = Scripted(asked, "done", capabilities=REMOTE)
    runtime = serving(backend)
    result = await runtime.run("far", "go", thread="t")
    assert (await runtime.resume(result.run_id, result.tickets[0].result("x"))).text == "done"
    with pytest.raises(TicketClosed):
        await runtime.tickets.answer(result.tickets[1].id, "y")
    await assert_settled(runtime, "t")


@pytest.mark.parametrize(
    "questions",
    [
        (Question("1"), Question("1")),
        (Question(""),),
        (5,),
        (Question("1", accepts=()),),
        (Question("1", schema={"pattern": "("}),),
    ],
)
async def test_invalid_questions_fail_run(questions: Any) -> None:
    backend = Scripted(BackendResult("far", WaitingInput(), questions=questions), capabilities=REMOTE)
    result = await serving(backend).run("far", "hi", check=False)
    assert "question" in str(result.error)


async def test_new_input_supersedes_question() -> None:
    asked = BackendResult("far", WaitingInput("Which?"), state={"task": "T1"})
    backend = Scripted(asked, "never mind then", capabilities=REMOTE)
    runtime = serving(backend)
    first = await runtime.run("far", "hi", thread="t")
    second = await runtime.run("far", "forget it", thread="t")
    assert second.text == "never mind then"
    request = backend.requests[1]
    # The backend decides whether it continues its task: it isn't aborted.
    assert (request.state, request.is_continuation, backend.aborts) == ({"task": "T1"}, False, [])
    with pytest.raises(TicketClosed):
        await runtime.tickets.answer(first.tickets[0].id, "red")
    await assert_settled(runtime, "t")


@pytest.mark.parametrize(
    ("status", "capabilities", "missing"),
    [
        (WaitingInput(), Capabilities.remote_stateless_text(), "waits: input"),
        (WaitingAuth(), msgspec.structs.replace(REMOTE, waits="input"), "waits: auth"),
        (Suspended(), Capabilities.remote_stateless_text(), "continuation"),
    ],
)
async def test_undeclared_wait_fails_run(status: Any, capabilities: Any, missing: str) -> None:
    result = await serving(Scripted(BackendResult("far", status), capabilities=capabilities)).run(
        "far", "hi", check=False
    )
    text = f"the backend returned {status}, but its capabilities don't declare {missing}"
    assert result.termination == Failed("ExecutionFailed", text)


# -- ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "ending", "reason"),
    [
        (BackendResult("far", FailedStatus("boom")), Failed("ExecutionFailed", "boom"), "error"),
        (BackendResult("far", FailedStatus("boom"), NaturalEnd()), Failed("ExecutionFailed", "boom"), "error"),
        (BackendResult("far", FailedStatus("m"), Stopped("budget")), Stopped("budget"), "error"),
        (BackendResult("far", CancelledStatus()), Cancelled("its backend cancelled it"), "cancelled"),
        (BackendResult("far", TimedOut()), Failed("TimedOut", "timeout"), "timeout"),
    ],
)
async def test_run_ends_by_backend_status(result: BackendResult, ending: Any, reason: str) -> None:
    backend = Scripted(result, capabilities=REMOTE)
    runtime = serving(backend)
    ended = await runtime.run("far", "hi", thread="t", check=False)
    assert (ended.termination, ended.status_reason, backend.aborts) == (ending, reason, [])
    await assert_settled(runtime, "t")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("hello", "returned str, not a BackendResult"),
        (BackendResult("far", status="odd"), "returned 'odd', which is no backend status"),  # type: ignore[arg-type]
        (BackendResult("far", response=7), "returned 7 as its text"),  # type: ignore[arg-type]
        (BackendResult("far", state={"x": object()}), "can't be stored as JSON"),
        (BackendResult("far", FailedStatus("half a pair: \ud83d")), "can't be stored as JSON"),
        (BackendResult("far", FailedStatus(404)), "got `int` - at `status.message`"),  # type: ignore[arg-type]
        (BackendResult("far", WaitingInput(5)), "got `int` - at `status.message`"),  # type: ignore[arg-type]
        (BackendResult("far", status_reason=5), "got `int` - at `status_reason`"),  # type: ignore[arg-type]
        (BackendResult("far", termination="x"), "got `str` - at `termination`"),  # type: ignore[arg-type]
        (BackendResult("far", state=["x"]), "got `array` - at `state`"),  # type: ignore[arg-type]
        (
            BackendResult("far", output=BackendOutput("x", (Artifact({"bytes": "aGk="}, name=5),))),  # type: ignore[arg-type]
            "got `int` - at `output.artifacts[0].name`",
        ),
        (
            BackendResult("far", output=BackendOutput("x", ({"content": 1},))),  # type: ignore[arg-type]
            "returned {'content': 1} as an artifact: use Artifact(...)",
        ),
    ],
)
async def test_invalid_result_fails_run(wrong: Any, text: str) -> None:
    runtime = serving(Scripted(lambda request: wrong, capabilities=REMOTE))
    result = await runtime.run("far", "hi", thread="t", check=False)
    assert isinstance(result.termination, Failed)
    assert text in result.termination.message
    assert await runtime.runs.result(result.run_id) == result
    await assert_settled(runtime, "t")


async def test_output_is_shown_as_stored() -> None:
    made = BackendResult("far", output=BackendOutput("x", raw={"at": (1, float("nan"))}), state={"n": (1,)})
    backend = Scripted(made, "again", capabilities=REMOTE)
    runtime = serving(backend)
    result = await runtime.run("far", "hi", thread="t")
    assert result.raw == {"at": [1, None]}
    await runtime.run("far", "more", thread="t")
    assert backend.requests[1].state == {"n": [1]}


async def test_backend_is_stopped_and_aborted_on_timeout(fake_clock: FakeClock) -> None:
    hold = Hold()

    async def dawdle(request: Any) -> BackendResult:
        await hold.here()
        return BackendResult("far")

    backend = Scripted(dawdle, capabilities=REMOTE)
    backend.timeout = 30
    runtime = serving(backend, clock=fake_clock)
    handle = await runtime.start("far", "hi", thread="t")
    await soon(hold.reached.wait())
    await fake_clock.advance(31)
    result = await soon(handle.result(check=False))
    text = "the backend took longer than its timeout of 30 s"
    assert (result.termination, result.status_reason) == (Failed("TimedOut", text), "timeout")
    assert len(backend.aborts) == 1


async def test_backend_is_abandoned_when_it_does_not_stop() -> None:
    hold, release = Hold(), asyncio.Event()

    async def stubborn(request: Any) -> BackendResult:
        try:
            await hold.here()
        except asyncio.CancelledError:
            await release.wait()
        return BackendResult("far")

    runtime = serving(Scripted(stubborn), cancel_grace=0.02)
    handle = await runtime.start("far", "hi")
    await soon(hold.reached.wait())
    assert await soon(handle.cancel())
    assert isinstance((await handle.result()).termination, Cancelled)
    assert len(runtime._scope.env.abandoned) == 1
    release.set()
    await until(lambda: not runtime._scope.env.abandoned)


async def test_cancelled_await_in_backend_fails_run() -> None:
    async def cancelled(request: Any) -> BackendResult:
        raise asyncio.CancelledError

    result = await serving(Scripted(cancelled)).run("far", "hi", check=False)
    assert result.termination == Failed("ExecutionFailed", "the backend's task was cancelled, but the run was not")


async def test_failed_run_is_retried_with_saved_state() -> None:
    async def fail(request: Any) -> BackendResult:
        await request.save({"task": "T1"})
        raise ExecutionFailed("boom")

    backend = Scripted(fail, "better", capabilities=REMOTE)
    runtime = serving(backend)
    failed = await runtime.run("far", "hi", thread="t", check=False)
    result = await runtime.runs.retry(failed.run_id)
    assert (result.text, result.status_reason) == ("better", "natural_end")
    assert backend.requests[1].state == {"task": "T1"}


@pytest.mark.parametrize("wrapped", ["from", "while"])
async def test_wrapped_timeout_of_backend_is_a_timeout(wrapped: str) -> None:
    async def waits(request: Any) -> BackendResult:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError as error:
            if wrapped == "from":
                raise OSError("read timed out") from error
            raise OSError("read timed out")  # noqa: B904
        raise AssertionError("it waited")

    cooperative = msgspec.structs.replace(REMOTE, cancellation="cooperative")
    far = Agent("far", backend=Scripted(waits, capabilities=cooperative), expose_errors=True)
    result = await Runtime([far]).run("far", "hi", check=False)
    assert (result.status_reason, result.termination) == ("timeout", Failed("TimedOut", "read timed out"))
