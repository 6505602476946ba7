"""What an activation writes: every change of its view goes into the draft of the next commit too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from ..agents import ResolvedAgent
from ..errors import explain
from ..plugins import ActionQueue
from ..state import Command, State
from ..stores import InboxItem
from ..tools import MAX_RESULT_BYTES
from ..types.content import clean_text
from ..types.events import ErrorRaised, Event
from ..types.messages import Message, Producer, user_message
from ..types.runs import BehaviourRequested, Identity, RunRecord, TaskRecord
from ..types.tickets import Decision, Ticket
from ._draft import Draft
from ._ledger import Change, answered, asked_again, edit_fault, reassigned
from ._moves import RunView
from ._tasks import stop_task

__all__ = ["ACTIONS", "Writer"]

ACTIONS = ActionQueue.name


class Writer:
    """The writing half of an activation, which gives all of this its values."""

    __slots__ = ("agent", "draft", "history", "identity", "now", "state", "still", "taken", "view")

    agent: ResolvedAgent
    draft: Draft
    history: list[Message]
    identity: Identity
    now: int
    state: State
    # Whether no phase has a hook or an action: then none need be asked for.
    still: bool
    # The items of the inbox that were taken in.
    taken: tuple[str, ...]
    view: RunView

    def set_run(self, **changes: Any) -> None:
        """Change the run's record."""
        self.put_run(replace(self.view.run, updated_at=self.now, **changes))

    def put_run(self, run: RunRecord) -> None:
        """Go on with this record of the run. What every step does takes this way: it is the faster one."""
        self.view.run = run
        self.draft.run = run

    def log(self, *entries: Message | Event) -> None:
        """Add messages and durable events to the draft. What every step does goes there directly."""
        self.draft.log += entries
        for entry in entries:
            if type(entry) is Message:
                self.history.append(entry)

    def note(self, error: BaseException | str, source: str) -> None:
        """Log something that failed while the run goes on."""
        kind = "error" if isinstance(error, str) else type(error).__name__
        text = error if isinstance(error, str) else explain(error).partition(": ")[2]
        self.log(ErrorRaised(self.identity, 0, self.now, kind, clean_text(text), source))

    def change(self, change: Change) -> None:
        """Write a call's transition."""
        call, view, draft = change.call, self.view, self.draft
        call_id = call.id
        view.calls[call_id] = draft.calls[call_id] = call
        if view.tasks and call.state == "finished":
            for task in [t for t in view.tasks if t.call_id == call_id and not t.background]:
                stop_task(self, task, f"the call of {call.name} is over")
        draft.log += change.log
        if (message := change.message) is not None:
            self.history.append(message)
        if (ticket := change.ticket) is not None:
            draft.put_ticket(ticket)
            if ticket.status == "open":
                view.tickets[ticket.id] = ticket
            else:
                view.tickets.pop(ticket.id, None)

    def adopt(self, task: TaskRecord) -> None:
        """Take over a task that was begun for the thread while this run owned it."""
        self.draft.put_task(task)
        if task.run_id is None:
            self.view.detached = (*self.view.detached, task)
        else:
            self.view.tasks = (*self.view.tasks, task)

    def give_up(self, tickets: Iterable[Ticket]) -> None:
        """Close tickets that nobody waits for any more."""
        for ticket in tuple(tickets):
            self.draft.put_ticket(replace(ticket, status="cancelled"))
            self.view.tickets.pop(ticket.id, None)

    def hint(self, text: str) -> None:
        """Tell the model something that no person is shown."""
        producer = Producer(self.identity.run_id, self.view.run.steps)
        self.log(user_message(text, visibility="internal", producer=producer, at=self.now))

    def apply(self, command: Command) -> None:
        """Apply a command to the state in memory; it is durable with the next commit."""
        if command.updates:
            self.state.apply(command.updates)
            self.still = self.still and ACTIONS not in self.state.values
        if command.notices:
            self.draft.put_notices(command.notices)
        for one in command.sent:
            if isinstance(one, InboxItem):
                self.draft.put_item(one)
            else:
                self.draft.put_relay(one)
        if command.ending is not None and self.view.run.ending is None:
            self.set_run(ending=BehaviourRequested(command.ending))
        if command.handoff is not None:
            self.set_run(next_agent=command.handoff)

    def quiet(self, phase: str) -> bool:
        """Whether a phase has no hooks and no actions wait: then it costs nothing."""
        return self.still or (not self.agent.hooks[phase] and ACTIONS not in self.state.values)

    def take(self, item_id: str, revision: int | None = None) -> None:
        """Mark an inbox item as taken in; with a revision only if nobody changed it since."""
        self.taken = (*self.taken, item_id)
        self.draft.take(item_id, revision)

    def leave(self, items: Sequence[InboxItem]) -> None:
        """Take back that these items were taken in: somebody changed one of them meanwhile."""
        ids, messages = {item.id for item in items}, [item.message for item in items if item.message]
        self.taken = tuple([item_id for item_id in self.taken if item_id not in ids])
        self.draft.leave(ids, messages)
        self.history[:] = [known for known in self.history if all(known is not m for m in messages)]

    def has_taken(self, items: Sequence[InboxItem]) -> bool:
        """Whether all of these items were taken in."""
        return all(item.id in self.taken for item in items)

    def answer(self, item: InboxItem) -> None:
        """Take a decision in. Whoever left it may not have had the tool at hand: new arguments that don't fit it
        are refused, and the question stays open."""
        decision = item.decision
        if decision is None:
            return
        ticket = self.view.tickets.get(decision.ticket_id)
        fault = None if ticket is None else edit_fault(self.agent.tools.get(ticket.tool), ticket, decision)
        if ticket is not None and fault is not None:
            self.change(asked_again(self.view.calls[ticket.call_id], ticket, fault, self.identity, self.now))
            return
        self.decide(decision)
        if ticket is not None and item.beside is not None:
            said = InboxItem(kind="input", policy="steer", **asdict(item.beside))
            self.draft.put_item(said)
            if said.thread_id == self.identity.thread_id:
                self.view.inbox[said.id] = said  # Before the next step, which may come before the next commit.

    def decide(self, decision: Decision) -> None:
        """Apply a decision to its call; one whose ticket is closed by now changes nothing."""
        ticket = self.view.tickets.get(decision.ticket_id)
        if ticket is None:
            return
        if decision.verdict == "reassign":
            self.reassign(replace(ticket, assignee=decision.value), decision)
            return
        tool = self.agent.tools.get(ticket.tool)
        limit = MAX_RESULT_BYTES if tool is None else tool.max_result_bytes
        change = answered(self.view.calls[ticket.call_id], ticket, decision, self.identity, self.now, limit)
        self.draft.put_decision(change.call.decisions[-1])
        if change.call.state == "finished" and not self.quiet("after_tool"):
            change = replace(change, call=replace(change.call, hooks_due=True))
        self.change(change)

    def reassign(self, ticket: Ticket, decision: Decision) -> None:
        """Somebody else has to answer a ticket from now on."""
        self.view.tickets[ticket.id] = ticket
        self.draft.put_ticket(ticket)
        self.draft.put_decision(decision)
        self.log(reassigned(ticket, decision, self.identity, self.now))
