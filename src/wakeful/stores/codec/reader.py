"""Decode rows: messages, events, calls, threads. Errors name the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from msgspec.structs import force_setattr

from ...errors import CorruptRow
from ...types.calls import Call
from ...types.codec import decode
from ...types.events import Event
from ...types.inbox import InboxItem
from ...types.messages import Message
from ...types.runs import Identity, RunRecord, RunStatus
from ..records import ThreadRecord
from .entries import call_of, event_of, followers_of, message_of, run_of
from .packer import UNREADABLE, NoCodec, Packer, Sealed

__all__ = ["Reader", "thread_of"]

T = TypeVar("T")


class Reader:
    """Decodes payloads of a thread, or of a record without one. `CorruptRow` names the row that can't be read."""

    def __init__(self, packer: Packer, blobs: dict[str, bytes], where: str, *, of_thread: bool = True) -> None:
        self._packer = packer
        self._blobs = blobs
        self._where = where
        self._of_thread = of_thread

    def _try(self, name: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except UNREADABLE as error:
            advice = _advice(error, of_thread=self._of_thread)
            raise CorruptRow(f"{self._where}: {name} can't be read ({error}){advice}") from error

    def payload(self, data: bytes, name: str) -> bytes:
        return self._try(name, lambda: self._packer.unpack(data, self._blobs))

    def json(self, data: bytes, kind: type[T], name: str) -> T:
        return self._try(name, lambda: decode(self._packer.unpack(data, self._blobs), kind))

    def run(self, thread_id: str, run_id: str, status: RunStatus, steps: int, data: bytes) -> RunRecord:
        unpack = self._packer.unpack
        return self._try(
            f"run {run_id}", lambda: run_of(thread_id, run_id, status, steps, unpack(data, self._blobs))
        )

    def message(self, seq: int, at: int, data: bytes) -> Message:
        return self._try(f"message {seq}", lambda: message_of(seq, at, self._packer.unpack(data, self._blobs)))

    def answer(self, seq: int, data: bytes | None) -> Message:
        return self._try(f"message {seq}", lambda: decode(data or b"", Message))

    def event(self, kind: str, run: Identity, seq: int, at: int, data: bytes, answer: bytes | None) -> Event:
        unpack = self._packer.unpack
        return self._try(f"event {seq}", lambda: event_of(kind, run, seq, at, unpack(data, self._blobs), answer))

    def entries(self, row: tuple[Any, ...]) -> list[tuple[int, str, int, int | None, bytes]]:
        """The entries of a row: number, kind, time, number of the message it refers to, payload."""
        seq, kind, _, _, at, ref, payload, more = row
        found: list[tuple[int, str, int, int | None, bytes]] = [(seq, kind, at, ref, payload)]
        if more is not None:
            unpack = self._packer.unpack
            found += self._try(f"what follows {seq}", lambda: followers_of(seq, at, unpack(more, self._blobs)))
        return found

    def item(self, data: bytes, item_id: str, position: int, revision: int) -> InboxItem:
        item = self.json(data, cast(type[InboxItem], InboxItem), f"item {item_id}")
        force_setattr(item, "position", position)
        force_setattr(item, "revision", revision)
        return item

    def call(
        self,
        run_id: str,
        step: int,
        place: int,
        call_id: str,
        name: str,
        arguments: bytes | None,
        answer: Message | None,
        data: bytes,
    ) -> Call:
        unpack = self._packer.unpack

        def read() -> Call:
            given = None if arguments is None else unpack(arguments, self._blobs)
            return call_of(run_id, step, place, call_id, name, given, answer, unpack(data, self._blobs))

        return self._try(f"call {call_id}", read)


def _advice(error: Exception, *, of_thread: bool) -> str:
    """Advice for a row that can't be read."""
    if isinstance(error, NoCodec):
        return ""  # The error has the advice, and the row is intact.
    key = "give the codec the key that it was written with, " if isinstance(error, Sealed) else ""
    return f"; {key}restore it from a backup{', or delete the thread' if of_thread else ''}"


def thread_of(row: tuple[Any, ...], read: Reader) -> ThreadRecord:
    """Decode a thread's record from the first row of a view."""
    _, _, version, head, epoch, inbox_head, base_seq, created_at, updated_at, owner, *rest = row
    thread_id, open_run, last_run, last_agent, parent, base, title, metadata, _, _, principal = rest
    return ThreadRecord(
        id=thread_id,
        version=version,
        head=head,
        epoch=epoch,
        claimed=bool(owner),
        owner=owner or None,
        dead=owner == "",
        inbox_head=inbox_head,
        open_run_id=open_run,
        last_run_id=last_run,
        last_agent_id=last_agent,
        parent_id=parent,
        base_id=base,
        base_seq=base_seq,
        title=title or None,
        metadata={} if metadata is None else read.json(metadata, dict[str, Any], "metadata"),
        created_at=created_at,
        updated_at=updated_at,
        principal=principal,
    )
