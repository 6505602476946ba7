"""Reads of a store in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, TypeVar, Unpack

from msgspec.structs import replace

from ...types.calls import Call
from ...types.events import Event
from ...types.inbox import InboxItem
from ...types.messages import Message
from ...types.records import ApiKey, MemoryNote, Record
from ...types.runs import RunRecord, TaskRecord, TaskStatus
from ...types.tickets import Decision, Ticket
from ..conditions import checked_tenant, record_kind, record_time
from ..filters import RunFilters, TicketFilters, TicketOrder, due_of, matches_run, matches_ticket
from ..memories import MAX_SCANNED, rank_notes
from ..overview import Mark, Tally
from ..records import Chunk, ThreadRecord, ThreadView
from ..relays import Relay, RelayStatus, wanted
from ..usage import UsageKey, UsageRow, usage_rows
from .tables import Database, Run, Tenant, Thread

__all__ = ["MemoryReads"]

R = TypeVar("R", bound=Record)

_seq = attrgetter("seq")


class MemoryReads:
    """The reading half of a handle on one tenant."""

    def _open(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant: Tenant = database.tenant(checked_tenant(tenant))
        self._threads = self._tenant.threads
        self._thread_of = self._tenant.thread_of_run

    @property
    def tenant_name(self) -> str:
        """Whose rows the handle sees."""
        return self._tenant.name

    # -- the view --------------------------------------------------------------------------------------------

    async def load(self, thread_id: str) -> ThreadView | None:
        """The thread's view, or None if it doesn't exist."""
        thread = self._threads.get(thread_id)
        if thread is None:
            return None
        run = thread.open_run
        view = ThreadView(
            thread=self._record(thread),
            tasks=tuple([task for _, task in sorted(thread.tasks.items()) if task.status == "running"]),
            inbox=tuple(thread.inbox.values()),
            state=dict(thread.state),
        )
        if run is None:
            return view
        of_run, is_open = thread.runs[run.id], run.stage != "between"
        return replace(
            view,
            run=run,
            run_state=dict(of_run.state),
            tickets=tuple(
                [t for _, t in sorted(thread.tickets.items()) if t.run_id == run.id and t.status == "open"]
            ),
            calls=tuple([c for c in _in_order(of_run) if c.step == run.steps]) if is_open else (),
            answer=of_run.answer,
        )

    def _record(self, thread: Thread) -> ThreadRecord:
        claim = thread.head.claim
        return thread.record(claim if claim is not None and self._database.is_alive(claim) else None)

    # -- the log ---------------------------------------------------------------------------------------------

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
        if newest is None:
            return self._read(thread_id, "messages", after, limit, before)
        return self._read_newest(thread_id, after, newest, before)

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The thread's durable events, oldest first, from behind a sequence number."""
        return self._read(thread_id, "log", after, limit)

    def _read(
        self,
        thread_id: str,
        what: Literal["messages", "log"],
        after: int,
        limit: int | None,
        before: int | None = None,
    ) -> list[Any]:
        found: list[Any] = []
        for part, low, high in self._chain(thread_id, before):
            missing = None if limit is None else limit - len(found)
            if high > after and missing != 0:
                entries: list[Any] = getattr(part, what)
                start, end = _range_between(entries, max(low, after), high)
                found += entries[start : end if missing is None else min(end, start + missing)]
        return found

    def _read_newest(self, thread_id: str, after: int, newest: int, before: int | None) -> list[Message]:
        found: list[Message] = []
        for part, low, high in reversed(self._chain(thread_id, before)):
            if high > after and len(found) < newest:
                start, end = _range_between(part.messages, max(low, after), high)
                found[:0] = part.messages[max(start, end - newest + len(found)) : end]
        return found

    def _chain(self, thread_id: str, before: int | None) -> list[tuple[Thread, int, int]]:
        """The threads that hold a log up to a sequence number, its own last, each with its part."""
        thread = self._threads.get(thread_id)
        chain = thread.chain() if thread is not None else []
        return chain if before is None else [(part, low, min(high, before - 1)) for part, low, high in chain]

    async def head(self, thread_id: str) -> int:
        """The last number of the thread's log; 0 if there is none."""
        thread = self._threads.get(thread_id)
        return thread.head.log_head if thread else 0

    async def chunks(self, thread_id: str) -> list[Chunk]:
        """The chunks of an answer that is being streamed, in order."""
        thread = self._threads.get(thread_id)
        return [chunk for _, chunk in thread.chunks] if thread else []

    # -- runs and what hangs off them ------------------------------------------------------------------------

    def _run(self, run_id: str) -> Run | None:
        thread = self._thread_of.get(run_id)
        return thread.runs.get(run_id) if thread else None

    async def run(self, run_id: str) -> RunRecord | None:
        """One run's record."""
        run = self._run(run_id)
        return run.record if run else None

    async def runs(
        self, *, before: str | None = None, limit: int = 100, **filters: Unpack[RunFilters]
    ) -> list[RunRecord]:
        """Run records, newest first, older than the run `before`; with `root_run_id` those below that run."""
        in_range = filters.get("since") is not None or filters.get("until") is not None
        found = self._runs(filters)

        def age(run: RunRecord) -> tuple[int, str]:
            return run.created_at if in_range else 0, run.id

        if before is not None:
            last = await self.run(before) if in_range else None
            if in_range and last is None:
                return []
            found = [run for run in found if age(run) < ((0, before) if last is None else age(last))]
        return sorted(found, key=age, reverse=True)[:limit]

    async def count_runs(self, limit: int, **filters: Unpack[RunFilters]) -> Tally:
        """The number of runs, counted up to `limit`."""
        found = len(self._runs(filters))
        return Tally(min(found, limit), found > limit)

    def _runs(self, filters: RunFilters) -> list[RunRecord]:
        thread_id, root_run_id = filters.get("thread_id"), filters.get("root_run_id")
        thread = self._threads.get(thread_id) if thread_id is not None else None
        known = thread.runs if thread else self._thread_of if thread_id is None else ()
        if root_run_id is not None:
            known = [run_id for run_id in self._tenant.trees.get(root_run_id, ()) if run_id in known]
        records = [self._thread_of[run_id].runs[run_id].record for run_id in known]
        return [run for run in records if matches_run(run, filters)]

    async def answer(self, run_id: str) -> Message | None:
        """The last answer of a run."""
        run = self._run(run_id)
        return run.answer if run else None

    async def calls(self, run_id: str) -> Sequence[Call]:
        """The whole ledger of a run, in order."""
        run = self._run(run_id)
        return _in_order(run) if run else []

    async def tickets(
        self,
        run_id: str | None = None,
        *,
        order: TicketOrder = "created",
        after: tuple[int, str] | None = None,
        limit: int | None = None,
        **filters: Unpack[TicketFilters],
    ) -> Sequence[Ticket]:
        """Tickets of a run, a thread or the tenant: oldest first, or by their deadlines."""

        def position(ticket: Ticket) -> tuple[int, str]:
            return due_of(ticket) if order == "deadline" else 0, ticket.id

        found = self._tickets(run_id, filters)
        if after is not None:
            last = after if order == "deadline" else (0, after[1])
            found = [ticket for ticket in found if position(ticket) > last]
        return sorted(found, key=position)[:limit]

    async def count_tickets(
        self, limit: int, run_id: str | None = None, **filters: Unpack[TicketFilters]
    ) -> Tally:
        """The number of tickets, counted up to `limit`."""
        found = len(self._tickets(run_id, filters))
        return Tally(min(found, limit), found > limit)

    def _tickets(self, run_id: str | None, filters: TicketFilters) -> list[Ticket]:
        known = [thread.tickets[ticket_id] for ticket_id, thread in self._tenant.thread_of_ticket.items()]
        return [ticket for ticket in known if matches_ticket(ticket, run_id, filters)]

    async def ticket(self, ticket_id: str) -> Ticket | None:
        """One ticket."""
        thread = self._tenant.thread_of_ticket.get(ticket_id)
        return thread.tickets[ticket_id] if thread else None

    async def tasks(self, thread_id: str, *, status: TaskStatus | None = None) -> Sequence[TaskRecord]:
        """The tasks that a thread owns, oldest first."""
        thread = self._threads.get(thread_id)
        found = sorted(thread.tasks.items()) if thread else []
        return [task for _, task in found if status in (None, task.status)]

    async def decisions(self, ticket_id: str) -> Sequence[Decision]:
        """The decisions on a ticket, in order."""
        thread = self._tenant.thread_of_ticket.get(ticket_id)
        found = [d for d in thread.decisions.values() if d.ticket_id == ticket_id] if thread else []
        return sorted(found, key=lambda decision: (decision.at, decision.id))

    async def decision(self, decision_id: str) -> Decision | None:
        """One decision."""
        thread = self._tenant.thread_of_decision.get(decision_id)
        return thread.decisions.get(decision_id) if thread else None

    async def has_id(self, an_id: str) -> bool:
        """Whether a decision, an inbox item or a request has this id."""
        return an_id in self._tenant.items or await self.decision(an_id) is not None

    async def item(self, item_id: str) -> InboxItem | None:
        """An inbox item or a request in any state."""
        return self._tenant.items.get(item_id)

    async def item_of_run(self, run_id: str) -> InboxItem | None:
        """The input that this run is of, if it had to wait its turn; the run may not be there yet."""
        return self._tenant.items.get(self._tenant.item_of_run.get(run_id, ""))

    # -- relays ----------------------------------------------------------------------------------------------

    async def relay(self, relay_id: str) -> Relay | None:
        """One relay."""
        return self._tenant.relays.get(relay_id)

    async def relays(
        self,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        kind: str | None = None,
        status: RelayStatus | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Relay]:
        """Relays, oldest first, from behind the relay `after`."""
        relays = [relay for relay in self._tenant.relays.values() if after is None or relay.id > after]
        return wanted(relays, thread_id=thread_id, run_id=run_id, kind=kind, status=status)[:limit]

    async def due_relays(self, kind: str, now: int, *, limit: int = 100) -> Sequence[Relay]:
        """Due live relays of a kind, with entries after their cursor and without a deliverer."""
        due = [
            relay
            for relay in await self.relays(kind=kind, status="live")
            if relay.due_at <= now
            and relay.until <= now
            and self._threads[relay.thread_id].head.log_head > relay.cursor
        ]
        return sorted(due, key=lambda relay: (relay.due_at, relay.id))[:limit]

    # -- records without a thread ----------------------------------------------------------------------------

    async def record(self, kind: type[R], record_id: str) -> R | None:
        """A record that belongs to no thread; None if there is none."""
        found = self._tenant.records.get((record_kind(kind), record_id))
        return found if isinstance(found, kind) else None

    async def records(
        self, kind: type[R], *, before: str | None = None, prefix: str = "", limit: int = 100
    ) -> list[R]:
        """Records of a kind older than the record `before`, newest first, with this prefix of their ids."""
        every = [record for record in self._tenant.records.values() if isinstance(record, kind)]
        found = [record for record in every if record.id.startswith(prefix)]
        if before is not None:
            last = await self.record(kind, before)
            found = [] if last is None else [record for record in found if _age(record) < _age(last)]
        return sorted(found, key=_age, reverse=True)[:limit]

    async def find_memories(self, prefix: str, words: Sequence[str], *, limit: int = 20) -> list[MemoryNote]:
        """The notes of an id's prefix with words that begin so, the best match first."""
        return rank_notes(await self.records(MemoryNote, prefix=prefix, limit=MAX_SCANNED), words, limit)

    async def find_record(self, kind: type[ApiKey], record_id: str) -> tuple[str, ApiKey] | None:
        """The tenant of an API key and the key, of any tenant; None if there is none."""
        tenant = self._database.keys.get((record_kind(kind), record_id))
        found = (
            None if tenant is None else self._database.tenant(tenant).records.get((record_kind(kind), record_id))
        )
        return (tenant, found) if tenant is not None and isinstance(found, kind) else None

    async def usage(
        self, by: Sequence[UsageKey], *, since: int | None = None, until: int | None = None
    ) -> list[UsageRow]:
        """Sums over the usage log by these keys, in their order, from `since` on and before `until` in ms."""
        return usage_rows(self._tenant.usage, since, until, by)

    # -- threads ---------------------------------------------------------------------------------------------

    async def thread(self, thread_id: str) -> ThreadRecord | None:
        """One thread's record."""
        thread = self._threads.get(thread_id)
        return self._record(thread) if thread else None

    async def threads(
        self,
        *,
        principal: str | None = None,
        agents: Collection[str] | None = None,
        base: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[ThreadRecord]:
        """Threads, newest first, older than the thread `before`; without those of delegated runs."""
        last = self._threads.get(before) if before is not None else None
        if before is not None and last is None:
            return []
        found: list[ThreadRecord] = []
        for thread in reversed(self._threads.values()):
            if len(found) >= limit:
                break
            is_theirs = principal in (None, thread.principal)
            is_theirs &= base is None or (thread.base is not None and thread.base.id == base)
            if is_theirs and thread.head.parent is None and (last is None or thread.head.no < last.head.no):
                record = self._record(thread)
                if agents is None or record.last_agent_id in agents:
                    found.append(record)
        return found

    async def marks(self, *, limit: int = 200) -> Sequence[Mark]:
        """The marks of open runs with their threads, of open tickets, and of the newest runs and threads."""
        runs = await self.runs(limit=limit)
        for status in ("running", "waiting"):
            runs += await self.runs(status=status, limit=limit)
        threads = {one.id: one for one in await self.threads(limit=limit)}
        threads |= {run.thread_id: self._record(self._threads[run.thread_id]) for run in runs}
        tickets = await self.tickets(status="open")
        return [
            *{Mark("run", run.id, f"{run.status} {run.stage} {run.steps}") for run in runs},
            *[Mark("ticket", ticket.id, ticket.assignee or "") for ticket in tickets[-limit:]],
            *[
                Mark("thread", one.id, f"{one.version} {one.inbox_head} {one.head} {one.updated_at}")
                for one in threads.values()
            ],
        ]

    async def counts(self) -> Mapping[str, int]:
        """How many there are: threads, messages, runs by status, open tickets, dispatches."""
        threads = self._threads.values()
        found = {
            "threads": len(threads),
            "messages": sum(len(thread.messages) for thread in threads),
            "tickets": len(await self.tickets(status="open")),
            "dispatches": sum(thread.tenant == self._tenant.name for thread in self._database.active),
        }
        for thread in threads:
            for run in thread.runs.values():
                found[run.record.status] = found.get(run.record.status, 0) + 1
        return found


def _age(record: Record) -> tuple[int, str]:
    return record_time(record), record.id


def _in_order(run: Run) -> list[Call]:
    return sorted(run.calls.values(), key=lambda call: (call.step, call.index))


def _range_between(entries: list[Any], low: int, high: int) -> tuple[int, int]:
    """The index range of the entries after one sequence number and up to another."""
    start = bisect_right(entries, low, key=_seq) if low else 0
    end = len(entries) if not entries or entries[-1].seq <= high else bisect_right(entries, high, key=_seq)
    return start, max(start, end)
