"""Find unreadable rows: decode every payload of all tenants.

Tables are read in pages, in the order of their keys, and blobs for one row at a time, so memory use is bounded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

from msgspec import Struct

from ...errors import CorruptRow
from ...types.inbox import InboxItem
from ...types.records import Record
from ...types.runs import Identity, TaskRecord
from ...types.tickets import Decision, Ticket
from ..codec.packer import UNREADABLE, NoCodec
from ..codec.reader import Reader
from ..records import Chunk
from ..relays import Relay
from .base import Row
from .log import SqlLog

__all__ = ["SqlPayloads"]

PAGE = 200
# The most rows of a table that are named; the rest is counted.
NAMED = 100

_Read = Callable[[Reader, str, Sequence[Any]], object]


class _Table(Struct, frozen=True):
    """A table with payloads, and the function that decodes a row.

    That takes the reader, the thread's id, and key and columns. The log has none: its events need other rows.
    """

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    read: _Read | None = None
    joined: str = "LEFT JOIN threads t ON t.no = x.thread"
    of_thread: bool = True

    def query(self, condition: str) -> str:
        """Query tenant, thread id, thread number, key and columns. The first three are NULL without a thread."""
        columns = ", ".join([f"x.{name}" for name in (*self.key, *self.columns)])
        owner = "t.tenant, t.id, t.no" if self.of_thread else "x.tenant, NULL, NULL"
        return f"SELECT {owner}, {columns} FROM {self.name} x {self.joined} {condition}"

    def compared(self, how: str) -> str:
        """The condition that compares keys by an operator."""
        return f"WHERE ({', '.join([f'x.{name}' for name in self.key])}) {how} ({', '.join('?' * len(self.key))})"


def _json(name: str, kind: type[object], label: str) -> _Table:
    """A table of ids and payloads of one type."""

    def read(reader: Reader, _: str, row: Sequence[Any]) -> object:
        return None if row[2] is None else reader.json(row[2], kind, f"{label} {row[1]}")

    return _Table(name, ("tenant", "id"), ("payload",), read)


def _metadata(read: Reader, _: str, row: Sequence[Any]) -> object:
    return None if row[1] is None else read.json(row[1], dict[str, Any], "metadata")


def _run(read: Reader, thread_id: str, row: Sequence[Any]) -> object:
    return read.run(thread_id, *row[1:])


def _chunk(read: Reader, _: str, row: Sequence[Any]) -> object:
    return read.json(row[1], Chunk, f"chunk {row[0]}")


def _call(read: Reader, _: str, row: Sequence[Any]) -> object:
    run, step, place, call_id, name, arguments, payload = row
    return read.call(str(run), step, place, call_id, name, arguments, None, payload)


def _record(read: Reader, _: str, row: Sequence[Any]) -> object:
    return read.json(row[3], cast(type[Any], Record), f"{row[1]} {row[2]}")


def _state(read: Reader, _: str, row: Sequence[Any]) -> object:
    return read.json(row[-1], object, f"state {row[2] if isinstance(row[2], str) else row[1]}")


_TABLES = (
    _Table("threads", ("no",), ("metadata",), _metadata, "JOIN threads t ON t.no = x.no"),
    _Table("runs", ("no",), ("id", "status", "step", "payload"), _run),
    _Table("log", ("thread", "seq"), ("kind", "run", "agent", "at", "ref", "payload", "more")),
    _Table("chunks", ("number",), ("payload",), _chunk),
    _Table(
        "calls",
        ("run", "step", "place"),
        ("id", "name", "arguments", "payload"),
        _call,
        "LEFT JOIN runs r ON r.no = x.run LEFT JOIN threads t ON t.no = r.thread",
    ),
    _json("tickets", Ticket, "ticket"),
    _json("decisions", Decision, "decision"),
    _Table("state", ("thread", "run", "name"), ("payload",), _state),
    _Table("state_log", ("thread", "name", "seq"), ("payload",), _state),
    _json("inbox", cast(type[Any], InboxItem), "item"),
    _json("tasks", TaskRecord, "task"),
    _json("relays", Relay, "relay"),
    _Table("records", ("tenant", "kind", "id"), ("payload",), _record, joined="", of_thread=False),
)


class SqlPayloads(SqlLog):
    """The check for unreadable rows."""

    async def _unreadable(self) -> list[str]:
        """Messages about rows that can't be read, and one about a codec that is missing."""
        problems: list[str] = []
        sealed = 0
        for table in _TABLES:
            count = 0
            async for problem in self._problems(table):
                if isinstance(problem.__cause__, NoCodec):
                    sealed += 1
                    continue
                count += 1
                if count <= NAMED:
                    problems.append(str(problem))
            if count > NAMED:
                problems.append(f"table {table.name}: {count - NAMED} more rows can't be read")
        if sealed:
            problems.append(
                f"{sealed} rows were written through a codec, and the store was opened without one: open it with "
                "that codec, or name the runtime that does, as in `wakeful store check app:runtime`"
            )
        return problems

    async def _problems(self, table: _Table) -> AsyncIterator[CorruptRow]:
        width = 3 + len(table.key)
        condition, key = "", ()
        while True:
            order = ", ".join([f"x.{name}" for name in table.key])
            page = await self._query(table.query(f"{condition} ORDER BY {order} LIMIT {PAGE}"), *key)
            at_hand = {row[3:width]: row for row in page}
            for row in page:
                # Read it again: it may have been changed or deleted since the page was read.
                if await self._problem(table, row, at_hand) is None:
                    continue
                for now in await self._query(table.query(table.compared("=")), *row[3:width]):
                    if (problem := await self._problem(table, now, {})) is not None:
                        yield problem
            if len(page) < PAGE:
                return
            condition, key = table.compared(">"), page[-1][3:width]

    async def _problem(self, table: _Table, row: Row, at_hand: dict[Row, Row]) -> CorruptRow | None:
        """The error of an unreadable row, or None."""
        tenant, thread_id, thread, *own = row
        of = "a thread that is gone, " if thread_id is None else f"thread {thread_id!r}, "
        of = of if table.of_thread else ""
        of = of if tenant in (self._tenant, None) else f"tenant {tenant!r}, {of}"
        blobs = await self._blobs(thread or 0, [value for value in own if isinstance(value, bytes)])
        read = Reader(self._packer, blobs, f"{of}table {table.name}", of_thread=table.of_thread)
        try:
            if table.read is None:
                await self._read_entries(read, thread_id or "", own, at_hand)
            else:
                table.read(read, thread_id or "", own)
        except CorruptRow as error:
            return error
        return None

    async def _read_entries(
        self, read: Reader, thread_id: str, row: Sequence[Any], at_hand: dict[Row, Row]
    ) -> None:
        """Decode a row of the log: its entry and the events that follow."""
        thread, seq, kind, _, agent, _, _, payload, _ = row
        run, answers = Identity("", thread_id, agent, ""), dict[int, bytes | None]()
        if kind == "message":
            answers[seq] = read.payload(payload, f"message {seq}")
        for number, name, at, ref, body in read.entries(tuple(row[1:])):
            if ref is not None and ref not in answers:
                answers[ref] = await self._answer(thread, ref, at_hand)
            if name == "message":
                read.message(number, at, body)
            elif ref is None or answers[ref] != b"":
                read.event(name, run, number, at, body, None if ref is None else answers[ref])

    async def _answer(self, thread: int, seq: int, at_hand: dict[Row, Row]) -> bytes | None:
        """The message that an event refers to; None without one, empty if it can't be read."""
        try:
            if (known := at_hand.get((thread, seq))) is not None:
                payload = known[-2]
                return self._packer.unpack(payload, await self._blobs(thread, [payload]))
            return (await self._answers({(thread, seq)})).get((thread, seq))
        except UNREADABLE:
            return b""
