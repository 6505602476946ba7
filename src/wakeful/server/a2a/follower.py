"""A run's events as A2A updates, for streams, subscriptions and blocking sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

from a2a.types import a2a_pb2 as pb

from ...runtime import TenantRuntime
from ...types.events import AnyEvent, MessageAdded, RunFinish, RunStart, StreamReset, TextDelta
from ...types.runs import RunRecord
from .tasks import (
    ANSWER,
    INTERRUPTED,
    TERMINAL,
    artifacts_of,
    changes_silently,
    find_run,
    is_queued,
    status_of,
)
from .wire import text_part

__all__ = ["Follower", "Update", "updates"]

Update = pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent

# Seconds between two reads of the stream checkpoints, for text that a reader missed.
FILL_INTERVAL = 0.25

# Seconds between two polls of a run that may change without an event on its thread.
POLL_INTERVAL = 0.25


class Follower:
    """A reader of a thread's events after a cursor."""

    def __init__(self, runtime: TenantRuntime, thread_id: str, after: int) -> None:
        self.thread_id = thread_id
        self._events: AsyncIterator[AnyEvent] = runtime.events(thread_id, after=after)
        self._next: asyncio.Task[AnyEvent | None] | None = None

    async def listen(self) -> Follower:
        """Subscribe to the events; returns this follower."""
        self._prefetch()
        await asyncio.sleep(0)  # The task starts, and with it the subscription.
        return self

    def _prefetch(self) -> asyncio.Task[AnyEvent | None]:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._read())
        return self._next

    async def _read(self) -> AnyEvent | None:
        return await anext(self._events, None)

    async def next(self) -> AnyEvent | None:
        """The next event; None at the end."""
        event = await asyncio.shield(self._prefetch())
        self._next = None
        return event

    async def has_next(self, timeout: float) -> bool:
        """Whether the next event, or the end, arrives within `timeout` seconds."""
        done, _ = await asyncio.wait({self._prefetch()}, timeout=timeout)
        return bool(done)

    async def close(self) -> None:
        """Unsubscribe."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        await cast(AsyncGenerator[AnyEvent], self._events).aclose()


async def updates(
    runtime: TenantRuntime,
    run: RunRecord,
    follower: Follower,
    work: asyncio.Task[Any] | None = None,
    asked: str = "",
) -> AsyncGenerator[Update]:
    """Yield a run's updates until it is done or waits for an answer.

    After an answer, `work` resumes the run; questions of its children count only when `work` is done. `asked` is
    the id of the question that the reader has already seen.
    """
    answer = _AnswerStream(runtime, run)
    polls = changes_silently(run)
    while True:
        if polls and not await follower.has_next(POLL_INTERVAL):
            if work is not None and not work.done():
                continue
            if (status := await _silent_change(runtime, run, asked)) is not None:
                yield _status_update(run, status)
                return
            continue
        if (event := await follower.next()) is None:
            return
        if event.run_id != run.id:
            continue
        if isinstance(event, RunStart):
            polls = False
            yield _working(run)
        elif isinstance(event, RunFinish):
            record = await runtime.runs.get(run.id)
            status = await status_of(runtime, record)
            if status.state in TERMINAL:
                for chunk in answer.finish(await artifacts_of(runtime, record)):
                    yield chunk
            yield _status_update(run, status)
            if status.state in TERMINAL | INTERRUPTED:
                return
            polls = True
        elif (chunk := await answer.apply(event)) is not None:
            yield chunk


async def _silent_change(runtime: TenantRuntime, run: RunRecord, asked: str) -> pb.TaskStatus | None:
    """The status of a run that ended while queued, or of which a child has a new question."""
    found = await find_run(runtime, run.id) or await runtime.runs.get(run.id)
    status = await status_of(runtime, found)
    is_gone = is_queued(found) and found.status == "done"
    has_question = status.state in INTERRUPTED and status.message.message_id != asked
    return status if is_gone or has_question else None


def _status_update(run: RunRecord, status: pb.TaskStatus) -> pb.TaskStatusUpdateEvent:
    return pb.TaskStatusUpdateEvent(task_id=run.id, context_id=run.thread_id, status=status)


def _working(run: RunRecord) -> pb.TaskStatusUpdateEvent:
    status = pb.TaskStatus(state=pb.TASK_STATE_WORKING)
    status.timestamp.GetCurrentTime()
    return _status_update(run, status)


class _AnswerStream:
    """The answer artifact as one reader has seen it.

    Deltas have offsets. Text that a reader missed is read from the stream checkpoints, or comes with the committed
    message.
    """

    def __init__(self, runtime: TenantRuntime, run: RunRecord) -> None:
        self._runtime = runtime
        self._run = run
        self._attempt: tuple[str, int] | None = None  # Message id and attempt.
        self._text = ""
        self._has_started = False
        self._filled_at = 0.0

    async def apply(self, event: AnyEvent) -> pb.TaskArtifactUpdateEvent | None:
        """Apply an event of the run; returns the chunk that it adds, if any."""
        match event:
            case TextDelta():
                return await self._add(event)
            case StreamReset():
                self._attempt, self._text, self._has_started = None, "", False
                return None
            case MessageAdded(message=message) if message.role == "assistant":
                return self._commit(message.id, message.text)
            case _:
                return None

    async def _add(self, delta: TextDelta) -> pb.TaskArtifactUpdateEvent | None:
        if self._attempt != (delta.message_id, delta.attempt):
            self._attempt, self._text, self._has_started = (delta.message_id, delta.attempt), "", False
        before = len(self._text)
        if delta.offset > before:
            await self._fill(delta)
        new = delta.delta[max(len(self._text) - delta.offset, 0) :] if delta.offset <= len(self._text) else ""
        self._text += new
        return self._chunk(self._text[before:])

    async def _fill(self, delta: TextDelta) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._filled_at < FILL_INTERVAL:
            return
        self._filled_at = now
        saved = ""
        for chunk in await self._runtime.store.chunks(self._run.thread_id):
            is_own = (chunk.message_id, chunk.attempt) == self._attempt and chunk.kind == "text"
            if is_own and chunk.offset <= len(saved):
                saved = saved[: chunk.offset] + chunk.delta
        if len(saved) > len(self._text):
            self._text = saved

    def _commit(self, message_id: str, text: str) -> pb.TaskArtifactUpdateEvent | None:
        continues = self._attempt is not None and self._attempt[0] == message_id and text.startswith(self._text)
        self._attempt = (message_id, 0)
        rest = text[len(self._text) :] if continues else text
        self._has_started = self._has_started and continues
        self._text = text
        return self._chunk(rest)

    def _chunk(self, text: str) -> pb.TaskArtifactUpdateEvent | None:
        if not text:
            return None
        append, self._has_started = self._has_started, True
        return self._update(pb.Artifact(artifact_id=ANSWER, name="answer", parts=[text_part(text)]), append, False)

    def finish(self, artifacts: list[pb.Artifact]) -> list[pb.TaskArtifactUpdateEvent]:
        """The last chunks: the end of the answer, and the other artifacts."""
        found: list[pb.TaskArtifactUpdateEvent] = []
        for artifact in artifacts:
            texts = [part.text for part in artifact.parts if part.WhichOneof("content") == "text"]
            if artifact.artifact_id == ANSWER and self._has_started and "".join(texts) == self._text:
                files = [part for part in artifact.parts if part.WhichOneof("content") != "text"]
                metadata = artifact.metadata if artifact.HasField("metadata") else None
                rest = pb.Artifact(
                    artifact_id=ANSWER, name="answer", parts=files or [text_part("")], metadata=metadata
                )
                found.append(self._update(rest, True, True))
            else:
                found.append(self._update(artifact, False, True))
        return found

    def _update(self, artifact: pb.Artifact, append: bool, last: bool) -> pb.TaskArtifactUpdateEvent:
        run = self._run
        return pb.TaskArtifactUpdateEvent(
            task_id=run.id, context_id=run.thread_id, artifact=artifact, append=append, last_chunk=last
        )
