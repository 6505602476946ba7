"""Stream checkpoints: what was streamed of an answer is kept at intervals, until the answer itself is committed.

They show readers in other processes what is being written, and a process that takes a run over what was shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ..bus import Channel
from ..stores import Chunk, Commit
from ..types.codec import decode
from ..types.content import Content
from ..types.events import StreamReset

if TYPE_CHECKING:
    from ._activation import Activation
    from ._answer import Answer

__all__ = ["INTERVAL_MS", "Checkpoints", "restore", "resumed_stream"]

INTERVAL_MS = 250


class Checkpoints:
    """Writes down what came of an answer since the last time: what `unsaved` gives it."""

    def __init__(self, act: Activation, unsaved: Callable[[], list[Chunk]]) -> None:
        self._act = act
        self._unsaved = unsaved
        self._last = act.clock.now()

    def due(self) -> bool:
        """Whether it is time to write."""
        return self._act.clock.now() - self._last >= INTERVAL_MS

    async def pass_by(self) -> None:
        """Write down what came, if it is time."""
        now = self._act.clock.now()
        if now - self._last >= INTERVAL_MS:
            self._last = now
            await self.write()

    async def write(self) -> None:
        """Write down what came."""
        if chunks := self._unsaved():
            act, identity = self._act, self._act.identity
            await act.env.store.commit(Commit(identity.thread_id, identity, act.draft.fence, chunks=chunks))


async def resumed_stream(act: Activation, channel: Channel) -> tuple[str, int] | None:
    """The message and attempt to stream next, where an answer of a backend was cut off by the end of its process:
    readers are told that what they saw of it is withdrawn."""
    chunks = await act.env.store.chunks(act.identity.thread_id)
    if not chunks:
        return None
    message_id, attempt = chunks[-1].message_id, chunks[-1].attempt
    reason = "its process ended; the answer begins anew"
    channel.publish(StreamReset(act.identity, act.head, act.now, message_id, attempt, reason))
    return message_id, attempt + 1


async def restore(act: Activation, answer: Answer) -> bool:
    """Give the answer what was kept of it, where it was cut off by the end of its process; False if nothing
    was."""
    chunks = await act.env.store.chunks(act.identity.thread_id)
    if not chunks:
        return False
    message_id, attempt = chunks[-1].message_id, chunks[-1].attempt
    mine = [chunk for chunk in chunks if (chunk.message_id, chunk.attempt) == (message_id, attempt)]
    streamed: dict[str | None, str] = {}
    for chunk in mine:
        if chunk.kind in ("text", "call"):
            before = streamed.get(chunk.call_id, "")
            # A piece behind a gap, from a reader that lagged, is of no use.
            if chunk.offset <= len(before):
                streamed[chunk.call_id] = before[: chunk.offset] + chunk.delta
    text = streamed.get(None, "")
    parts = [
        (chunk.offset, decode(chunk.delta, cast(type[Content], Content)), _arguments(chunk, streamed))
        for chunk in mine
        if chunk.kind == "part" and chunk.offset <= len(text)
    ]
    answer.restore(message_id, attempt, text, parts)
    return True


def _arguments(chunk: Chunk, streamed: dict[str | None, str]) -> str | None:
    return None if chunk.call_id is None else streamed.get(chunk.call_id, "")
