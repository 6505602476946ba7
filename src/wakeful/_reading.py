"""Looking at what the store holds, and following what happens: the runtime's reading half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from ._checks import check_ids, count_of, cursor_of, id_of, instance_of, one_of, retention_of, thread_of
from ._transfer import Lines, export_lines, import_lines
from ._watching import Watching
from .agents import Agent
from .clock import Clock
from .dispatch import (
    Metrics,
    ParkedProblem,
    RunResult,
    delete_thread,
    parked_problems,
    read_backlog,
    threads_below,
)
from .errors import (
    Conflict,
    InvalidInput,
    RuntimeClosed,
    StoreError,
    UnknownMessage,
    UnknownRun,
    UnknownThread,
    UsageError,
    explain,
)
from .stores import (
    About,
    ChildPolicy,
    Commit,
    Dispatch,
    Pruned,
    Relay,
    RelayStatus,
    Retention,
    Store,
    ThreadRecord,
)
from .types.codec import encode
from .types.content import clean_text
from .types.copies import own
from .types.ids import new_id
from .types.messages import Message
from .types.requests import ToolSpec
from .types.runs import Call, RunRecord, RunStatus
from .types.tickets import Decision, Ticket, TicketStatus

__all__ = ["Ledger", "Reading"]

# How long the store has to answer whoever asks whether it does.
READY_SECONDS = 2.0


class Ledger(Struct, frozen=True):
    """A run's tool calls by what is known of them."""

    finished: tuple[Call, ...] = ()
    waiting: tuple[Call, ...] = ()
    running: tuple[Call, ...] = ()
    never_started: tuple[Call, ...] = ()
    unknown: tuple[Call, ...] = ()


class Reading(Watching):
    """What a runtime can say of its threads, runs and tickets."""

    async def messages(
        self, thread: str, *, after: int | str = 0, limit: int | None = None, newest: int | None = None
    ) -> list[Message]:
        """A thread's conversation, oldest first: from behind a cursor, or the newest so many of it."""
        if limit is not None and newest is not None:
            raise UsageError("messages are the first ones (limit) or the last ones (newest), not both")
        found = await self._store.messages(
            id_of(thread, "thread"),
            after=cursor_of(after)[0],
            limit=count_of(limit, "limit"),
            newest=count_of(newest, "newest"),
        )
        return own(found)

    async def get_run(self, run_id: str) -> RunRecord:
        """A run's record."""
        run = await self._store.run(id_of(run_id, "run"))
        if run is None:
            raise UnknownRun(f"no run {run_id!r} in this store")
        return own(run)

    async def result(self, run_id: str) -> RunResult:
        """What a run came to so far, without waiting for more."""
        self._check_open()
        return await self._dispatch.recall(id_of(run_id, "run"))

    async def list_runs(
        self,
        *,
        thread: str | None = None,
        status: RunStatus | None = None,
        agent: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Run records, newest first, older than the run `before`."""
        one_of(status, get_args(RunStatus), "status")
        check_ids(thread=thread, agent=agent, run=before)
        limit = count_of(limit, "limit") or 100
        found = await self._store.runs(thread_id=thread, status=status, agent_id=agent, before=before, limit=limit)
        return own(found)

    async def dispatches(
        self, *, dead: bool | None = None, after: str | None = None, limit: int = 100
    ) -> list[Dispatch]:
        """What waits for a worker or has one, by thread, from behind the thread `after`; with `dead` only dead
        letters, which `retry` puts back, or only others."""
        instance_of(dead, bool, "dead")
        check_ids(thread=after)
        return await self._store.dispatches(dead=dead, after=after, limit=count_of(limit, "limit") or 100)

    async def calls(self, run_id: str) -> Sequence[Call]:
        """The ledger of a run's tool calls, in order."""
        await self.get_run(run_id)
        return own(await self._store.calls(run_id))

    async def ledger(self, run_id: str) -> Ledger:
        """A run's tool calls by what is known of them: finished, never started, or unknown."""
        groups: dict[str, list[Call]] = {name: [] for name in Ledger.__struct_fields__}
        for call in await self.calls(run_id):
            groups[_standing(call)].append(call)
        return Ledger(*[tuple(calls) for calls in groups.values()])

    async def tickets(
        self,
        run_id: str | None = None,
        *,
        thread: str | None = None,
        status: TicketStatus | None = None,
        assignee: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Ticket]:
        """Tickets, oldest first: of one run or of one thread, with all below it, or of all; whatever became of
        them."""
        one_of(status, get_args(TicketStatus), "status")
        check_ids(thread=thread, ticket=after)
        instance_of(assignee, str, "assignee")
        assignee = None if assignee is None else clean_text(assignee)  # As it was when the ticket was given.
        store, most, above = self._store, count_of(limit, "limit"), thread
        if run_id is not None:
            above = (await self.get_run(run_id)).thread_id
        wanted: dict[str, Any] = {"status": status, "assignee": assignee, "after": after, "limit": most}
        found = list(await store.tickets(run_id, thread_id=thread, **wanted))
        if above is None:
            return own(found)
        for below in await threads_below(store, above, run_id):
            found += await store.tickets(thread_id=below, **wanted)
        return own(sorted(found, key=lambda ticket: ticket.id)[:most])

    async def decisions(self, ticket_id: str) -> Sequence[Decision]:
        """Who answered a ticket, when, how and why."""
        return own(await self._store.decisions(id_of(ticket_id, "ticket")))

    async def relays(
        self,
        *,
        thread: str | None = None,
        run_id: str | None = None,
        status: RelayStatus | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Relay]:
        """What is on its way to recipients outside the store, and what got stuck: `status="dead"`."""
        one_of(status, get_args(RelayStatus), "status")
        return await self._store.relays(
            thread_id=thread, run_id=run_id, status=status, after=after, limit=count_of(limit, "limit")
        )

    async def replay(self, relay_id: str) -> Relay:
        """Try a relay again that was given up, from where it stood."""
        while True:
            relay = await self._store.relay(id_of(relay_id, "relay"))
            if relay is None or relay.status != "dead":
                found = "there is none of that id" if relay is None else f"it is {relay.status}"
                raise UnknownMessage(
                    f"{relay_id!r:.80} can't be replayed: only what was given up can, and {found}; see "
                    "dead_letters() and relays(status='dead')"
                )
            again = replace(
                relay, status="live", attempts=0, due_at=self._env.clock.now(), revision=relay.revision + 1
            )
            with suppress(Conflict):
                await self._store.commit(Commit(relay.thread_id, relays=[again]))
                return again

    # -- threads ---------------------------------------------------------------------------------------------

    async def threads(self, *, before: str | None = None, limit: int = 100) -> list[ThreadRecord]:
        """Threads, newest first, older than the thread `before`; without those of delegated runs."""
        check_ids(thread=before)
        found = await self._store.threads(before=before, limit=count_of(limit, "limit") or 100)
        if before is not None and not found and await self._store.thread(before) is None:
            raise UnknownThread(
                f"no thread {before!r} in this store to list older ones than; if it was deleted since the last "
                "page, begin with the first one again"
            )
        return own(found)

    async def get_thread(self, thread: str) -> ThreadRecord:
        """A thread's record, with its title and metadata."""
        found = await self._store.thread(id_of(thread, "thread"))
        if found is None:
            raise UnknownThread(f"no thread {thread!r} in this store")
        return own(found)

    async def describe(
        self, thread: str, *, title: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Give a thread a title or metadata of yours; what isn't given stays, an empty title removes it."""
        thread_of(thread)
        instance_of(title, str, "title")
        instance_of(metadata, Mapping, "metadata")
        about = About(None if title is None else clean_text(title), None if metadata is None else dict(metadata))
        try:
            encode(about)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidInput(f"the metadata of thread {thread!r} can't be kept as JSON: {error}") from error
        await self._store.commit(Commit(thread, about=about))

    async def fork(self, thread: str, *, at: int | None = None, into: str | None = None) -> str:
        """A new thread that shares this one's conversation up to the entry `at`, all of it by default, and its
        state as it was there; returns its id. To edit and run again, fork before the message and run."""
        if at is not None and type(at) is not int:
            raise UsageError(f"at is the seq of an entry, such as message.seq, or None for all; not {at!r:.80}")
        record = await self.get_thread(thread)
        at = record.head if at is None else at
        if (open_calls := _unanswered(await self._store.messages(thread), at)) is not None:
            raise UsageError(
                f"thread {thread!r} can't be forked at {at}: the tool calls of message {open_calls} would have no "
                f"results there; fork at {open_calls - 1}, or after their results"
            )
        forked = await self._store.fork(thread, at, thread_of(into) if into is not None else new_id())
        return forked.id

    async def delete(self, thread: str, *, children: ChildPolicy = "reject") -> int:
        """Remove a thread and everything of it; returns how many threads that were. What becomes of the threads
        of runs that it delegated: `reject` refuses, `detach` keeps them, `cascade` removes them too. A run that
        waits for what ran on it goes on, as if that had been cancelled."""
        self._check_open()
        one_of(children, get_args(ChildPolicy), "children")
        removed = await delete_thread(self._dispatch, id_of(thread, "thread"), children)
        if not removed:
            raise UnknownThread(f"no thread {thread!r} in this store")
        self._bus.end(thread)
        return removed

    def export_thread(self, thread: str) -> AsyncIterator[bytes]:
        """A thread as lines of JSON that `import_thread` takes: its title and metadata, runs, log, calls, tickets,
        decisions, state and pending inbox. Its run must wait or be done."""
        return export_lines(self._store, thread_of(thread))

    async def import_thread(self, lines: Lines, *, into: str | None = None) -> str:
        """Write a thread that was exported, all of it or nothing; returns its id. Its ids stay as they are, and
        must be new here. With `into` it becomes a copy: a thread of that id, whose runs, calls and tickets have
        new ids too."""
        return await import_lines(self._store, lines, into)

    async def prune(self, retention: Retention) -> Pruned:
        """Remove what is older than it has to be kept."""
        retention_of(retention)
        return await self._store.prune(retention)

    async def parked_problems(self, store: Store | None = None) -> list[ParkedProblem]:
        """The waiting runs that this runtime's code can't go on with, and why; of its store, or of another."""
        return await parked_problems(self._env.registry, self._store if store is None else store)

    @property
    def store(self) -> Store:
        """The store, as this runtime's tenant sees it."""
        return self._env.store

    @property
    def clock(self) -> Clock:
        """What time it is to this runtime."""
        return self._env.clock

    async def metrics_text(self) -> str:
        """What this process did so far and what waits in the store, as Prometheus reads it."""
        await read_backlog(self.metrics, self._env.store)
        return self.metrics.text()

    async def readiness(self) -> str | None:
        """Why it can't be given work at present: it drains, or the store can't be used; None if it can."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._store.head("")
        except RuntimeClosed as error:
            return str(error)
        except (StoreError, TimeoutError) as error:
            return f"the store doesn't answer: {explain(error)}"
        return "it was told to stop, and claims and begins nothing more" if self._dispatch.closed else None

    @property
    def metrics(self) -> Metrics:
        """What this process did so far, counted."""
        raise NotImplementedError

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents by id."""
        return self._env.registry.agents

    def tools_of(self, agent: str) -> Sequence[ToolSpec]:
        """What an agent's model is offered: its tools, as data."""
        return self._env.registry.resolve(agent).specs

    @property
    def abandoned(self) -> int:
        """Tool calls that were told to stop, didn't, and still run: tasks and threads."""
        return len(self._env.abandoned) + self._env.threads.abandoned


def _standing(call: Call) -> str:
    if call.state == "finished":
        if call.outcome == "unknown":
            return "unknown"
        return "finished" if call.attempt or call.outcome in ("ok", "error") else "never_started"
    return {"started": "running", "suspended": "waiting"}.get(call.state, "never_started")


def _unanswered(messages: Sequence[Message], at: int) -> int | None:
    """The message up to `at` whose calls have no results up to there, if there is one."""
    asked: dict[str, int] = {}
    for message in messages:
        if message.seq > at:
            break
        asked |= {call.id: message.seq for call in message.calls}
        if message.reply is not None:
            asked.pop(message.reply.call_id, None)
    return min(asked.values(), default=None)
