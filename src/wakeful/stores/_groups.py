"""Group commit: whatever queued up while batches were on their way goes into the next one, in one round trip."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import msgspec
from msgspec import Struct

from ..errors import StoreError, StoreUnavailable
from ._beginnings import beginning_of, delivery_of
from ._connections import Connections
from ._plans import Plan, arguments_of, escaped, outcome
from ._protocol import Committed, Fence
from ._threads import Promise
from ._unsynced import Unsynced

__all__ = ["Groups"]

MAX_IN_FLIGHT = 2
MAX_BATCH = 128
MAX_BATCH_BYTES = 4 * 1024 * 1024
# A function that a connection hasn't called yet takes its time to be read and planned. Who goes on with a run for
# a moment only is faster with the one that it needed to claim it.
FIRST_ALONE = 4

_COMMIT = "SELECT commit_v3($1, $2, $3, $4, $5)"
_GO_ON = r"SELECT go_on_v3(string_to_array($1, E'\x1f'), string_to_array($2, ',', '')::bigint[], $3)"
_BEGIN = "SELECT begin_v3($1, $2, $3)"
_PUT = "SELECT put_v3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
# The smallest transaction that is synced, and all before it.
_SYNC = "SELECT pg_logical_emit_message(true, 'wakeful', '')"

Key = tuple[str, str]


class _Waiting(Struct, eq=False):
    plan: Plan
    future: asyncio.Future[Committed]


class Groups:
    """Sends commits in batches: at most one commit for a thread in each, and no thread in two at once."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._waiting: list[_Waiting] = []
        self._busy: set[Key] = set()
        self._lanes: set[asyncio.Task[None]] = set()
        self._starting = False
        self._alone = 0
        # Threads whose last commit isn't synced, with its fence and the version it made: a server that crashed may
        # have lost it, and nothing may be written behind that.
        self._ahead: dict[Key, tuple[Fence | None, int]] = {}
        self._unsynced = Unsynced(self._sync_soon)
        self._syncing: asyncio.Task[None] | None = None
        self.batches = [0, 0]

    def submit(self, plan: Plan) -> asyncio.Future[Committed]:
        """Queue a commit; the future has what came of it."""
        loop = asyncio.get_running_loop()
        future = Promise[Committed](loop=loop)
        self._waiting.append(_Waiting(plan, future))
        # A lane begins in the next turn of the loop: others that commit in this turn come along.
        if not self._starting and len(self._lanes) < MAX_IN_FLIGHT:
            self._starting = True
            self._lanes.add(loop.create_task(self._serve(), name="wakeful-postgres-commits"))
        return future

    async def _serve(self) -> None:
        """Send one batch after the other, as long as there is something to send."""
        self._starting = False
        try:
            while batch := self._next():
                self.batches[0] += 1
                self.batches[1] += len(batch)
                await self._send(batch)
        finally:
            # In the same turn in which it found nothing more: what comes after that begins another lane.
            self._lanes.discard(cast(asyncio.Task[None], asyncio.current_task()))

    def _next(self) -> list[_Waiting]:
        """The next batch, oldest first. What can't go yet holds back what comes after it on its threads."""
        batch, later, size = list[_Waiting](), list[_Waiting](), 0
        own, held = set[Key](), set(self._busy)
        for waiting in self._waiting:
            plan = waiting.plan
            full = len(batch) == MAX_BATCH or (batch and size + plan.size > MAX_BATCH_BYTES)
            if full or plan.thread in own or not held.isdisjoint(plan.threads):
                later.append(waiting)
                held |= plan.threads
                continue
            batch.append(waiting)
            size += plan.size
            own.add(plan.thread)
        self._waiting = later
        for waiting in batch:
            plan = waiting.plan
            self._busy |= plan.threads
            ahead, fence = self._ahead.get(plan.thread), plan.commit.fence
            if ahead is not None and fence is not None:  # Whoever has no fence writes behind nothing.
                del self._ahead[plan.thread]
                if ahead[0] == fence:
                    plan.told.version = ahead[1]
        return batch

    async def _send(self, batch: list[_Waiting]) -> None:
        try:
            verdicts = await self._verdicts(batch)
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, StoreUnavailable):
                for waiting in batch:  # One of them can't be written; the others can.
                    await self._send([waiting])
                return
            for waiting in batch:
                if not waiting.future.done():
                    waiting.future.set_exception(error)
        else:
            for waiting, verdict in zip(batch, verdicts, strict=True):
                _resolve(waiting, verdict)
        finally:
            for waiting in batch:
                self._busy -= waiting.plan.threads

    async def _verdicts(self, batch: list[_Waiting]) -> list[list[Any]]:
        plans = [waiting.plan for waiting in batch]
        if len(plans) == 1 and plans[0].plain:
            self._alone += 1
            if self._alone > FIRST_ALONE and (found := await self._go_on(plans[0])) is not None:
                return [found]
        elif len(plans) == 1 and (found := await self._begin(plans[0])) is not None:
            return [found]
        payloads: list[bytes] = []
        firsts: list[int] = []
        for plan in plans:
            firsts.append(len(payloads))
            payloads += plan.payloads
        keys = sorted(set[Key]().union(*[plan.threads for plan in plans]))
        # One that writes to its own thread only locks it by itself.
        tenants = [escaped(tenant) for tenant, _ in keys] if len(keys) > 1 else []
        ids = [escaped(thread_id) for _, thread_id in keys] if len(keys) > 1 else []
        began = asyncio.get_running_loop().time()
        commits = "[" + ",".join([plan.control for plan in plans]) + "]"
        # The same call again finds the commits that are in by their ids: trying again is safe.
        text = await self._connections.run(
            lambda connection: connection.fetchval(_COMMIT, commits, payloads, firsts, tenants, ids)
        )
        verdicts = msgspec.json.decode(text)
        if any(verdict[0] == "ok" for verdict in verdicts):
            self._unsynced.synced(began)
        return verdicts

    async def _go_on(self, plan: Plan) -> list[Any] | None:
        """The verdict on a commit that only goes on with a run; None if it has to go the long way."""
        if (args := arguments_of(plan)) is None:
            return None
        began = asyncio.get_running_loop().time()
        found = await self._connections.run(lambda connection: connection.fetchval(_GO_ON, *args))
        if found is None:
            return None
        version, head, inbox_head = found
        if plan.commit.unsynced:
            self._ahead[plan.thread] = (plan.commit.fence, version)
            self._unsynced.left()
        else:
            self._unsynced.synced(began)
        return ["ok", version, head, plan.told.fence and plan.told.fence[0], inbox_head, []]

    async def _begin(self, plan: Plan) -> list[Any] | None:
        """The verdict on a commit that gives an idle thread input, or begins a run with it; None if it goes the
        long way."""
        sql, args = (_PUT, delivery_of(plan)) if plan.commit.inbox else (_BEGIN, beginning_of(plan))
        if args is None:
            return None
        began = asyncio.get_running_loop().time()
        found = await self._connections.run(lambda connection: connection.fetchval(sql, *args))
        if found is None or len(found) == 1:
            return found and ["conflict", *found]
        self._unsynced.synced(began)
        return ["ok", *found, found[-1:] if plan.commit.inbox else []]

    def _sync_soon(self) -> None:
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.get_running_loop().create_task(self._sync(), name="wakeful-postgres-sync")

    async def _sync(self) -> None:
        with suppress(StoreError):  # The server syncs by itself after a while, and the next commit does.
            await self._connections.run(lambda connection: connection.execute(_SYNC))

    async def close(self) -> None:
        """Wait until everything that was queued is written."""
        while self._lanes:
            await asyncio.gather(*self._lanes, return_exceptions=True)
        if self._syncing is not None:
            await asyncio.wait([self._syncing])


def _resolve(waiting: _Waiting, verdict: list[Any]) -> None:
    if waiting.future.done():
        return
    try:
        waiting.future.set_result(outcome(waiting.plan, verdict))
    except Exception as error:
        waiting.future.set_exception(error)
