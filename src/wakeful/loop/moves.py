"""The next move of a run: a pure function of its durable view."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ..stores import ThreadView
from ..types.base import Data
from ..types.calls import Call
from ..types.inbox import DecisionItem, InboxItem, InputItem, TaskItem
from ..types.limits import Limits, StopPolicy
from ..types.messages import Message
from ..types.runs import Cancelled, Failed, NaturalEnd, RunRecord, TaskRecord, Termination
from ..types.tickets import Ticket
from .stop_policies import Tree, limit_reached

__all__ = [
    "CLOSING",
    "NO_CALLS",
    "AfterCalls",
    "Await",
    "Drop",
    "EndStep",
    "Execute",
    "Finish",
    "Infer",
    "Interrupt",
    "Move",
    "Overdue",
    "PassOn",
    "Pause",
    "Poll",
    "Recover",
    "Rules",
    "RunView",
    "SuspendRun",
    "SwitchAgent",
    "Take",
    "WaitForTasks",
    "detached_of",
    "next_deadline",
    "next_move",
    "steering_items",
]

NO_CALLS: frozenset[str] = frozenset()


class Rules(Data):
    """The limits and stop policies of the present agent, and the tools that run alone."""

    limits: Limits = Limits()
    stop: tuple[StopPolicy, ...] = ()
    sequential: bool = False
    alone: frozenset[str] = frozenset()

    def under(self, above: Rules) -> Rules:
        """These rules combined with those that the parent run sets for its tree."""
        own, its = self.limits, above.limits
        if not above.stop and own.depth <= its.depth and own.tree_calls <= its.tree_calls:
            return self
        limits = replace(own, depth=min(own.depth, its.depth), tree_calls=min(own.tree_calls, its.tree_calls))
        budgets = tuple([policy for policy in above.stop if getattr(policy, "tree", False)])
        return replace(self, limits=limits, stop=(*self.stop, *budgets))


class RunView(Struct, eq=False):
    """The durable view of a run: its record, the open step's calls and tickets, live tasks, pending inbox items.

    `detached` are tasks that belong to the thread and not to a run. Two fields are of this process alone: `live`
    are the calls that it runs, `deferred` those whose gate is asked again when an earlier call has finished.
    """

    run: RunRecord
    tree: Tree
    calls: dict[str, Call] = {}
    tickets: dict[str, Ticket] = {}
    tasks: tuple[TaskRecord, ...] = ()
    inbox: dict[str, InboxItem] = {}
    answer: Message | None = None
    detached: tuple[TaskRecord, ...] = ()
    live: dict[str, None] = {}
    deferred: frozenset[str] = NO_CALLS

    @classmethod
    def of(cls, stored: ThreadView, run: RunRecord) -> RunView:
        """Make the view of a stored run."""
        mine = tuple([t for t in stored.tasks if t.run_id == run.id])
        return cls(
            run,
            Tree(run.usage + run.descendants, run.tree_calls, run.started_at or run.created_at),
            calls={call.id: call for call in stored.calls},
            tickets={ticket.id: ticket for ticket in stored.tickets},
            tasks=mine,
            inbox={item.id: item for item in stored.inbox},
            answer=stored.answer,
            detached=detached_of(stored),
        )


def detached_of(stored: ThreadView) -> tuple[TaskRecord, ...]:
    """The running tasks of a thread that belong to no run."""
    return tuple([t for t in stored.tasks if t.run_id is None]) if stored.tasks else ()


class Infer(Data):
    """Ask the model."""


class Execute(Data):
    """Start these calls, as far as their gates allow."""

    calls: tuple[Call, ...]


class Await(Data):
    """Wait for a running call."""


class Recover(Data):
    """Settle calls that were started and don't run here, by their effect."""

    calls: tuple[Call, ...]


class AfterCalls(Data):
    """Run the `after_tool` hooks of these finished calls."""

    calls: tuple[Call, ...]


class Interrupt(Data):
    """Stop the running calls."""

    reason: str


class Drop(Data):
    """Close these calls without running them."""

    calls: tuple[Call, ...]
    reason: str


class Overdue(Data):
    """Escalate tickets whose deadline has passed, or apply their default decision."""

    tickets: tuple[Ticket, ...]


class Take(Data):
    """Take these inbox items."""

    items: tuple[InboxItem, ...]


class EndStep(Data):
    """Close the step: every call is finished."""


class SwitchAgent(Data):
    """Hand the run off to another agent."""

    agent_id: str


class PassOn(Data):
    """Pass an answer on to the backend while other calls of its still wait."""

    calls: tuple[Call, ...]


class Poll(Data):
    """Look whether the backend continued without an answer to these calls, its questions."""

    calls: tuple[Call, ...]


class SuspendRun(Data):
    """Suspend the run until a ticket is answered, a task is done or a timer is due."""

    tickets: tuple[str, ...]


class Pause(Data):
    """Suspend a paused run."""


class WaitForTasks(Data):
    """Wait for tasks that still run after the final answer."""


class Finish(Data):
    """End the run."""

    termination: Termination


Move = (
    Infer
    | Execute
    | Await
    | Recover
    | AfterCalls
    | Interrupt
    | Drop
    | Overdue
    | Take
    | EndStep
    | SwitchAgent
    | PassOn
    | Poll
    | SuspendRun
    | Pause
    | WaitForTasks
    | Finish
)

# Terminations that end a run in the middle of a step.
CLOSING = (Cancelled, Failed)

_INFER, _AWAIT, _END_STEP, _WAIT, _PAUSE = Infer(), Await(), EndStep(), WaitForTasks(), Pause()


def next_move(view: RunView, rules: Rules, now: int) -> Move:
    """Compute the next move: the same for a run that starts, continues, resumes or recovers."""
    run = view.run
    if run.cancel is not None and not isinstance(run.ending, Cancelled):
        return _close(view, Cancelled(run.cancel))
    if run.stage == "acting":
        return _next_in_step(view, run.ending, rules, now)
    ending = run.ending
    if ending is None:
        return _next_between_steps(view, run, rules, now) if run.stage == "between" else _INFER
    if isinstance(ending, NaturalEnd):
        if view.inbox and (items := steering_items(view, now)):
            return Take(items)
        if view.tasks:
            return _WAIT
    return Finish(ending)


def _next_between_steps(view: RunView, run: RunRecord, rules: Rules, now: int) -> Move:
    if run.paused:
        return _PAUSE
    if run.next_agent is not None:
        return SwitchAgent(run.next_agent)
    if view.inbox and (items := steering_items(view, now)):
        return Take(items)
    if run.steps and (stopped := limit_reached(run, rules.limits, rules.stop, view.tree, now)):
        return Finish(stopped)
    return _INFER


def _next_in_step(view: RunView, ending: Termination | None, rules: Rules, now: int) -> Move:
    """Continue with the calls of the open step."""
    if ending is not None and type(ending) in CLOSING:
        return _close(view, ending)
    if view.inbox and (answers := _answers(view)):
        return Take(answers)
    if view.tickets and ending is None and (late := _overdue(view, now)):
        return Overdue(late)
    calls, live = view.calls, view.live
    if live and len(live) == len(calls):
        return _AWAIT
    waiting: list[Call] = []
    suspended = 0
    for call in calls.values():
        if call.hooks_due:
            return AfterCalls(tuple([c for c in calls.values() if c.hooks_due]))
        if call.state == "started" and call.id not in live:
            return Recover(_orphans(view))
        if _can_start(call, now):
            waiting.append(call)
        elif call.state == "suspended":
            suspended += 1
    if ending is None and (start := _startable(waiting, view, rules)):
        return Execute(start)
    return _AWAIT if live else _next_without_live(view, ending, len(waiting), suspended, now)


def _can_start(call: Call, now: int) -> bool:
    """Whether a call was requested, or has slept until its time."""
    return call.state == "requested" or (
        call.state == "suspended" and call.until is not None and call.until <= now
    )


def _next_without_live(view: RunView, ending: Termination | None, waiting: int, suspended: int, now: int) -> Move:
    """Continue a step in which no call runs or can start."""
    if ending is not None and (waiting or suspended):
        return Drop(_open(view), "the run is ending")
    if not suspended:
        return _END_STEP
    if any(t.asked_by == "remote" for t in view.tickets.values()):
        if _has_answer(view):
            return PassOn(_open(view))
        if (poll_at := _poll_time(view)) is not None and poll_at <= now:
            return Poll(_open(view))
    return SuspendRun(tuple(view.tickets))


def _has_answer(view: RunView) -> bool:
    """Whether a question with which the backend ended its request is answered, unlike one that it asked before."""
    return any(call.state == "finished" and not call.attempt for call in view.calls.values())


def _close(view: RunView, ending: Termination) -> Move:
    """End the run in the middle of a step: its calls are settled first."""
    reason = "the run was cancelled" if isinstance(ending, Cancelled) else "the run failed"
    if view.live:
        return Interrupt(reason)
    if view.run.stage != "between":
        if orphans := _orphans(view):
            return Recover(orphans)
        if rest := _open(view):
            return Drop(rest, reason)
    return Finish(ending)


def next_deadline(view: RunView) -> int | None:
    """The first time at which a ticket is overdue, a sleeping call continues or a backend is polled."""
    if len(view.live) == len(view.calls) and not view.tickets:
        return None  # Every call runs, so none sleeps.
    times = [t.deadline for t in view.tickets.values() if t.deadline is not None and t.asked_by != "remote"]
    times += [] if (poll_at := _poll_time(view)) is None else [poll_at]
    times += [c.until for c in view.calls.values() if c.state == "suspended" and c.until is not None]
    return min(times, default=None)


def _poll_time(view: RunView) -> int | None:
    """The time at which the backend of a waiting run is polled."""
    return None if view.run.backend is None else view.run.backend.poll_at


def _startable(waiting: list[Call], view: RunView, rules: Rules) -> tuple[Call, ...]:
    if not view.live and len(waiting) == 1 and not view.deferred:
        return (waiting[0],)
    slots = (1 if rules.sequential else rules.limits.parallel) - len(view.live)
    if slots <= 0:
        return ()
    if not rules.alone and not view.deferred:
        return tuple(waiting[:slots])
    return _pick(waiting, slots, view, rules)


def _pick(waiting: list[Call], slots: int, view: RunView, rules: Rules) -> tuple[Call, ...]:
    """Choose the calls to start if some must run alone or are deferred."""
    if any(view.calls[call_id].name in rules.alone for call_id in view.live):
        return ()
    start: list[Call] = []
    for call in waiting:
        if len(start) >= slots:
            break
        if call.name in rules.alone and (start or view.live):
            break
        if call.id not in view.deferred:
            start.append(call)
            if call.name in rules.alone:
                break
    return tuple(start)


def _orphans(view: RunView) -> tuple[Call, ...]:
    return tuple([c for c in view.calls.values() if c.state == "started" and c.id not in view.live])


def _open(view: RunView) -> tuple[Call, ...]:
    return tuple([c for c in view.calls.values() if c.state in ("requested", "suspended")])


def _overdue(view: RunView, now: int) -> tuple[Ticket, ...]:
    """Tickets whose deadline has passed, without those of a remote agent, which decides at its deadline itself."""
    late = [t for t in view.tickets.values() if t.deadline is not None and t.deadline <= now]
    return tuple([ticket for ticket in late if ticket.asked_by != "remote"])


def _answers(view: RunView) -> tuple[InboxItem, ...]:
    """Items that are taken while a step is open: decisions, and outcomes of tasks without pending events.

    A task's events are taken together with its outcome, when the step is closed.
    """
    reports = [i for i in view.inbox.values() if isinstance(i, TaskItem)]
    with_events = {i.task_id for i in reports if i.event is not None or i.adopted is not None}
    outcomes = {i.id for i in reports if i.outcome is not None and i.task_id not in with_events}
    return tuple([i for i in view.inbox.values() if isinstance(i, DecisionItem) or i.id in outcomes])


def steering_items(view: RunView, now: int) -> tuple[InboxItem, ...]:
    """Items that are taken between two steps: input that steers the run, and reports of tasks."""
    return tuple(
        [
            i
            for i in view.inbox.values()
            if isinstance(i, TaskItem)
            or (isinstance(i, InputItem) and i.policy == "steer" and (i.at is None or i.at <= now))
        ]
    )
