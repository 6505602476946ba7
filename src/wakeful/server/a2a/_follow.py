"""Following a run: its thread's events as A2A's updates, for whoever sends, streams or subscribes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

from a2a.types import a2a_pb2 as pb

from ...runtime import Runtime
from ...types.events import AnyEvent, MessageAdded, RunFinish, RunStart, StreamReset, TextDelta
from ...types.runs import RunRecord
from ._tasks import ANSWER, INTERRUPTED, TERMINAL, artifacts_of, find, is_silent, is_unbegun, status_of
from ._wire import text_part

__all__ = ["Follower", "Update", "updates"]

Update = pb.TaskStatusUpdateEvent | pb.TaskArtifactUpdateEvent

# How often stream checkpoints are asked for what a reader missed of an answer, in seconds.
FILL_EVERY = 0.25

# How often a run that waits for others is asked whether they have a question, in seconds: its thread is silent.
LOOK_EVERY = 0.25


class Follower:
    """A thread's events from behind a cursor, listened to from the moment it is made."""

    def __init__(self, runtime: Runtime, thread_id: str, after: int) -> None:
        self.thread_id = thread_id
        self._events: AsyncIterator[AnyEvent] = runtime.events(thread_id, after=after)
        self._next: asyncio.Task[AnyEvent | None] | None = None

    async def listen(self) -> Follower:
        """Return once nothing can be missed any more."""
        self.ahead()
        await asyncio.sleep(0)  # The task has begun, and with it the subscription.
        return self

    def ahead(self) -> asyncio.Task[AnyEvent | None]:
        """The next event, on its way; None at the end."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._read())
        return self._next

    async def _read(self) -> AnyEvent | None:
        return await anext(self._events, None)

    async def next(self) -> AnyEvent | None:
        """The next event; None at the end."""
        event = await asyncio.shield(self.ahead())
        self._next = None
        return event

    async def comes(self, seconds: float) -> bool:
        """Whether there is a next event, or the end, within so many seconds."""
        done, _ = await asyncio.wait({self.ahead()}, timeout=seconds)
        return bool(done)

    async def close(self) -> None:
        """Stop listening."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
        await cast(AsyncGenerator[AnyEvent], self._events).aclose()


async def updates(
    runtime: Runtime,
    run: RunRecord,
    follower: Follower,
    work: asyncio.Task[Any] | None = None,
    asked: str = "",
) -> AsyncGenerator[Update]:
    """What happens to a run, until it is done or waits for an answer; one that was just answered and has others
    below it, not before the `work` on that is done. `asked` is the id of the question that its reader knows."""
    shown = _Answer(runtime, run)
    waits = is_silent(run)
    while True:
        if waits and not await follower.comes(LOOK_EVERY):
            if work is not None and not work.done():
                continue
            found = await find(runtime, run.id) or await runtime.get_run(run.id)
            status, gone = await status_of(runtime, found), is_unbegun(found) and found.status == "done"
            if gone or (status.state in INTERRUPTED and status.message.message_id != asked):
                yield pb.TaskStatusUpdateEvent(task_id=run.id, context_id=run.thread_id, status=status)
                return
            continue
        if (event := await follower.next()) is None:
            return
        if event.run_id != run.id:
            continue
        match event:
            case RunStart():
                waits = False
                yield _working(run)
            case TextDelta():
                if (chunk := await shown.grown(event)) is not None:
                    yield chunk
            case StreamReset():
                shown.withdraw()
            case MessageAdded(message=message) if message.role == "assistant":
                if (chunk := shown.committed(message.id, message.text)) is not None:
                    yield chunk
            case RunFinish():
                record = await runtime.get_run(run.id)
                status = await status_of(runtime, record)
                if status.state in TERMINAL:
                    for last in shown.finished(await artifacts_of(runtime, record)):
                        yield last
                yield pb.TaskStatusUpdateEvent(task_id=run.id, context_id=run.thread_id, status=status)
                if status.state in TERMINAL | INTERRUPTED:
                    return
                waits = True
            case _:
                pass


def _working(run: RunRecord) -> pb.TaskStatusUpdateEvent:
    status = pb.TaskStatus(state=pb.TASK_STATE_WORKING)
    status.timestamp.GetCurrentTime()
    return pb.TaskStatusUpdateEvent(task_id=run.id, context_id=run.thread_id, status=status)


class _Answer:
    """What one reader was shown of the answer artifact. Deltas say where they belong: a reader that came late, or
    missed some, is given what is between from the stream checkpoints, or the whole once it is committed."""

    def __init__(self, runtime: Runtime, run: RunRecord) -> None:
        self._runtime = runtime
        self._run = run
        self._place: tuple[str, int] | None = None
        self._text = ""
        self._begun = False
        self._filled = 0.0

    async def grown(self, delta: TextDelta) -> pb.TaskArtifactUpdateEvent | None:
        """The chunk that a delta adds, if it does."""
        if self._place != (delta.message_id, delta.attempt):
            self._place, self._text, self._begun = (delta.message_id, delta.attempt), "", False
        before = len(self._text)
        if delta.offset > before:
            await self._fill(delta)
        new = delta.delta[max(len(self._text) - delta.offset, 0) :] if delta.offset <= len(self._text) else ""
        self._text += new
        return self._chunk(self._text[before:])

    async def _fill(self, delta: TextDelta) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._filled < FILL_EVERY:
            return
        self._filled = now
        kept = ""
        for chunk in await self._runtime.store.chunks(self._run.thread_id):
            mine = (chunk.message_id, chunk.attempt) == self._place and chunk.kind == "text"
            if mine and chunk.offset <= len(kept):
                kept = kept[: chunk.offset] + chunk.delta
        if len(kept) > len(self._text):
            self._text = kept

    def withdraw(self) -> None:
        """What was shown of an attempt is void; the next one begins the artifact anew."""
        self._place, self._text, self._begun = None, "", False

    def committed(self, message_id: str, text: str) -> pb.TaskArtifactUpdateEvent | None:
        """The rest of an answer that is whole now."""
        shown = self._place is not None and self._place[0] == message_id and text.startswith(self._text)
        self._place = (message_id, 0)
        rest = text[len(self._text) :] if shown else text
        self._begun = self._begun and shown
        self._text = text
        return self._chunk(rest)

    def _chunk(self, text: str) -> pb.TaskArtifactUpdateEvent | None:
        if not text:
            return None
        append, self._begun = self._begun, True
        return self._update(pb.Artifact(artifact_id=ANSWER, name="answer", parts=[text_part(text)]), append, False)

    def finished(self, artifacts: list[pb.Artifact]) -> list[pb.TaskArtifactUpdateEvent]:
        """The last chunks: the answer's end, and what was made besides."""
        found: list[pb.TaskArtifactUpdateEvent] = []
        for artifact in artifacts:
            texts = [part.text for part in artifact.parts if part.WhichOneof("content") == "text"]
            if artifact.artifact_id == ANSWER and self._begun and "".join(texts) == self._text:
                files = [part for part in artifact.parts if part.WhichOneof("content") != "text"]
                rest = pb.Artifact(artifact_id=ANSWER, name="answer", parts=files or [text_part("")])
                found.append(self._update(rest, True, True))
            else:
                found.append(self._update(artifact, False, True))
        return found

    def _update(self, artifact: pb.Artifact, append: bool, last: bool) -> pb.TaskArtifactUpdateEvent:
        run = self._run
        return pb.TaskArtifactUpdateEvent(
            task_id=run.id, context_id=run.thread_id, artifact=artifact, append=append, last_chunk=last
        )
