"""Group commit: whatever queued up while batches were on their way goes into the next one, in one round trip."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import StoreError, StoreUnavailable
from ._beginnings import beginning_of, delivery_of, ending_of
from ._connections import Connections
from ._packing import Packer
from ._plans import Plan, escaped, outcome, plan_of
from ._protocol import Commit, Committed
from ._steps import Held, Step, go_on, left_by, step_of
from ._threads import Promise, cancel_again, settled
from ._unsynced import Unsynced

__all__ = ["Groups"]

MAX_IN_FLIGHT = 2
MAX_BATCH = 128
MAX_BATCH_BYTES = 4 * 1024 * 1024
# So many don't all go at once: while the server writes one half, the owners of the other half go on.
MANY = 16
# A function that a connection hasn't called yet takes its time to be read and planned. Who goes on with a run for
# a moment only is faster with the one that it needed to claim it.
FIRST_STEPS = 4

_COMMIT = "SELECT commit_v3($1, $2, $3, $4, $5)"
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
    held: Held | None = None
    """How the thread was left before this was sent."""

    @property
    def owned(self) -> bool:
        """Whether the thread's owner writes, or who becomes its owner."""
        return self.commit.fence is not None or self.commit.claim is not None

    @property
    def size(self) -> int:
        return self.step.size if self.step is not None else self.plan.size if self.plan is not None else 0

    def planned(self) -> Plan:
        """What it is the long way."""
        self.step = None
        plan = self.plan = self.plan or plan_of(self.tenant, self.packer, self.commit)
        if (held := self.held) is not None and held.unsynced and held.fence == self.commit.fence:
            plan.told.version = held.version
        return plan


class Groups:
    """Sends commits in batches: at most one commit for a thread in each, and no thread in two at once. A batch has
    commits that only go on with their runs, or others."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._waiting: list[_Waiting] = []
        self._queued: set[Key] = set()
        self._busy: set[Key] = set()
        self._lanes: dict[int, asyncio.Task[None]] = {}
        self._numbers = count()
        self._starting = False
        self._alone: asyncio.Future[None] | None = None
        self._plain = 0
        # How its owner's last commit left each thread. If that wasn't synced, a server that crashed may have lost
        # it, and nothing may be written behind that.
        self._held: dict[Key, Held] = {}
        self._unsynced = Unsynced(self._sync_soon)
        self._syncing: asyncio.Task[None] | None = None
        self.batches = [0, 0]

    async def write(self, tenant: str, packer: Packer, commit: Commit) -> Committed:
        """Write a commit: by itself if there is nobody whose commits could come along, else with others."""
        waiting = self._wait(tenant, packer, commit)
        if waiting.step is None or len(self._held) > 1 or self._alone is not None or self._lanes:
            return await settled(self._queue(waiting))
        return await self._write_alone(waiting)

    def submit(self, tenant: str, packer: Packer, commit: Commit) -> asyncio.Future[Committed]:
        """Queue a commit; the future has what came of it, also if it can't be sent at all."""
        try:
            return self._queue(self._wait(tenant, packer, commit))
        except Exception as error:
            failed: Promise[Committed] = Promise(loop=asyncio.get_running_loop())
            failed.set_exception(error)
            return failed

    def _wait(self, tenant: str, packer: Packer, commit: Commit) -> _Waiting:
        home = (tenant, commit.thread_id)
        threads = frozenset(
            (home, *[(tenant, item.thread_id) for item in commit.inbox]) if commit.inbox else (home,)
        )
        future: Promise[Committed] = Promise(loop=asyncio.get_running_loop())
        waiting = _Waiting(tenant, packer, commit, home, threads, future)
        held = None if home in self._queued or home in self._busy else self._held.get(home)
        if held is not None and self._plain >= FIRST_STEPS:
            waiting.step = step_of(tenant, packer, commit, held)
        return waiting

    def _queue(self, waiting: _Waiting, *, first: bool = False) -> asyncio.Future[Committed]:
        if waiting.step is None and waiting.plan is None:
            waiting.plan = plan_of(waiting.tenant, waiting.packer, waiting.commit)
        self._waiting.insert(0 if first else len(self._waiting), waiting)
        self._queued.add(waiting.thread)
        self._start(waiting.future.get_loop())
        return waiting.future

    async def _write_alone(self, waiting: _Waiting) -> Committed:
        """Go on with a run without a task for it, and so in fewer turns of the loop. Who is cancelled meanwhile
        doesn't know whether it is in, and asks like one whose connection broke."""
        loop = waiting.future.get_loop()
        alone = self._alone = loop.create_future()
        self._busy.add(waiting.thread)
        waiting.held, cancelled = self._held.pop(waiting.thread), False
        self._count(1)
        try:
            await self._go_on([waiting])
        except asyncio.CancelledError:
            cancelled = True
        finally:
            self._alone = None
            alone.set_result(None)
            self._busy.discard(waiting.thread)
            if self._waiting:
                self._start(loop)  # The lane that was begun for them met a thread that was busy, and ended.
        if not waiting.future.done():
            # Before what its owner wrote after it: whether it is in can't be told any more behind that.
            self._held[waiting.thread] = waiting.held
            self._queue(waiting, first=True)
        try:
            return await settled(waiting.future)
        finally:
            if cancelled:
                cancel_again()

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        # A lane begins in the next turn of the loop: others that commit in this turn come along.
        if not self._starting and len(self._lanes) < MAX_IN_FLIGHT:
            self._starting, number = True, next(self._numbers)
            self._lanes[number] = loop.create_task(self._serve(loop, number), name="wakeful-postgres-commits")

    async def _serve(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        """Send one batch after the other, as long as there is something to send."""
        self._starting = False
        try:
            while batch := self._next():
                if self._waiting:
                    self._start(loop)
                self._count(len(batch))
                await self._send(batch)
        finally:
            # In the same turn in which it found nothing more: what comes after that begins another lane.
            del self._lanes[number]

    def _count(self, commits: int) -> None:
        self.batches[0] += 1
        self.batches[1] += commits

    def _next(self) -> list[_Waiting]:
        """The next batch, oldest first. What can't go yet holds back what comes after it on its threads."""
        batch: list[_Waiting] = []
        later: list[_Waiting] = []
        own: set[Key] = set()
        held, size = set(self._busy), 0
        most = len(self._waiting) // 2 if len(self._waiting) >= MANY and not self._busy else MAX_BATCH
        for waiting in self._waiting:
            other = batch and (batch[0].step is None) != (waiting.step is None)
            full = len(batch) >= min(most, MAX_BATCH) or (batch and size + waiting.size > MAX_BATCH_BYTES)
            if full or other or waiting.thread in own or not held.isdisjoint(waiting.threads):
                later.append(waiting)
                held |= waiting.threads
                continue
            batch.append(waiting)
            size += waiting.size
            own.add(waiting.thread)
        self._waiting = later
        self._queued = {waiting.thread for waiting in later}
        for waiting in batch:
            self._busy |= waiting.threads
        return batch

    async def _send(self, batch: list[_Waiting]) -> None:
        try:
            await self._write(batch)
        finally:
            for waiting in batch:
                self._busy -= waiting.threads

    async def _write(self, batch: list[_Waiting]) -> None:
        # Until it is known how this went, nothing is known of these threads.
        for waiting in batch:
            waiting.held = self._held.pop(waiting.thread, None) if waiting.owned else None
        try:
            if batch[0].step is not None:
                await self._go_on(batch)
            if others := [waiting for waiting in batch if not waiting.future.done()]:
                await self._take_the_long_way(others)
        except Exception as error:
            await self._fail([waiting for waiting in batch if not waiting.future.done()], error)

    async def _fail(self, batch: list[_Waiting], error: Exception) -> None:
        if len(batch) == 1 or isinstance(error, StoreUnavailable):
            for waiting in batch:
                waiting.future.set_exception(error)
            return
        for waiting in batch:  # One can't be written; the others can.
            if waiting.held is not None:
                self._held[waiting.thread] = waiting.held
            await self._write([waiting])

    async def _go_on(self, batch: list[_Waiting]) -> None:
        """Write commits that only go on with their runs. Those whose threads aren't as they were left stay as they
        are: they have to go the long way."""
        pairs = [(waiting.step, waiting) for waiting in batch if waiting.step is not None]
        pairs.sort(key=lambda pair: pair[0].head[:2])
        steps = [step for step, _ in pairs]
        unsynced = all(waiting.commit.unsynced for waiting in batch)
        began = monotonic()
        found = await self._connections.run(lambda connection: go_on(connection, steps, unsynced))
        for number, version, head, inbox_head in found:
            step, waiting = pairs[number - 1]
            step.unsynced = unsynced
            self._resolve(waiting, Committed(version, head, step.epoch, inbox_head))
        if found and unsynced:
            self._unsynced.left()
        elif found:
            self._unsynced.synced(began)

    async def _take_the_long_way(self, batch: list[_Waiting]) -> None:
        plans = [waiting.planned() for waiting in batch]
        self._plain += sum([plan.plain for plan in plans])
        if len(plans) > 1 or plans[0].plain or (verdict := await self._shortly(plans[0])) is None:
            verdicts = await self._commit(batch, plans)
        else:
            verdicts = [verdict]
        for waiting, plan, verdict in zip(batch, plans, verdicts, strict=True):
            try:
                done = outcome(waiting.commit, verdict, plan.problem)
            except Exception as error:
                waiting.future.set_exception(error)
            else:
                self._resolve(waiting, done)

    async def _commit(self, batch: list[_Waiting], plans: list[Plan]) -> list[list[Any]]:
        payloads: list[bytes] = []
        firsts: list[int] = []
        for plan in plans:
            firsts.append(len(payloads))
            payloads += plan.payloads
        threads = set[Key]().union(*[waiting.threads for waiting in batch])
        # One that writes to its own thread only locks it by itself.
        keys = sorted([(escaped(tenant), escaped(thread_id)) for tenant, thread_id in threads])
        tenants, ids = ([key[0] for key in keys], [key[1] for key in keys]) if len(keys) > 1 else ([], [])
        began = monotonic()
        commits = "[" + ",".join([plan.control for plan in plans]) + "]"
        # The same call again finds the commits that are in by their ids: trying again is safe.
        text = await self._connections.run(
            lambda connection: connection.fetchval(_COMMIT, commits, payloads, firsts, tenants, ids)
        )
        verdicts = msgspec.json.decode(text)
        if any(verdict[0] == "ok" for verdict in verdicts):
            self._unsynced.synced(began)
        return verdicts

    async def _shortly(self, plan: Plan) -> list[Any] | None:
        """The verdict on a commit that gives an idle thread input, begins a run with it, or ends one; None if it
        goes the long way."""
        told = (_PUT, delivery_of(plan)) if plan.commit.inbox else beginning_of(plan) or ending_of(plan)
        if told is None or told[1] is None:
            return None
        sql, args, began = told[0], told[1], monotonic()
        found = await self._connections.run(lambda connection: connection.fetchrow(sql, *args))
        found = found and (found[0] if plan.commit.inbox else found)
        if found is None:
            return None
        self._unsynced.synced(began)
        return ["ok", *found, found[-1:] if plan.commit.inbox else []]

    def _resolve(self, waiting: _Waiting, done: Committed) -> None:
        """Tell the writer, and keep how its thread was left."""
        waiting.future.set_result(done)
        if waiting.owned and (held := left_by(waiting.commit, done, waiting.step, waiting.held)) is not None:
            self._held[waiting.thread] = held

    def _sync_soon(self) -> None:
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.get_running_loop().create_task(self._sync(), name="wakeful-postgres-sync")

    async def _sync(self) -> None:
        with suppress(StoreError):  # The server syncs by itself after a while, and the next commit does.
            await self._connections.run(lambda connection: connection.execute(_SYNC))

    async def close(self) -> None:
        """Wait until everything that was queued is written."""
        while self._lanes or self._alone is not None:
            ways = [*self._lanes.values(), *([] if self._alone is None else [self._alone])]
            await asyncio.gather(*ways, return_exceptions=True)
        if self._syncing is not None:
            await asyncio.wait([self._syncing])
