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
from ._plans import Plan, escaped, outcome, plan_of
from ._protocol import Commit, Committed
from ._rows import Packer
from ._steps import IS_IN, Held, Step, left_by, step_of
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
_BEGIN = "SELECT begin_v3($1, $2, $3)"
_PUT = "SELECT put_v3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
# The smallest transaction that is synced, and all before it.
_SYNC = "SELECT pg_logical_emit_message(true, 'wakeful', '')"

Key = tuple[str, str]


class _Waiting(Struct, eq=False):
    """A commit on its way. One that may go by a step of its own is planned only if it has to go the long way."""

    tenant: str
    packer: Packer
    commit: Commit
    thread: Key
    threads: frozenset[Key]
    future: asyncio.Future[Committed]
    step: Step | None = None
    plan: Plan | None = None

    @property
    def owned(self) -> bool:
        """Whether the thread's owner writes, or who becomes its owner."""
        return self.commit.fence is not None or self.commit.claim is not None

    def planned(self, held: Held | None) -> Plan:
        self.step = None
        plan = self.plan = self.plan or plan_of(self.tenant, self.packer, self.commit)
        if held is not None and held.unsynced and held.fence == self.commit.fence:
            plan.told.version = held.version
        return plan


class Groups:
    """Sends commits in batches: at most one commit for a thread in each, and no thread in two at once."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._waiting: list[_Waiting] = []
        self._busy: set[Key] = set()
        self._lanes: set[asyncio.Task[None]] = set()
        self._starting = False
        self._alone = 0
        # How its owner's last commit left each thread. If that wasn't synced, a server that crashed may have lost
        # it, and nothing may be written behind that.
        self._held: dict[Key, Held] = {}
        self._unsynced = Unsynced(self._sync_soon)
        self._syncing: asyncio.Task[None] | None = None
        self.batches = [0, 0]

    def submit(self, tenant: str, packer: Packer, commit: Commit) -> asyncio.Future[Committed]:
        """Queue a commit; the future has what came of it."""
        loop = asyncio.get_running_loop()
        home = (tenant, commit.thread_id)
        threads = frozenset([home, *[(tenant, item.thread_id) for item in commit.inbox]])
        waiting = _Waiting(tenant, packer, commit, home, threads, Promise[Committed](loop=loop))
        held = None if self._waiting or home in self._busy else self._held.get(home)
        if held is not None and self._alone >= FIRST_ALONE:
            waiting.step = step_of(tenant, packer, commit, held)
        if waiting.step is None:
            waiting.plan = plan_of(tenant, packer, commit)
        self._waiting.append(waiting)
        # A lane begins in the next turn of the loop: others that commit in this turn come along.
        if not self._starting and len(self._lanes) < MAX_IN_FLIGHT:
            self._starting = True
            self._lanes.add(loop.create_task(self._serve(), name="wakeful-postgres-commits"))
        return waiting.future

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
            more = 0 if waiting.plan is None else waiting.plan.size
            full = len(batch) == MAX_BATCH or (batch and size + more > MAX_BATCH_BYTES)
            if full or waiting.thread in own or not held.isdisjoint(waiting.threads):
                later.append(waiting)
                held |= waiting.threads
                continue
            batch.append(waiting)
            size += more
            own.add(waiting.thread)
        self._waiting = later
        for waiting in batch:
            self._busy |= waiting.threads
        return batch

    async def _send(self, batch: list[_Waiting]) -> None:
        # Until it is known how this went, nothing is known of these threads.
        held = [self._held.pop(waiting.thread, None) if waiting.owned else None for waiting in batch]
        try:
            verdicts = await self._verdicts(batch, held)
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, StoreUnavailable):
                for waiting, before in zip(batch, held, strict=True):  # One can't be written; the others can.
                    if before is not None:
                        self._held[waiting.thread] = before
                    await self._send([waiting])
                return
            for waiting in batch:
                if not waiting.future.done():
                    waiting.future.set_exception(error)
        else:
            for waiting, verdict, before in zip(batch, verdicts, held, strict=True):
                self._resolve(waiting, verdict, before)
        finally:
            for waiting in batch:
                self._busy -= waiting.threads

    async def _verdicts(self, batch: list[_Waiting], held: list[Held | None]) -> list[list[Any]]:
        if len(batch) == 1:
            waiting = batch[0]
            if waiting.step is not None and (found := await self._go_on(waiting.commit, waiting.step)) is not None:
                return [found]
            plan = waiting.planned(held[0])
            if plan.plain:
                self._alone += 1
            elif (found := await self._begin(plan)) is not None:
                return [found]
        plans = [waiting.planned(before) for waiting, before in zip(batch, held, strict=True)]
        payloads: list[bytes] = []
        firsts: list[int] = []
        for plan in plans:
            firsts.append(len(payloads))
            payloads += plan.payloads
        keys = sorted(set[Key]().union(*[waiting.threads for waiting in batch]))
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

    async def _go_on(self, commit: Commit, step: Step) -> list[Any] | None:
        """The verdict on a commit that only goes on with a run; None if it has to go the long way."""
        began, tries = asyncio.get_running_loop().time(), 0

        async def go_on(connection: Any) -> Any:
            nonlocal tries
            tries += 1
            found = await connection.fetchrow(step.sql, *step.args)
            if found is None and tries > 1:
                return await connection.fetchrow(IS_IN, *step.args[:5])
            return found

        found = await self._connections.run(go_on)
        if found is None:
            return None
        if commit.unsynced:
            self._unsynced.left()
        else:
            self._unsynced.synced(began)
        return ["ok", found[0], found[1], step.args[3], found[2], []]

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

    def _resolve(self, waiting: _Waiting, verdict: list[Any], held: Held | None) -> None:
        """Tell the writer, and keep how its thread was left."""
        try:
            done = outcome(waiting.commit, verdict, waiting.plan and waiting.plan.problem)
        except Exception as error:
            waiting.future.set_exception(error)
            return
        waiting.future.set_result(done)
        if waiting.owned and (held := left_by(waiting.commit, done, waiting.step, held)) is not None:
            self._held[waiting.thread] = held

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
