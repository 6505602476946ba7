"""Group commit: commits that arrive while batches are in flight share the next batch, in one round trip."""

from __future__ import annotations

import asyncio
from typing import cast

from ...errors import StoreUnavailable
from ..codec.packer import Packer
from ..conditions import record_key
from ..facts import threads_of
from ..jobs import Promise, settled
from ..records import Commit, Committed
from .batch import BatchWriter, Group
from .cache import HeadCache
from .connections import Connections

__all__ = ["CommitQueue"]

MAX_IN_FLIGHT = 2
MAX_BATCH = 128
# From this many on, half of the waiting commits are sent, so that their runs and the server work at the same time.
MANY = 16

Keys = frozenset[tuple[str, str, str]]


class CommitQueue:
    """Sends commits in batches. Those of one thread, item, request or record are sent one after the other."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._writer = BatchWriter(connections.endpoint.clock)
        self._waiting: list[tuple[Keys, Group]] = []
        self._busy: set[tuple[str, str, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_starting = False
        self.batches = 0
        self.commits = 0

    @property
    def cache(self) -> HeadCache:
        """The heads that commits left."""
        return self._writer.cache

    async def write(self, tenant: str, packer: Packer, commit: Commit) -> Committed:
        """Write a commit. A cancellation takes effect after the commit is written or refused."""
        threads = frozenset([(tenant, thread_id) for thread_id in threads_of(commit)])
        group = Group(tenant, packer, commit, threads, Promise(loop=asyncio.get_running_loop()))
        self._waiting.append((_keys_of(tenant, commit, threads), group))
        self._start()
        return await settled(group.future)

    def _start(self) -> None:
        # The task starts in the next turn of the loop, so that commits of this turn share its first batch.
        if not self._is_starting and len(self._tasks) < MAX_IN_FLIGHT:
            self._is_starting = True
            self._tasks.add(asyncio.get_running_loop().create_task(self._run(), name="wakeful-postgres-commits"))

    async def _run(self) -> None:
        self._is_starting = False
        try:
            while batch := self._next():
                if self._waiting:
                    self._start()
                await self._send([group for _, group in batch])
                for keys, _ in batch:
                    self._busy -= keys
        finally:
            # In the turn that found the queue empty: a later commit starts another task.
            self._tasks.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    def _next(self) -> list[tuple[Keys, Group]]:
        """The next batch, oldest first. A commit that has to wait holds back later ones with the same keys."""
        batch: list[tuple[Keys, Group]] = []
        later: list[tuple[Keys, Group]] = []
        held = set(self._busy)
        count = len(self._waiting)
        most = min(count // 2, MAX_BATCH) if count >= MANY and not self._busy else MAX_BATCH
        for keys, group in self._waiting:
            is_next = len(batch) < most and held.isdisjoint(keys)
            (batch if is_next else later).append((keys, group))
            held |= keys
        self._waiting = later
        for keys, _ in batch:
            self._busy |= keys
        return batch

    async def _send(self, groups: list[Group]) -> None:
        self.batches += 1
        self.commits += len(groups)
        try:
            await self._connections.run(lambda connection: self._writer.write(connection, groups))
        except Exception as error:
            left = [group for group in groups if not group.future.done()]
            if len(left) == 1 or isinstance(error, StoreUnavailable):
                for group in left:
                    group.future.set_exception(error)
                return
            for group in left:  # One of them can't be written; the others can.
                await self._send_alone(group)

    async def _send_alone(self, group: Group) -> None:
        try:
            await self._connections.run(lambda connection: self._writer.write(connection, [group]))
        except Exception as error:
            group.future.set_exception(error)

    async def close(self) -> None:
        """Wait until all commits are written."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


def _keys_of(tenant: str, commit: Commit, threads: frozenset[tuple[str, str]]) -> Keys:
    """The threads, items, requests and records of a group: groups with the same one don't share a statement."""
    keys = {("thread", *key) for key in threads}
    for one in (commit, *commit.then):
        keys.update([("item", tenant, item.id) for item in one.inbox])
        if one.request is not None:
            keys.add(("item", tenant, one.request.id))
        if one.records is not None:
            keys.update([("record", *record_key(record)) for record in (*one.records.put, *one.records.removed)])
    return frozenset(keys)
