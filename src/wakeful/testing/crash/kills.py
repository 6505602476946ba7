"""Kill this process at a chosen commit. The child patches its store with this; no other process does."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from ...stores import Commit, Committed
from ...types.calls import Call
from ...types.events import RunFinish, RunStart, ToolCallSuspended
from ...types.messages import Message
from .journal import CommitStarted, Journal, KillPoint, ProcessKilled

__all__ = ["Killer", "describe_commit", "patch_postgres", "patch_sqlite"]


class Killer:
    """Counts the commits of this process and kills it at the target commit."""

    def __init__(self, journal: Journal, commit: int, point: KillPoint | None) -> None:
        self.point = point
        self._journal = journal
        self._number = commit
        self._count = 0
        self._target: Commit | None = None

    def wrap(self, store_commit: Callable[[Any, Commit], Awaitable[Committed]]) -> Callable[[Any, Commit], Any]:
        """Wrap a store's `commit` so that it is counted and killed before or after the target commit."""

        async def commit(store: Any, commit: Commit) -> Committed:
            self._count += 1
            self._journal.write(CommitStarted(self._count, describe_commit(commit)))
            is_target = self._count == self._number
            if is_target:
                self._target = commit
                self.kill_at("before")
            committed = await store_commit(store, commit)
            if is_target:
                self.kill_at("after")
            return committed

        return commit

    def is_target(self, commit: Commit) -> bool:
        """Whether this is the commit to be killed at."""
        return commit is self._target

    def kill_at(self, point: KillPoint) -> None:
        """Kill this process if the target commit is to be killed at this point."""
        if point == self.point:
            self._kill(point)

    def _kill(self, point: KillPoint) -> NoReturn:
        self._journal.write(ProcessKilled(self._number, point))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a process outlived its SIGKILL")


def patch_sqlite(killer: Killer) -> None:
    """Patch the SQLite store to report its commits to the killer."""
    from ...stores.sqlite import SqliteStore
    from ...stores.sqlite.writer import CommitJob, Writer

    put: Callable[[Writer, CommitJob, int], None] = Writer.put

    def put_target(writer: Writer, job: CommitJob, now: int) -> None:
        if killer.is_target(job.commit):
            # At COMMIT, every row of the batch is written and nothing is committed yet.
            writer.trace(lambda sql: killer.kill_at("inside") if sql == "COMMIT" else None)
        put(writer, job, now)

    Writer.put = put_target  # type: ignore[method-assign]
    SqliteStore.commit = killer.wrap(SqliteStore.commit)  # type: ignore[method-assign]


def patch_postgres(killer: Killer) -> None:
    """Patch the Postgres store to report its commits to the killer."""
    from ...stores.postgres.queue import CommitQueue
    from ...stores.postgres.store import PostgresStore

    kind: Any = CommitQueue
    write, send = kind.write, kind._send
    targets: list[Commit] = []

    async def watched(queue: Any, tenant: str, packer: Any, commit: Commit) -> Any:
        if killer.is_target(commit):
            targets.append(commit)
        return await write(queue, tenant, packer, commit)

    async def sent(queue: Any, groups: list[Any]) -> None:
        if any(group.commit is commit for group in groups for commit in targets):
            queue._connections = _KillingConnections(queue._connections, killer)
        await send(queue, groups)

    kind.write, kind._send = watched, sent
    PostgresStore.commit = killer.wrap(PostgresStore.commit)  # type: ignore[method-assign]


class _KillingConnections:
    """Connections that kill the process after a round trip: the server has the batch, the client no reply.

    At `inside`, an open transaction makes the server roll the batch back.
    """

    def __init__(self, connections: Any, killer: Killer) -> None:
        self._connections = connections
        self._killer = killer

    async def run(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async def run_and_kill(connection: Any) -> Any:
            if self._killer.point == "inside":
                await connection.transaction().start()
            result = await work(connection)
            self._killer.kill_at("inside")
            self._killer.kill_at("between")
            return result

        return await self._connections.run(run_and_kill)


def describe_commit(commit: Commit) -> str:
    """Describe a commit in a few words, for reports."""
    words: list[str] = []
    for entry in commit.log:
        match entry:
            case RunStart(trigger=trigger):
                words.append("run starts" if trigger == "new" else f"run goes on ({trigger})")
            case Message(role="user"):
                words.append("input")
            case Message(role="assistant"):
                words.append("answer")
            case ToolCallSuspended(name=name):
                words.append(f"{name} waits")
            case RunFinish(status=status):
                words.append(f"run {status}")
            case _:
                pass
    words += [word for call in commit.calls if (word := _describe_call(call))]
    words += [f"inbox: {item.kind}" for item in commit.inbox]
    words += ["part of an answer"] * bool(commit.chunks)
    return ", ".join(dict.fromkeys(words)) or "bookkeeping"


def _describe_call(call: Call) -> str:
    if call.state == "finished":
        return f"{call.name}: {call.outcome}"
    return f"{call.name} starts" if call.state == "started" else ""
