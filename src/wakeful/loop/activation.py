"""One activation of a run: its working state in this process.

The functions of this package read and change an activation; `driver.drive` calls them. Every change of the view is
also written to the draft, which `commits.flush` commits before the next hook, tool or model runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from ..agents import ResolvedAgent
from ..bus import Channel
from ..models import Model, ModelRequest
from ..plugins import ActionQueue
from ..state import Command, State
from ..tools import Offer
from ..traces import RunSpan
from ..types.events import Event
from ..types.inbox import InboxItem
from ..types.messages import Message, Producer, user_message
from ..types.runs import EndRequested, RunRecord, TaskRecord, TraceContext
from ..types.tickets import Ticket, TicketStatus
from .calls.executor import Executor
from .calls.ledger import Change
from .cancellation import Cancellation
from .draft import Draft
from .environment import Environment, rules_of
from .inference.answer import Answer
from .inference.history import History
from .inference.inference import Inference
from .inference.watchdog import Watch
from .inference.window import WindowState
from .moves import Rules, RunView
from .needs import agent_of
from .tasks import stop_task

__all__ = ["ACTIONS", "Activation"]

ACTIONS = ActionQueue.name


class Activation:
    """A run while this process executes it: view, draft, history, state and position in the thread."""

    # Slots: each step reads these fields about a hundred times.
    __slots__ = (
        "_watchers",
        "above",
        "agent",
        "attached",
        "backend_aborted",
        "bare",
        "cancellation",
        "channel",
        "clock",
        "cut",
        "digests",
        "draft",
        "env",
        "executor",
        "failure",
        "head",
        "history",
        "hookless",
        "identity",
        "inbox_head",
        "inference",
        "interrupted",
        "is_over",
        "left",
        "links",
        "loaded",
        "now",
        "offers",
        "on_inbox",
        "ordered",
        "output",
        "plain_request",
        "remote",
        "rules",
        "run_end_due",
        "span",
        "state",
        "stopping",
        "taken",
        "trigger",
        "unavailable",
        "version",
        "view",
        "watch",
        "window",
    )

    agent: ResolvedAgent
    # The agent without the tools of its sources.
    bare: ResolvedAgent
    rules: Rules
    # Whether the agent has no hook in any phase and no action is scheduled.
    hookless: bool
    # The model and request of an agent whose requests no plugin shapes.
    plain_request: tuple[Model, ModelRequest] | None
    # A history that was found to be in order; it stays in order while it only grows.
    ordered: Sequence[Message] | None

    def __init__(
        self,
        env: Environment,
        view: RunView,
        state: State,
        history: History,
        channel: Channel,
        now: int,
    ) -> None:
        run = view.run
        self.env = env
        self.view = view
        self.state = state
        self.history = history.messages
        # The weight at which the history was cut; None if it stands for the whole thread.
        self.cut = history.cut
        self.loaded = history
        self.channel = channel
        self.clock = env.clock
        self.now = now
        self.identity = run.identity
        self.draft = Draft(run.identity, state)
        # The ends of the thread's log and inbox and its version, as far as this process knows.
        self.head = self.inbox_head = self.version = 0
        self.taken: tuple[str, ...] = ()
        # The rules of the parent run, which hold for its whole tree.
        self.above: Rules | None = None
        # The offers of the agent's tool sources, and the sources that failed.
        self.offers: dict[str, Offer] = {}
        self.unavailable: set[str] = set()
        self.use_agent(run)
        self.window = None if history.tally is None else WindowState(history.tally)
        self.output: Raw | UnsetType = UNSET
        # The exception that the run fails with.
        self.failure: BaseException | None = None
        # Why calls that ran here have no result, by call id.
        self.interrupted: dict[str, str] = {}
        # The answer in progress: from a model, over all retries, or from a backend.
        self.inference: Inference | None = None
        self.remote: Answer | None = None
        # Called when the inbox has changed, while a backend executes a step.
        self.on_inbox: Callable[[], None] | None = None
        self.executor: Executor | None = None
        self.watch: Watch | None = None
        self.digests = history.digests
        # Whether a call in this process waits for the run, so that its owner needs no report.
        self.attached = False
        self.cancellation = Cancellation()
        self.left = self.is_over = self.backend_aborted = False
        self.run_end_due = True
        # Why the activation started, as its `RunStart` says.
        self.trigger = "new"
        # Its span if it is traced, and the senders of items that it took before.
        self.span: RunSpan | None = None
        self.links: tuple[TraceContext, ...] = ()
        # How the process is stopping: hand the run over at its next step boundary, or drop it now.
        self.stopping: Literal["at_boundary", "now"] | None = None
        self._watchers: tuple[asyncio.Future[None], ...] = ()

    @property
    def streamed(self) -> Answer | None:
        """The answer in progress, if there is one that readers may see."""
        if self.agent.withholds:
            return None
        return self.remote if self.inference is None else self.inference.answer

    @property
    def epoch(self) -> int:
        """The epoch of the claim; 0 before the first commit."""
        return 0 if self.draft.fence is None else self.draft.fence.epoch

    def use_agent(self, run: RunRecord) -> None:
        """Continue as the agent of this record."""
        env, agent_id, task = self.env, run.agent_id, run.task
        is_plain = run.options is None and (task is None or not task.background)
        self.plain_request = self.ordered = None
        agent = self.agent = env.registry.resolve(agent_id) if is_plain else agent_of(env.registry, run)
        self.bare = agent
        if self.offers:
            self.offers = {}
        rules = env.rules.get(agent_id) or rules_of(env, agent)
        self.rules = rules if self.above is None else rules.under(self.above)
        self.hookless = not agent.has_hooks and ACTIONS not in self.state.values
        if self.identity.agent_id != agent_id:
            self.identity = self.draft.identity = replace(self.identity, agent_id=agent_id)

    @property
    def lacks_tools(self) -> bool:
        """Whether a source of the agent hasn't made its lasting offer yet."""
        sources, offers = self.agent.sources, self.offers
        if not sources:
            return False
        return any(s.name not in offers or offers[s.name].snapshot is None for s in sources)

    @property
    def has_asked_sources(self) -> bool:
        """Whether the sources were asked in this activation."""
        return bool(self.offers or self.unavailable)

    def use_offers(self) -> None:
        """Continue with the tools of the agent's sources beside its own."""
        offers = [self.offers[source.name] for source in self.agent.sources if source.name in self.offers]
        self.agent = self.bare.with_offers(offers)
        self.plain_request = None

    def keep_under(self, above: Rules) -> None:
        """Apply the rules of the parent run too."""
        self.above = above
        self.rules = self.rules.under(above)

    def has_hooks(self, phase: str) -> bool:
        """Whether a phase has hooks, or actions are scheduled."""
        return not self.hookless and (bool(self.agent.hooks[phase]) or ACTIONS in self.state.values)

    # -- changes, in the view and in the draft -----------------------------------------------------------------

    def set_run(self, **changes: Any) -> None:
        """Change the run's record."""
        self.put_run(replace(self.view.run, updated_at=self.now, **changes))

    def put_run(self, run: RunRecord) -> None:
        """Replace the run's record."""
        self.view.run = run
        self.draft.run = run

    def log(self, *entries: Message | Event) -> None:
        """Add messages and durable events to the log."""
        self.draft.log += entries
        for entry in entries:
            if type(entry) is Message:
                self.history.append(entry)

    def hint(self, text: str) -> None:
        """Add a message for the model that people aren't shown."""
        producer = Producer(self.identity.run_id, self.view.run.steps)
        self.log(user_message(text, visibility="internal", producer=producer, at=self.now))

    def change(self, change: Change) -> None:
        """Write a call's transition; a finished call's foreground tasks are cancelled."""
        call, view, draft = change.call, self.view, self.draft
        call_id = call.id
        view.calls[call_id] = draft.calls[call_id] = call
        if view.tasks and call.state == "finished":
            for task in [t for t in view.tasks if t.call_id == call_id and not t.background]:
                stop_task(view, draft, task, f"the call of {call.name} is over", self.now)
        draft.log += change.log
        if (message := change.message) is not None:
            self.history.append(message)
        if (ticket := change.ticket) is not None:
            draft.put_ticket(ticket)
            if ticket.status == "open":
                view.tickets[ticket.id] = ticket
            else:
                view.tickets.pop(ticket.id, None)

    def give_up(self, tickets: Iterable[Ticket], status: TicketStatus = "cancelled") -> None:
        """Close tickets that no call waits for."""
        for ticket in tuple(tickets):
            self.draft.put_ticket(replace(ticket, status=status))
            self.view.tickets.pop(ticket.id, None)

    def adopt(self, task: TaskRecord) -> None:
        """Take over a task of the thread."""
        self.draft.put_task(task)
        if task.run_id is None:
            self.view.detached = (*self.view.detached, task)
        else:
            self.view.tasks = (*self.view.tasks, task)

    def apply(self, command: Command) -> None:
        """Apply a command of a hook or a tool; it is durable with the next commit."""
        if command.updates:
            self.state.apply(command.updates)
            self.hookless = self.hookless and ACTIONS not in self.state.values
        if command.notices:
            self.draft.put_notices(command.notices)
        for one in command.sent:
            if isinstance(one, InboxItem):
                self.draft.put_item(one)
            else:
                self.draft.put_relay(one)
        if command.ending is not None and self.view.run.ending is None:
            self.set_run(ending=EndRequested(command.ending))
        if command.handoff is not None:
            self.set_run(next_agent=command.handoff)

    # -- the inbox ---------------------------------------------------------------------------------------------

    def take(self, item_id: str, revision: int | None = None) -> None:
        """Mark an inbox item as taken; with a revision only if nobody edited it since."""
        self.taken = (*self.taken, item_id)
        self.draft.take(item_id, revision)

    def link(self, item: InboxItem) -> None:
        """Link the activation's span to the sender of an item."""
        if item.trace is None:
            return
        if self.span is None:
            self.links = (*self.links, item.trace)
        else:
            self.span.link(item.trace)

    def has_taken(self, items: Sequence[InboxItem]) -> bool:
        """Whether all of these items were taken."""
        return all(item.id in self.taken for item in items)

    # -- stopping ----------------------------------------------------------------------------------------------

    def cancel(self, reason: str, *, interrupt: bool = True, leave_tasks: bool = False) -> None:
        """Cancel the run, at once or at its next move.

        Background tasks are cancelled with it; `leave_tasks` leaves them to the thread's next run, unless another
        request wants them cancelled.
        """
        run = self.view.run
        if self.left or run.cancel is not None:
            if not self.left and run.leaves_tasks and not leave_tasks:
                self.set_run(leaves_tasks=False)
            return
        self.set_run(cancel=reason, leaves_tasks=leave_tasks)
        if self.executor is not None and self.view.live:
            self.executor.interrupt()
        if interrupt:
            self.cancellation.request()

    def hand_over(self) -> None:
        """Leave the run to another process at its next step boundary; if it ends first, it ends here."""
        self.stopping = "at_boundary"
        if self.window is not None:
            self.window.cancel()

    def cut_off(self, *, interrupt: bool = True) -> None:
        """Stop at once without another write: the next owner recovers the run as after a crash.

        With `interrupt` the task is cancelled; a child that runs in its parent's task is stopped through that.
        """
        if self.left or self.stopping == "now":
            return
        self.stopping = "now"
        if interrupt:
            self.cancellation.request()

    def attach_child(self, call_id: str, child: Activation) -> Callable[[], None]:
        """Register a child activation that a call runs in its task; returns the function that removes it."""
        if self.executor is None:
            return lambda: None
        return self.executor.attach_child(call_id, partial(child.cut_off, interrupt=False))

    def ended(self) -> asyncio.Future[None]:
        """A future for the end of this activation."""
        watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_over:
            watcher.set_result(None)
        else:
            self._watchers = (*self._watchers, watcher)
        return watcher

    def mark_over(self) -> None:
        """Resolve the futures of `ended`, and drop the references that would form a cycle."""
        self.executor = self.cancellation.task = None
        self.is_over = True
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)
