"""Writing a batch of commits: load facts, decide, and write all of it with one guarded statement.

A group is a commit with its followers (`Commit.then`). Groups are decided by cached heads where that is possible.
A group whose guards miss is decided again by facts that are loaded; after `MAX_MISSES` misses its threads are
locked first. A group whose statement had no reply is looked up before it is decided again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...types.codec import clean_value
from ...types.ids import new_id
from ..codec.packer import Packer
from ..conditions import changes_records, record_key
from ..heads import Facts, NeedFacts, RecordKey
from ..records import Commit, Committed
from ..rules import Refusal, decide_group
from ..sql.rows import group_rows
from ..writes import number_items
from .cache import HeadCache, guess_facts
from .clock import ServerClock
from .driver import is_broken
from .facts import Key, Loaded, load_facts, lock_rows
from .numbers import NumberBlock
from .outcomes import Decided, is_found_by_version, is_written, load_edits
from .statements import build_statement, escape_rows, guards_of, read_reply, size_of

__all__ = ["BatchWriter", "Group"]

MAX_MISSES = 3
MAX_BATCH_BYTES = 4 * 1024 * 1024

_UNIQUE_VIOLATION = "23505"

Result = tuple["Group", Committed | Exception]


class Group(Struct, eq=False):
    """A commit with its followers, on its way to the database.

    `misses` counts decisions that turned out to be based on stale facts. `unknown` has the decisions that were
    sent and had no reply.
    """

    tenant: str
    packer: Packer
    commit: Commit
    threads: frozenset[Key]
    future: asyncio.Future[Committed]
    misses: int = 0
    decided: Decided | None = None
    unknown: list[Decided] = []

    @property
    def needs_lock(self) -> bool:
        """Whether to lock the threads and records first. Relays and records have no guard but a lock."""
        if self.misses >= MAX_MISSES:
            return True
        return any(one.relays or changes_records(one.records) for one in (self.commit, *self.commit.then))

    @property
    def records(self) -> list[tuple[str, RecordKey]]:
        """The records that the group may change."""
        found = [one.records for one in (self.commit, *self.commit.then) if one.records is not None]
        return [(self.tenant, record_key(record)) for one in found for record in (*one.put, *one.removed)]


class BatchWriter:
    """Writes batches for one pool of connections."""

    def __init__(self, clock: ServerClock) -> None:
        self.cache = HeadCache()
        self._clock = clock
        self._threads = NumberBlock("threads_no_seq")
        self._runs = NumberBlock("runs_no_seq")

    async def write(self, connection: Any, groups: Sequence[Group]) -> None:
        """Write groups that touch different threads, and set their futures.

        Raises the error of a statement that failed; groups without a result can be given again.
        """
        while left := [group for group in groups if not group.future.done()]:
            if locked := [group for group in left if group.needs_lock]:
                await self._try(connection, locked, self._write_locked)
            else:
                await self._try(connection, left, self._write_guarded)

    async def _try(self, connection: Any, groups: Sequence[Group], write: Any) -> None:
        try:
            results = await write(connection, groups)
        except Exception as error:
            for group in groups:
                self.cache.drop(group.threads)
                if not is_broken(error) and group.unknown and group.unknown[-1] is group.decided:
                    group.unknown.pop()  # The transaction was rolled back.
                group.decided = None
            if getattr(error, "sqlstate", None) != _UNIQUE_VIOLATION:
                raise
            for group in groups:
                group.misses += 1
            if all(group.misses > MAX_MISSES for group in groups):
                raise
            return
        for group, result in results:
            if isinstance(result, Exception):
                group.future.set_exception(result)
            else:
                group.future.set_result(result)

    async def _write_locked(self, connection: Any, groups: Sequence[Group]) -> list[Result]:
        async with connection.transaction():
            threads = [key for group in groups for key in group.threads]
            await lock_rows(connection, threads, [key for group in groups for key in group.records])
            for group in groups:
                group.misses = max(group.misses, 1)  # Decide by facts that are loaded under the locks.
            return await self._write_guarded(connection, groups)

    async def _write_guarded(self, connection: Any, groups: Sequence[Group]) -> list[Result]:
        """Decide and write; groups that have no result are to be decided again."""
        results = await self._decide(connection, groups)
        ready: list[tuple[Group, Decided]] = []
        size = 0
        for group in groups:
            decided = group.decided
            if decided is None:
                continue
            if not decided.rows:
                results.append((group, self._finish(group, decided, {})))
                continue
            size += size_of(decided.rows)
            if ready and size > MAX_BATCH_BYTES:
                break  # The rest is decided again, after this is written.
            ready.append((group, decided))
        if not ready:
            return results
        sql, args = build_statement([(decided.guards, decided.rows) for _, decided in ready])
        for group, decided in ready:
            group.unknown = [*group.unknown, decided]
        reply = read_reply(await connection.fetch(sql, *args))
        for place, (group, decided) in enumerate(ready):
            if place in reply.misses:
                group.unknown.pop()
                group.misses += 1
                self.cache.drop(group.threads)
            else:
                results.append((group, self._finish(group, decided, reply.inbox_heads)))
        return results

    # -- deciding ----------------------------------------------------------------------------------------------

    async def _decide(self, connection: Any, groups: Sequence[Group]) -> list[Result]:
        """Decide groups, and return the results of those that aren't to be written."""
        await self._reserve(connection, groups)
        results: list[Result] = []
        to_load = [group for group in groups if not self._decide_by_guess(group)]
        if not to_load:
            return results
        needs = {id(group): _needs_of(group.commit) for group in to_load}
        workers = {one.claim for group in to_load for one in (group.commit, *group.commit.then) if one.claim}
        loaded = await load_facts(
            connection, [(group.tenant, needs[id(group)]) for group in to_load], sorted(workers)
        )
        edits = await load_edits(connection, [decided for group in to_load for decided in group.unknown])
        self._clock.set(loaded.now)
        await self._reserve(connection, to_load)
        for group in to_load:
            sent = [one for one in group.unknown if is_written(group.tenant, one, loaded, edits)]
            if sent:
                results.append((group, self._finish(group, sent[-1], None)))
                continue
            error = self._decide_by_load(group, loaded, needs[id(group)])
            if error is not None:
                results.append((group, error))
        return results

    async def _reserve(self, connection: Any, groups: Sequence[Group]) -> None:
        """Reserve numbers for all threads and runs that the groups may make."""
        runs = sum([len(one.runs) for group in groups for one in (group.commit, *group.commit.then)])
        threads = sum([len(group.threads) for group in groups])
        # A concurrent batch may use numbers while this one waits for more.
        while not (self._runs.has(runs) and self._threads.has(threads)):
            await self._runs.reserve(connection, runs)
            await self._threads.reserve(connection, threads)

    def _decide_by_guess(self, group: Group) -> bool:
        """Decide by cached heads. False if that isn't possible, or if the commit would be refused."""
        group.decided = None
        if group.misses or group.unknown:
            return False
        facts = guess_facts(self.cache, group.tenant, group.commit, self._threads.next, self._runs.next)
        if facts is None:
            return False
        try:
            decided = self._decide_one(group, facts, self._clock.now())
        except Exception:
            return False
        if not isinstance(decided, Decided) or not decided.rows:
            return False  # Without a statement no guard would check the guess.
        group.decided = decided
        return True

    def _decide_by_load(self, group: Group, loaded: Loaded, needs: NeedFacts) -> Exception | None:
        """Decide by loaded facts; returns the error that refuses the commit."""
        group.decided = None
        facts = loaded.facts_of(group.tenant, needs, self._threads.next, self._runs.next)
        try:
            decided = self._decide_one(group, facts, loaded.now)
        except UnicodeEncodeError:
            group.commit = clean_value(group.commit)
            try:
                decided = self._decide_one(group, facts, loaded.now)
            except Exception as error:
                return error
        except Exception as error:
            return error
        if isinstance(decided, Refusal):
            return decided.error
        if isinstance(decided, NeedFacts):
            raise RuntimeError(f"facts are missing that were loaded: {decided!r:.200}")
        group.decided = decided
        return None

    def _decide_one(self, group: Group, facts: Facts, now: int) -> Decided | Refusal | NeedFacts:
        found = decide_group(facts, group.commit, now)
        if isinstance(found, Refusal | NeedFacts):
            return found
        commit_id = None if is_found_by_version(group.commit) else new_id()
        rows = escape_rows(group_rows(group.tenant, group.packer, facts, found, commit_id))
        decided = Decided(facts, found, guards_of(facts, found), rows, commit_id)
        self._threads.next, self._runs.next = found.facts.next_thread, found.facts.next_run
        return decided

    # -- results -----------------------------------------------------------------------------------------------

    def _finish(self, group: Group, decided: Decided, inbox_heads: dict[int, int] | None) -> Committed:
        """Keep the heads of a written group, and return its result.

        `inbox_heads` are those that the statement found; None if its reply was lost: the heads aren't known then.
        """
        moved: dict[str, int] = {}
        for thread_id, head in decided.group.facts.heads.items():
            before = decided.facts.heads[thread_id]
            found = (inbox_heads or {}).get(head.no, before.inbox_head)
            if found != before.inbox_head:
                # Items arrived that this process hasn't seen.
                moved[thread_id] = head.inbox_head + found - before.inbox_head
                head = replace(head, inbox_head=moved[thread_id], pending=None)
            if inbox_heads is not None and head.no:
                self.cache.put((group.tenant, thread_id), head)
        for writes in decided.group.writes:
            number_items(writes)
            if writes.lease is not None:
                self.cache.leases[writes.lease.worker_id] = writes.lease.until
        return _move_inbox(decided, group.commit, moved) if moved else decided.group.committed


def _needs_of(commit: Commit) -> NeedFacts:
    """All facts that a group may need."""
    found = decide_group(Facts({}), commit, 0)
    if not isinstance(found, NeedFacts):
        raise RuntimeError("a commit was decided without facts")
    return found


def _move_inbox(decided: Decided, commit: Commit, moved: dict[str, int]) -> Committed:
    """The result of a group, with the inbox heads that its threads have by now."""

    def with_inbox_head(done: Committed, thread_id: str) -> Committed:
        return replace(done, inbox_head=moved[thread_id]) if thread_id in moved else done

    done = decided.group.committed
    pairs = zip(done.then, commit.then, strict=True) if done.then else ()
    then = tuple([one and with_inbox_head(one, follower.thread_id) for one, follower in pairs])
    return replace(with_inbox_head(done, commit.thread_id), then=then)
