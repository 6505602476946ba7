"""The watch feed: hints of what changed in a tenant, for readers that show lists.

A feed compares marks of the store once a second while it has readers, so that it sees the changes of every process
on the store, without a bus. It costs nothing without a reader, and one set of queries for all readers of a tenant.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from msgspec import Struct

from ..api.watch import Hint, HintKind
from ..errors import RuntimeClosed, StoreError, UsageError, explain
from ..runtime import Runtime, TenantRuntime
from ..stores import ThreadRecord
from ..types.runs import RunRecord
from ..types.tickets import Ticket

__all__ = ["Change", "FeedReader", "Watch"]

_log = logging.getLogger("wakeful.server")

# The marks of each kind that are compared.
MARKS = 200
# The pending changes of a reader. One that has more is told to fetch everything again.
MAX_PENDING = 500

Key = tuple[HintKind, str]


class Change(Struct, frozen=True):
    """A hint and the record that it is about, which says who may see it; None if the record is gone."""

    hint: Hint
    record: RunRecord | Ticket | ThreadRecord | None = None


class FeedReader:
    """A reader of a feed: its pending changes, merged by resource."""

    def __init__(self) -> None:
        self.has_lost = False
        self.is_ended = False
        self._pending: dict[Key, Change] = {}
        self._news = asyncio.Event()

    def push(self, change: Change) -> None:
        """Add a change."""
        self._pending[change.hint.kind, change.hint.id] = change
        if len(self._pending) > MAX_PENDING:
            self._pending.clear()
            self.has_lost = True
        self._news.set()

    def end(self) -> None:
        """Note that no more changes follow."""
        self.is_ended = True
        self._news.set()

    async def take(self) -> list[Change]:
        """Wait for changes and take them all. None are left after `has_lost` was set, or at the end."""
        await self._news.wait()
        self._news.clear()
        found = list(self._pending.values())
        self._pending.clear()
        return found


class Watch:
    """The feeds of a server, one for each tenant that has readers."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._feeds: dict[str, _Feed] = {}

    async def join(self, runtime: TenantRuntime, cluster: Runtime | None) -> FeedReader:
        """Add a reader of a tenant's feed. It sees what changes after this returned."""
        tenant = runtime.store.tenant_name
        feed = self._feeds.get(tenant)
        if feed is None:
            feed = self._feeds[tenant] = _Feed(runtime, cluster, self._seconds)
        reader = FeedReader()
        feed.readers.add(reader)
        try:
            await asyncio.shield(feed.first)
        except BaseException:
            await self.leave(runtime, reader)
            raise
        return reader

    async def leave(self, runtime: TenantRuntime, reader: FeedReader) -> None:
        """Remove a reader; the last one ends the feed."""
        tenant = runtime.store.tenant_name
        feed = self._feeds.get(tenant)
        if feed is None:
            return
        feed.readers.discard(reader)
        if not feed.readers:
            del self._feeds[tenant]
            feed.task.cancel()
            await asyncio.wait({feed.task})

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants whose stores are polled at present."""
        return tuple(self._feeds)


class _Feed:
    def __init__(self, runtime: TenantRuntime, cluster: Runtime | None, seconds: float) -> None:
        self.readers: set[FeedReader] = set()
        self._runtime = runtime
        self._cluster = cluster
        self._seconds = seconds
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[None] = loop.create_future()
        self.task = loop.create_task(self._poll())

    async def _poll(self) -> None:
        known: Mapping[Key, str] | None = None
        try:
            while True:
                try:
                    present = await self._marks()
                    if known is None:
                        self.first.set_result(None)
                    else:
                        await self._tell(known, present)
                    known = present
                except RuntimeClosed:
                    raise
                except StoreError as error:
                    _log.debug("a watch feed can't read the store: %s", explain(error))
                await asyncio.sleep(self._seconds)
        except RuntimeClosed:
            for reader in self.readers:
                reader.end()
        finally:
            if not self.first.done():
                self.first.set_result(None)

    async def _marks(self) -> dict[Key, str]:
        found: dict[Key, str] = {}
        for mark in await self._runtime.store.marks(limit=MARKS):
            found[mark.kind, mark.id] = mark.text
        if self._cluster is not None:
            try:
                workers = await self._cluster.workers.list()
            except UsageError:
                workers = ()  # A store in memory has no other workers.
            for worker in workers:
                found["worker", worker.id] = worker.state
        return found

    async def _tell(self, known: Mapping[Key, str], present: Mapping[Key, str]) -> None:
        changed = [key for key, text in present.items() if known.get(key) != text]
        # A run that is done or a thread that isn't among the newest leaves the marks without a change.
        gone = [key for key in known if key not in present and _is_open(key, known[key])]
        for key in changed + gone:
            change = await self._change(key, present.get(key))
            for reader in self.readers:
                reader.push(change)

    async def _change(self, key: Key, text: str | None) -> Change:
        """Read the record of a mark that changed, once for all readers."""
        kind, an_id = key
        store = self._runtime.store
        match kind:
            case "run":
                run = await store.run(an_id)
                if run is None:
                    return Change(Hint(kind=kind, id=an_id))
                return Change(Hint(kind=kind, id=an_id, status=run.status, thread_id=run.thread_id), run)
            case "ticket":
                ticket = await store.ticket(an_id)
                if ticket is None:
                    return Change(Hint(kind=kind, id=an_id))
                return Change(Hint(kind=kind, id=an_id, status=ticket.status, thread_id=ticket.thread_id), ticket)
            case "thread":
                thread = await store.thread(an_id)
                status = None if thread is None else "open" if thread.open_run_id else "idle"
                return Change(Hint(kind=kind, id=an_id, status=status), thread)
            case _:
                return Change(Hint(kind=kind, id=an_id, status=text))


def _is_open(key: Key, text: str) -> bool:
    """Whether a resource that left the marks changed, and didn't only become an old one."""
    kind, _ = key
    return kind in ("ticket", "worker") or (kind == "run" and not text.startswith("done "))
