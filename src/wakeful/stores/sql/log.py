"""Reading logs: messages, events and chunks, across forks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from msgspec.structs import replace

from ...errors import CorruptRow
from ...types.events import Event
from ...types.messages import Message
from ...types.runs import Identity
from ..codec.entries import MAX_ENTRIES
from ..codec.packer import Packer
from ..codec.reader import Reader
from ..records import Chunk
from .base import RUN, Row, SqlBase

__all__ = ["SqlLog"]

T = TypeVar("T")

_CHAIN = """
WITH RECURSIVE chain(no, base, low, high) AS (
    SELECT no, base, base_seq, head FROM threads WHERE tenant = ? AND id = ?
    UNION ALL
    SELECT p.no, p.base, p.base_seq, CASE WHEN chain.low < chain.high THEN chain.low ELSE chain.high END
    FROM chain JOIN threads p ON p.no = chain.base
) SELECT no, low, high FROM chain
"""

_LOG = "SELECT seq, kind, run, agent, at, ref, payload, more FROM log WHERE thread = ? AND seq > ? AND seq <= ?"

# The messages of a thread that is no fork, with the thread's number.
_OWN = """
SELECT seq, kind, run, agent, at, ref, payload, more, thread FROM log
WHERE thread = (SELECT no FROM threads WHERE tenant = ? AND id = ? AND base IS NULL)
    AND seq > ? AND seq < ? AND kind = 'message' ORDER BY seq
"""

# After every sequence number.
_END = 2**62


class SqlLog(SqlBase):
    """The logs of one tenant's threads."""

    def __init__(self, tenant: str, packer: Packer) -> None:
        super().__init__(tenant, packer)
        # A cache of run identities, by row number.
        self._identities: dict[int, Identity] = {}

    async def _steadily(self, thread_id: str, read: Callable[[list[Row]], Awaitable[list[T]]]) -> list[T]:
        """Read from a thread and its fork bases; again, if one of them was deleted meanwhile.

        A deletion copies to its forks the messages that they share.
        """
        while True:
            chain, problem = await self._query(_CHAIN, self._tenant, thread_id), None
            try:
                found = await read(chain)
            except CorruptRow as error:
                found, problem = list[T](), error
            if problem is None and len(chain) < 2:
                return found
            after = await self._query(_CHAIN, self._tenant, thread_id)
            if [row[0] for row in after] == [row[0] for row in chain]:
                if problem is not None:
                    raise problem
                return found

    async def _log(self, chain: list[Row], after: int, limit: int | None, only: str) -> list[tuple[int, int, Row]]:
        """Rows of a log with those of its fork bases, oldest first.

        Each row comes with the number of its thread and the last sequence number that is shared.
        """
        found: list[tuple[int, int, Row]] = []
        for no, low, high in reversed(chain):
            if high <= after:
                continue
            sql, behind = f"{_LOG} AND {only} ORDER BY seq", max(low, after)
            args: list[Any] = [no, max(low, behind - MAX_ENTRIES), high, behind]
            if limit is not None:
                sql, args = f"{sql} LIMIT ?", [*args, limit - len(found)]
            found += [(no, high, row) for row in await self._query(sql, *args)]
            if limit is not None and len(found) >= limit:
                break
        return found

    async def messages(
        self,
        thread_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: int | None = None,
    ) -> list[Message]:
        """The messages of a thread between two numbers, oldest first: the first `limit` or the `newest`."""
        end = _END if before is None else before

        async def decoded(rows: list[tuple[int, int, Row]]) -> list[Message]:
            return [read.message(row[0], row[4], row[6]) for row, read in await self._readers(thread_id, rows)]

        async def read(chain: list[Row]) -> list[Message]:
            chain = [(no, low, min(high, end - 1)) for no, low, high in chain]
            if newest is not None:
                return await decoded(await self._newest(chain, after, newest))
            return await decoded(await self._log(chain, after, limit, "seq > ? AND kind = 'message'"))

        most = limit if newest is None else newest
        order, args = (" DESC" if newest is not None else ""), [] if most is None else [most]
        sql = f"{_OWN}{order}{' LIMIT ?' if args else ''}"
        if own := await self._query(sql, self._tenant, thread_id, after, end, *args):
            with suppress(CorruptRow):  # The thread may have been deleted meanwhile.
                return await decoded([(row[8], 0, row) for row in (own if newest is None else own[::-1])])
        return await self._steadily(thread_id, read)

    async def _newest(self, chain: list[Row], after: int, newest: int) -> list[tuple[int, int, Row]]:
        found: list[tuple[int, int, Row]] = []
        for no, low, high in chain:
            sql = f"{_LOG} AND kind = 'message' ORDER BY seq DESC LIMIT ?"
            rows = await self._query(sql, no, max(low, after), high, newest - len(found))
            found += [(no, high, row) for row in rows]
            if len(found) >= newest or low <= after:
                break
        return found[::-1]

    async def _readers(self, thread_id: str, rows: list[tuple[int, int, Row]]) -> list[tuple[Row, Reader]]:
        """Rows with their readers."""
        readers: dict[int, Reader] = {}
        for no in {no for no, _, _ in rows}:
            blobs = await self._blobs(no, [row[6] for at, _, row in rows if at == no])
            readers[no] = Reader(self._packer, blobs, f"thread {thread_id!r}")
        return [(row, readers[no]) for no, _, row in rows]

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The durable events of a thread after a sequence number, oldest first."""
        return await self._steadily(thread_id, lambda chain: self._events(thread_id, chain, after, limit))

    async def _events(self, thread_id: str, chain: list[Row], after: int, limit: int) -> list[Event]:
        rows = await self._log(chain, after, limit, "seq + size - 1 > ?")
        runs = await self._runs_of({row[2] for _, _, row in rows})
        entries = [
            (no, row, read, entry)
            for (no, high, row), (_, read) in zip(rows, await self._readers(thread_id, rows), strict=True)
            for entry in read.entries(row)
            if after < entry[0] <= high
        ][:limit]
        answers = {
            (no, row[0]): read.payload(row[6], f"message {row[0]}")
            for no, row, read, entry in entries
            if entry[3] == row[0]
        }
        places = {(no, entry[3]) for no, _, _, entry in entries if entry[3] is not None}
        answers |= await self._answers(places - answers.keys())
        events: list[Event] = []
        for no, row, read, (seq, kind, at, ref, payload) in entries:
            agent = row[3]
            identity = runs.get(row[2]) or Identity("", thread_id, agent, "")
            if identity.agent_id != agent:
                identity = replace(identity, agent_id=agent)
            events.append(read.event(kind, identity, seq, at, payload, answers.get((no, ref))))
        return events

    async def _runs_of(self, numbers: set[int]) -> dict[int, Identity]:
        """The identities of runs by row number. They never change."""
        known = self._identities
        found = {number: known[number] for number in numbers if number in known}
        for number in numbers - found.keys():
            for row in await self._query(f"{RUN} WHERE r.no = ?", number):
                if len(known) > 4096:
                    known.clear()
                known[number] = found[number] = (await self._record(row)).identity
        return found

    async def _answers(self, places: set[tuple[int, int]]) -> dict[tuple[int, int | None], bytes]:
        """The answers that events refer to, by thread and sequence number."""
        found: dict[tuple[int, int | None], bytes] = {}
        for no, ref in places:
            sql = "SELECT payload FROM log WHERE thread = ? AND seq = ?"
            for (payload,) in await self._query(sql, no, ref):
                found[no, ref] = await self._named(
                    no,
                    await self._blobs(no, [payload]),
                    lambda read, data=payload, seq=ref: read.payload(data, f"message {seq}"),
                )
        return found

    async def head(self, thread_id: str) -> int:
        """The sequence number of the last log entry; 0 if there is none."""
        sql = "SELECT head FROM threads WHERE tenant = ? AND id = ?"
        rows = await self._query(sql, self._tenant, thread_id)
        return rows[0][0] if rows else 0

    async def chunks(self, thread_id: str) -> list[Chunk]:
        """The chunks of the answer that is being streamed, in order."""
        sql = """SELECT c.thread, c.payload FROM threads t JOIN chunks c ON c.thread = t.no
                 WHERE t.tenant = ? AND t.id = ? ORDER BY c.number"""
        rows = await self._query(sql, self._tenant, thread_id)
        blobs = await self._blobs(rows[0][0], [row[1] for row in rows]) if rows else {}
        read = Reader(self._packer, blobs, f"thread {thread_id!r}")
        return [read.json(row[1], Chunk, "chunk") for row in rows]
