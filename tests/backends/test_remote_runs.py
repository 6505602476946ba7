"""What else holds for a run that a backend carries out: streaming, crashes, waits, ends."""

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


async def test_pieces_are_shown_as_they_come_with_their_offsets() -> None:
    seen = await recorded(serving(Scripted(saying("one ", "", "two", then="one two three"))))
    deltas = seen.of(TextDelta)
    assert [(d.offset, d.delta, d.attempt) for d in deltas] == [(0, "one ", 0), (4, "two", 0), (7, " three", 0)]
    answer = seen.of(MessageAdded)[-1].message
    assert {d.message_id for d in deltas} == {answer.id}
    assert answer.text == "one two three"


async def test_pieces_are_the_answer_where_the_result_has_none() -> None:
    seen = await recorded(serving(Scripted(saying("one ", "two"))))
    assert seen.of(MessageAdded)[-1].message.text == "one two"
    assert seen.text == "one two"


async def test_another_answer_in_the_end_withdraws_the_pieces() -> None:
    seen = await recorded(serving(Scripted(saying("a draft", then="the answer"))))
    reset = seen.one(StreamReset)
    assert [(d.attempt, d.offset, d.delta) for d in seen.of(TextDelta)] == [
        (0, 0, "a draft"),
        (1, 0, "the answer"),
    ]
    assert reset.attempt == 0
    assert seen.of(MessageAdded)[-1].message.text == "the answer"


async def test_what_was_streamed_before_a_cancellation_stays() -> None:
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


async def test_a_run_whose_process_died_goes_on_with_what_its_backend_saved(tmp_path: Path) -> None:
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
    while not (chunks := await first._env.store.chunks("t")):
        await asyncio.sleep(0)
    assert "one two ".startswith("".join(chunk.delta for chunk in chunks))
    await first._shared.keeper._lease.close()  # Its owner dies.
    second = opened(tmp_path / "a.db", after, clock)
    (run,) = await second.list_runs()
    result = await soon(second.wait(run.id))
    assert result.text == "eins zwei"
    (request,) = after.requests
    assert (request.state, request.is_continuation) == ({"task": "T1"}, False)
    assert [m.text for m in request.new_messages] == ["hi"]
    assert [e.trigger for e in await events_of(second, "t", RunStart)] == ["new", "recover"]
    answer = (await second.messages("t"))[-1]
    assert answer.id == chunks[0].message_id
    hold.released.set()
    assert (await soon(work)).text == "eins zwei"  # The dead one wrote nothing more.
    assert await second._env.store.chunks("t") == []
    await first.close()
    await second.close()


async def test_a_save_that_cant_be_written_ends_it_whatever_the_backend_makes_of_it() -> None:
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
    runtime._bind()
    act = runtime._dispatch.opener.new(runtime._new("far", "hi", "t", None, None, (), None, None), None, [])
    # The run belongs to another process by now, and is not this one's to end.
    with pytest.raises(StaleFence):
        await act.drive(runtime._dispatch)


async def test_nothing_is_taken_from_a_request_that_is_over() -> None:
    kept: list[Any] = []

    def keep(request: Any) -> BackendResult:
        kept.append(request)
        return BackendResult("far", response="done")

    await serving(Scripted(keep)).run("far", "hi")
    with pytest.raises(ExecutionFailed, match="the request is over"):
        await kept[0].save({})
    with pytest.raises(ExecutionFailed, match="the request is over"):
        kept[0].emit("more")


async def test_a_forked_thread_begins_anew_what_runs_elsewhere() -> None:
    backend = Scripted(
        BackendResult("far", response="one", state={"task": "T1"}),
        BackendResult("far", response="two", state={"task": "T2"}),
        "three",
        "four",
        capabilities=REMOTE,
    )
    runtime = serving(backend)
    await runtime.run("far", "hi", thread="t")
    forked = await runtime.fork("t")
    copied = await runtime.import_thread(runtime.export_thread("t"), into="copy")
    for thread in (forked, forked, "t"):
        await runtime.run("far", "more", thread=thread)
    await runtime.run("far", "more", thread=copied)
    assert [request.state for request in backend.requests] == [None, None, {"task": "T2"}, {"task": "T1"}, None]


# -- waiting -------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_in_another_process_and_the_answer_goes_to_the_backend() -> None:
    asked = BackendResult("far", WaitingInput("Which colour?"), output=BackendOutput(raw={"form": 1}))
    backend = Scripted(asked, "Red it is.", capabilities=REMOTE)
    store = MemoryStore()
    result = await serving(backend, store).run("far", "paint it", thread="t")
    assert (result.status, result.status_reason) == ("waiting", "input_required")
    (ticket,) = result.tickets
    assert (ticket.tool, ticket.arguments) == ("input_required", {"message": "Which colour?", "data": {"form": 1}})
    assert_valid_history(await serving(backend, store).messages("t"), [ticket.call_id])
    assert await serving(backend, store).parked_problems() == []
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
async def test_a_question_may_be_denied(status: Any, name: str) -> None:
    backend = Scripted(BackendResult("far", status), "as you wish", capabilities=REMOTE)
    runtime = serving(backend)
    result = await runtime.run("far", "hi", thread="t")
    assert result.tickets[0].tool == name
    result = await runtime.resume(result.run_id, result.tickets[0].deny("no"))
    assert result.text == "as you wish"
    (reply,) = await replies_on(runtime, "t")
    assert (reply.name, reply.error) == (name, "denied")


async def test_several_questions_are_answered_one_by_one_and_what_is_open_keeps_its_ticket() -> None:
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
    assert_valid_history(await runtime.messages("t"), [t.call_id for t in half.tickets])
    # The third is withdrawn, though nobody answered it.
    with pytest.raises(InvalidDecision):
        await runtime.answer(second.id, "text")
    left = await runtime.resume(asked.run_id, half.tickets[1].deny("no"))
    assert [ticket.id for ticket in left.tickets] == [second.id]
    assert (await runtime.answer(second.id, 5)).text == "done"
    assert not await runtime.tickets(status="open")
    await assert_settled(runtime, "t")


async def test_a_question_that_is_no_longer_asked_is_closed() -> None:
    asked = BackendResult("far", WaitingInput(), questions=(Question("1"), Question("2")))
    backend = Scripted(asked, "done", capabilities=REMOTE)
    runtime = serving(backend)
    result = await runtime.run("far", "go", thread="t")
    assert (await runtime.resume(result.run_id, result.tickets[0].result("x"))).text == "done"
    with pytest.raises(TicketClosed):
        await runtime.answer(result.tickets[1].id, "y")
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
async def test_questions_that_are_none_fail_the_run(questions: Any) -> None:
    backend = Scripted(BackendResult("far", WaitingInput(), questions=questions), capabilities=REMOTE)
    result = await serving(backend).run("far", "hi")
    assert "question" in str(result.error)


async def test_new_input_takes_the_place_of_a_question() -> None:
    asked = BackendResult("far", WaitingInput("Which?"), state={"task": "T1"})
    backend = Scripted(asked, "never mind then", capabilities=REMOTE)
    runtime = serving(backend)
    first = await runtime.run("far", "hi", thread="t")
    second = await runtime.run("far", "forget it", thread="t")
    assert second.text == "never mind then"
    request = backend.requests[1]
    # The backend knows its task and goes on with it, or not: nothing is aborted under it.
    assert (request.state, request.is_continuation, backend.aborts) == ({"task": "T1"}, False, [])
    with pytest.raises(TicketClosed):
        await runtime.answer(first.tickets[0].id, "red")
    await assert_settled(runtime, "t")


@pytest.mark.parametrize(
    ("status", "capabilities", "missing"),
    [
        (WaitingInput(), Capabilities.remote_stateless_text(), "waits: input"),
        (WaitingAuth(), msgspec.structs.replace(REMOTE, waits="input"), "waits: auth"),
        (Suspended(), Capabilities.remote_stateless_text(), "continuation"),
    ],
)
async def test_a_wait_that_isnt_declared_fails_the_run(status: Any, capabilities: Any, missing: str) -> None:
    result = await serving(Scripted(BackendResult("far", status), capabilities=capabilities)).run("far", "hi")
    text = f"the backend returned {status}, and its capabilities don't declare {missing}"
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
async def test_how_a_run_ends_by_its_backends_status(result: BackendResult, ending: Any, reason: str) -> None:
    backend = Scripted(result, capabilities=REMOTE)
    runtime = serving(backend)
    ended = await runtime.run("far", "hi", thread="t")
    assert (ended.termination, ended.status_reason, backend.aborts) == (ending, reason, [])
    await assert_settled(runtime, "t")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("hello", "returned str, not a BackendResult"),
        (BackendResult("far", status="odd"), "returned the status 'odd', which is none"),  # type: ignore[arg-type]
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
async def test_what_is_no_result_fails_the_run(wrong: Any, text: str) -> None:
    runtime = serving(Scripted(lambda request: wrong, capabilities=REMOTE))
    result = await runtime.run("far", "hi", thread="t")
    assert isinstance(result.termination, Failed)
    assert text in result.termination.message
    assert await runtime.result(result.run_id) == result
    await assert_settled(runtime, "t")


async def test_what_is_made_is_shown_as_it_is_read_back() -> None:
    made = BackendResult("far", output=BackendOutput("x", raw={"at": (1, float("nan"))}), state={"n": (1,)})
    backend = Scripted(made, "again", capabilities=REMOTE)
    runtime = serving(backend)
    result = await runtime.run("far", "hi", thread="t")
    assert result.raw == {"at": [1, None]}
    await runtime.run("far", "more", thread="t")
    assert backend.requests[1].state == {"n": [1]}


async def test_a_backend_that_takes_too_long_is_stopped_and_aborted(fake_clock: FakeClock) -> None:
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
    result = await soon(handle.result())
    text = "the backend took longer than its timeout of 30 s"
    assert (result.termination, result.status_reason) == (Failed("TimedOut", text), "timeout")
    assert len(backend.aborts) == 1


async def test_a_backend_that_doesnt_stop_is_let_go_of() -> None:
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
    assert len(runtime._env.abandoned) == 1
    release.set()
    await until(lambda: not runtime._env.abandoned)


async def test_something_that_a_backend_awaits_may_be_cancelled_without_the_run() -> None:
    async def cancelled(request: Any) -> BackendResult:
        raise asyncio.CancelledError

    result = await serving(Scripted(cancelled)).run("far", "hi")
    assert result.termination == Failed(
        "ExecutionFailed", "the backend was cancelled, and nobody cancelled the run"
    )


async def test_a_failed_run_may_be_retried_with_what_was_saved() -> None:
    async def fail(request: Any) -> BackendResult:
        await request.save({"task": "T1"})
        raise ExecutionFailed("boom")

    backend = Scripted(fail, "better", capabilities=REMOTE)
    runtime = serving(backend)
    failed = await runtime.run("far", "hi", thread="t")
    result = await runtime.retry(failed.run_id)
    assert (result.text, result.status_reason) == ("better", "natural_end")
    assert backend.requests[1].state == {"task": "T1"}


@pytest.mark.parametrize("wrapped", ["from", "while"])
async def test_a_backends_own_timeout_is_one_however_its_client_wraps_it(wrapped: str) -> None:
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
    result = await serving(Scripted(waits, capabilities=cooperative)).run("far", "hi")
    assert (result.status_reason, result.termination) == ("timeout", Failed("TimedOut", "read timed out"))
