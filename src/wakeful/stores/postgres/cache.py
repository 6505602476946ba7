"""Heads of threads that this process knows, and the facts that can be guessed from them.

A guess needs no read. It may be wrong: the guards of the statement and the unique keys of ids detect that, and the
commit is decided again by facts that are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..conditions import changes_records, record_key
from ..facts import recipients_of
from ..heads import Facts, Head, ItemRow, RecordKey, RecordRow, RunRow
from ..records import Commit
from .facts import Key

__all__ = ["HeadCache", "guess_facts"]

_MAX_HEADS = 20_000


class HeadCache:
    """The last known heads of threads, and ends of leases. The oldest entries are dropped first."""

    def __init__(self) -> None:
        self._heads: dict[Key, Head] = {}
        self.leases: dict[str, int] = {}

    def get(self, key: Key) -> Head | None:
        """The head of a thread, if it is known."""
        return self._heads.get(key)

    def put(self, key: Key, head: Head) -> None:
        """Keep the head that a commit or a claim left."""
        self._heads.pop(key, None)
        self._heads[key] = head
        if len(self._heads) > _MAX_HEADS:
            del self._heads[next(iter(self._heads))]

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget the heads of these threads."""
        for key in keys:
            self._heads.pop(key, None)

    def drop_lease(self, worker_id: str) -> None:
        """Forget a lease that was given up."""
        self.leases.pop(worker_id, None)


def guess_facts(cache: HeadCache, tenant: str, commit: Commit, next_thread: int, next_run: int) -> Facts | None:
    """The facts for a group from cached heads; None if they aren't enough.

    Ids that have to be new are taken for new: items, requests, runs, records, and threads that a run starts on.
    """
    heads: dict[str, Head] = {}
    items: dict[str, ItemRow | None] = {}
    runs: dict[str, RunRow | None] = {}
    records: dict[RecordKey, RecordRow | None] = {}
    for one in (commit, *commit.then):
        if one.relays or changes_records(one.records):
            return None
        for thread_id in recipients_of(one):
            if thread_id in heads:
                continue
            head = cache.get((tenant, thread_id))
            if head is None:
                if not _makes_thread(one, thread_id):
                    return None
                head = Head(thread_id)
            heads[thread_id] = head
        for item in one.inbox:
            items[item.id] = None
        if one.request is not None:
            items[one.request.id] = None
        if one.records is not None:
            records.update(dict.fromkeys([record_key(record) for record in one.records.put]))
        opened = heads[one.thread_id].open_run
        for record in one.runs:
            if opened is None or record.id != opened.id:
                runs[record.id] = None
    return Facts(heads, items, runs, {}, records, {}, cache.leases, next_thread, next_run)


def _makes_thread(commit: Commit, thread_id: str) -> bool:
    """Whether the commit most likely makes this thread: by starting its first run, or with a child's input."""
    if thread_id == commit.thread_id and commit.claim is not None and not commit.version:
        return not (commit.inbox_head or commit.taken or commit.seen)
    return any(item.thread_id == thread_id and item.parent_thread_id is not None for item in commit.inbox)
