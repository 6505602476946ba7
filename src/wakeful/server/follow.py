"""Follow a run for a protocol: its events up to its end or its next question, and the text of its answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from ..dispatch import RunResult
from ..errors import UnknownRun, UnknownTicket
from ..runtime import TenantRuntime
from ..types.events import AnyEvent, MessageAdded, RunFinish, TextDelta
from ..types.ids import now_ms
from ..types.runs import RunRecord
from ..types.tickets import Decision, Ticket
from .growth import Grown
from .operations import Call
from .operations.tickets import ticket_of

__all__ = ["AnswerText", "Followed", "Settled", "answer_tickets", "follow", "root_of", "start_of"]


class Followed(Struct, frozen=True):
    """A run to follow: its ids, the position in its thread's log to read from, and the time of the first event to
    show, in ms."""

    run_id: str
    thread_id: str
    after: str = "0"
    since: int = 0


class Settled(Struct, frozen=True):
    """The end of a followed run: its last event, and the tickets that it asked for then, of the runs below it too.

    `result` is that of a run that is done.
    """

    finish: RunFinish
    tickets: tuple[Ticket, ...] = ()
    result: RunResult[Any] | None = None


async def follow(
    runtime: TenantRuntime, run: Followed, *, live: bool = True, past_answers: bool = False
) -> AsyncGenerator[AnyEvent | Settled]:
    """The events of a run and of the runs below it, and `Settled` once it is done or asks.

    A run that waits for time, tasks or its turn is followed on. A part of the log gives the same end whenever it
    is read; with `past_answers` it is read on where a question was answered by now. Without `live` it ends with
    the log.
    """
    source = runtime.events(run.thread_id, after=run.after, follow=live)
    async with aclosing(cast(AsyncGenerator[AnyEvent], source)) as events:
        async for event in events:
            if event.run.root_run_id != run.run_id or event.at < run.since:
                continue
            yield event
            if isinstance(event, RunFinish) and event.run.run_id == run.run_id:
                settled = await _settled(runtime, event, past_answers=past_answers)
                if settled is not None:
                    yield settled
                    return


async def _settled(runtime: TenantRuntime, finish: RunFinish, *, past_answers: bool) -> Settled | None:
    """The end of a run at this event; None if it continues without an answer."""
    run_id = finish.run.run_id
    if finish.status == "done":
        return Settled(finish, result=await runtime.runs.result(run_id))
    made = [ticket for ticket in await runtime.tickets.list(run_id) if ticket.created_at <= finish.at]
    asked = [ticket for ticket in made if not await _was_closed(runtime, ticket, finish.at)]
    if past_answers and any(ticket.status != "open" for ticket in asked):
        return None
    return Settled(finish, tuple(asked)) if asked else None


async def _was_closed(runtime: TenantRuntime, ticket: Ticket, at: int) -> bool:
    """Whether a ticket was answered at a time. One that was closed without an answer counts as open before."""
    if ticket.status == "open":
        return False
    made = await runtime.tickets.decisions(ticket.id)
    return any(each.at <= at and each.not_taken is None and each.verdict in ("approve", "deny") for each in made)


async def start_of(runtime: TenantRuntime, run_id: str, thread: str) -> Followed:
    """A run to follow from its first event on; it may wait for its turn."""
    try:
        record = await runtime.runs.get(run_id)
    except UnknownRun:
        found = await runtime.store.thread(thread)
        return Followed(run_id, thread, str(0 if found is None else found.head))
    return Followed(run_id, record.thread_id, str(max(record.first_seq - 1, 0)))


# -- tickets ---------------------------------------------------------------------------------------------------


async def answer_tickets(
    call: Call, decisions: Sequence[Decision], message: Any = None, *, thread: str | None = None
) -> Followed:
    """Answer tickets of one tree of runs; its root run is followed from there on.

    Returns once the decisions are stored. A repeated decision has no effect: if all were made before, the run is
    followed from the last one on. `decisions` have ids made of their contents. With a `thread` the run is one of
    that thread.
    """
    runtime = call.runtime
    tickets = [await ticket_of(call, decision.ticket_id) for decision in decisions]
    root = await root_of(runtime, tickets[0])
    if thread is not None and root.thread_id != thread:
        raise UnknownTicket(f"no ticket {tickets[0].id!r:.80} on thread {thread!r:.80}")
    start = await start_of(runtime, root.id, root.thread_id)
    made = {done.id: done.at for ticket in tickets for done in await runtime.tickets.decisions(ticket.id)}
    now = now_ms()
    fresh = [replace(decision, at=now) for decision in decisions if decision.id not in made]
    if not fresh:
        return replace(start, since=max(made[decision.id] for decision in decisions))
    work = runtime.resume(root.id, *fresh, message=message, principal=call.author, check=False)
    task = await call.serving.detach_until(work, lambda: runtime.store.has_id(fresh[0].id))
    if task.done():
        task.result()
    return replace(start, since=now)


async def root_of(runtime: TenantRuntime, ticket: Ticket) -> RunRecord:
    """The root run of the tree in which a ticket was asked."""
    run = await runtime.runs.get(ticket.run_id)
    root = run.identity.root_run_id
    return run if root == run.id else await runtime.runs.get(root)


# -- text ------------------------------------------------------------------------------------------------------


class AnswerText:
    """The text of answers as one reader has been sent it, whether it came as deltas or as a message.

    A stream that starts an answer again continues silently as far as the text is the same.
    """

    def __init__(self) -> None:
        self.message_id: str = ""
        self._grown = Grown()

    def apply(self, event: AnyEvent) -> str:
        """The text that an event adds; raises `Rewritten` if what was sent is no longer a part of the answer."""
        match event:
            case TextDelta():
                return self._text_of(event.message_id).add(event.offset, event.delta)
            case MessageAdded(message=message) if message.role == "assistant" and message.producer is not None:
                return self._text_of(message.id).complete(message.text)
            case _:
                return ""

    def _text_of(self, message_id: str) -> Grown:
        if message_id != self.message_id:
            self.message_id, self._grown = message_id, Grown()
        return self._grown
