"""Stream checkpoints: the streamed part of an answer, stored at intervals until the answer itself is committed.

Readers in other processes follow them, and after a crash the next owner continues the answer from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from ...stores import Chunk, Commit
from ...types.codec import decode
from ...types.content import Content
from ...types.events import StreamReset
from ..activation import Activation
from .answer import Answer

__all__ = ["INTERVAL_MS", "Checkpoints", "read_cut_off", "restore"]

INTERVAL_MS = 250


class Checkpoints:
    """Writes the chunks that `unsaved` returns; due once an interval."""

    def __init__(self, act: Activation, unsaved: Callable[[], list[Chunk]], now: int) -> None:
        self._act = act
        self._unsaved = unsaved
        self._last = now

    def is_due(self) -> bool:
        """Whether the interval has passed."""
        return self._act.clock.now() - self._last >= INTERVAL_MS

    async def write(self) -> None:
        """Write the unsaved chunks."""
        self._last = self._act.clock.now()
        if chunks := self._unsaved():
            act, identity = self._act, self._act.identity
            await act.env.store.commit(Commit(identity.thread_id, identity, act.draft.fence, chunks=chunks))


async def read_cut_off(act: Activation) -> tuple[str, int] | None:
    """The message id and attempt to stream next if a crash cut off a backend's answer, which is withdrawn."""
    chunks = await act.env.store.chunks(act.identity.thread_id)
    if not chunks:
        return None
    message_id, attempt = chunks[-1].message_id, chunks[-1].attempt
    reason = "its process ended; the answer begins anew"
    act.channel.publish(StreamReset(act.identity, act.head, act.now, message_id, attempt, reason))
    return message_id, attempt + 1


async def restore(act: Activation, answer: Answer) -> bool:
    """Restore an answer that a crash cut off from its checkpoints; False if there are none."""
    chunks = await act.env.store.chunks(act.identity.thread_id)
    if not chunks:
        return False
    message_id, attempt = chunks[-1].message_id, chunks[-1].attempt
    mine = [chunk for chunk in chunks if (chunk.message_id, chunk.attempt) == (message_id, attempt)]
    streamed: dict[str | None, str] = {}
    for chunk in mine:
        if chunk.kind in ("text", "call"):
            before = streamed.get(chunk.call_id, "")
            # A chunk after a gap is of no use.
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
