"""What a run does next: a pure function of where it stands."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ..stores import InboxItem, ThreadView
from ..types.limits import Limits, StopPolicy
from ..types.messages import Message
from ..types.runs import Call, Cancelled, Failed, NaturalEnd, RunRecord, TaskRecord, Termination
from ..types.tickets import Ticket
from ._policies import Tree, limit_reached

__all__ = [
    "CLOSING",
    "NOBODY",
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
    "Recover",
    "Rules",
    "RunView",
    "SuspendRun",
    "SwitchAgent",
    "Take",
    "WaitForTasks",
    "detached_of",
    "next_move",
]


NOBODY: frozenset[str] = frozenset()


class Rules(Struct, frozen=True, gc=False):
    """What the present agent allows."""

    limits: Limits = Limits()
    stop: tuple[StopPolicy, ...] = ()
    sequential: bool = False
    alone: frozenset[str] = frozenset()

    def under(self, above: Rules) -> Rules:
        """These rules, and what the run above allows its whole tree."""
        own, its = self.limits, above.limits
        if not above.stop and own.depth <= its.depth and own.tree_calls <= its.tree_calls:
            return self
        limits = replace(own, depth=min(own.depth, its.depth), tree_calls=min(own.tree_calls, its.tree_calls))
        budgets = tuple([policy for policy in above.stop if getattr(policy, "tree", False)])
        return replace(self, limits=limits, stop=(*self.stop, *budgets))


class RunView(Struct, eq=False, gc=False):
    """Where a run stands: its record, the open step's calls and tickets, live tasks and pending inbox items.

    `live` are the calls that run in this process now; `deferred` those whose gate will be asked again when an
    earlier call of the step has finished. Neither outlives the process, and a new one starts with both empty.
    `detached` are tasks of the thread that end with no run.
    """

    run: RunRecord
    tree: Tree
    calls: dict[str, Call] = {}
    tickets: dict[str, Ticket] = {}
    tasks: tuple[TaskRecord, ...] = ()
    inbox: dict[str, InboxItem] = {}
    answer: Message | None = None
    detached: tuple[TaskRecord, ...] = ()
    # Not a set, which the garbage collector would look at.
    live: dict[str, None] = {}
    deferred: frozenset[str] = NOBODY

    @classmethod
    def of(cls, stored: ThreadView, run: RunRecord) -> RunView:
        """The view of a run as the store has it."""
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
    """The running tasks of a thread that end with no run."""
    return tuple([t for t in stored.tasks if t.run_id is None]) if stored.tasks else ()


class Infer(Struct, frozen=True, gc=False):
    """Ask the model."""


class Execute(Struct, frozen=True, gc=False):
    """Start these calls, as far as their gates allow."""

    calls: tuple[Call, ...]


class Await(Struct, frozen=True, gc=False):
    """Wait for a running call."""


class Recover(Struct, frozen=True, gc=False):
    """These calls were started and nobody runs them: do what their effect says."""

    calls: tuple[Call, ...]


class AfterCalls(Struct, frozen=True, gc=False):
    """Run the `after_tool` hooks of these finished calls."""

    calls: tuple[Call, ...]


class Interrupt(Struct, frozen=True, gc=False):
    """Stop the running calls."""

    reason: str


class Drop(Struct, frozen=True, gc=False):
    """Close these calls without running them."""

    calls: tuple[Call, ...]
    reason: str


class Overdue(Struct, frozen=True, gc=False):
    """Nobody answered these tickets by their deadline: do what they say happens then."""

    tickets: tuple[Ticket, ...]


class Take(Struct, frozen=True, gc=False):
    """Take these inbox items in."""

    items: tuple[InboxItem, ...]


class EndStep(Struct, frozen=True, gc=False):
    """Close the step: every call is finished."""


class SwitchAgent(Struct, frozen=True, gc=False):
    """Let the other agent take over."""

    agent_id: str


class PassOn(Struct, frozen=True, gc=False):
    """The backend has an answer to hear, while these calls of it still wait for theirs."""

    calls: tuple[Call, ...]


class SuspendRun(Struct, frozen=True, gc=False):
    """Nothing can go on before a ticket is answered or a task is done: wait."""

    tickets: tuple[str, ...]


class Pause(Struct, frozen=True, gc=False):
    """Somebody wants the run to stand still: wait until it may go on."""


class WaitForTasks(Struct, frozen=True, gc=False):
    """The answer is final and tasks are still running: wait for them."""


class Finish(Struct, frozen=True, gc=False):
    """The run is over."""

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
    | SuspendRun
    | Pause
    | WaitForTasks
    | Finish
)

# What ends a run whatever is going on.
CLOSING = (Cancelled, Failed)

_INFER, _AWAIT, _END_STEP, _WAIT, _PAUSE = Infer(), Await(), EndStep(), WaitForTasks(), Pause()


def next_move(view: RunView, rules: Rules, now: int) -> Move:
    """What happens next. The same for a run that starts, goes on, resumes or recovers."""
    run = view.run
    if run.cancel is not None and not isinstance(run.ending, Cancelled):
        return _close(view, Cancelled(run.cancel))
    if run.stage == "acting":
        return _act(view, run.ending, rules, now)
    ending = run.ending
    if ending is None:
        return _go_on(view, run, rules, now) if run.stage == "between" else _INFER
    if isinstance(ending, NaturalEnd):
        if view.inbox and (items := _steering(view, now)):
            return Take(items)
        if view.tasks:
            return _WAIT
    return Finish(ending)


def _go_on(view: RunView, run: RunRecord, rules: Rules, now: int) -> Move:
    """Begin a step, unless something comes before it."""
    if run.paused:
        return _PAUSE
    if run.next_agent is not None:
        return SwitchAgent(run.next_agent)
    if view.inbox and (items := _steering(view, now)):
        return Take(items)
    if run.steps and (stopped := limit_reached(run, rules.limits, rules.stop, view.tree, now)):
        return Finish(stopped)
    return _INFER


def _act(view: RunView, ending: Termination | None, rules: Rules, now: int) -> Move:
    """Go on with the calls of the open step."""
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
        state = call.state
        if state == "finished":
            if call.hooks_due:
                return AfterCalls(tuple([c for c in calls.values() if c.hooks_due]))
        elif state == "started":
            if call.id not in live:
                return Recover(_orphans(view))
        elif state == "requested" or (call.until is not None and call.until <= now):
            waiting.append(call)
        else:
            suspended += 1
    if waiting and ending is None and (start := _startable(waiting, view, rules)):
        return Execute(start)
    if live:
        return _AWAIT
    if ending is not None and (waiting or suspended):
        return Drop(_open(view), "the run is ending")
    if suspended:
        if len(calls) > suspended and any(t.asked_by == "remote" for t in view.tickets.values()):
            return PassOn(_open(view))
        return SuspendRun(tuple(view.tickets))
    return _END_STEP


def _close(view: RunView, ending: Termination) -> Move:
    """The run ends now, whatever is going on."""
    reason = "the run was cancelled" if isinstance(ending, Cancelled) else "the run failed"
    if view.live:
        return Interrupt(reason)
    if view.run.stage == "acting":
        if orphans := _orphans(view):
            return Recover(orphans)
        if rest := _open(view):
            return Drop(rest, reason)
    return Finish(ending)


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
    """The calls to start where some must run alone, or wait for their gate to be asked again."""
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
    return tuple([t for t in view.tickets.values() if t.deadline is not None and t.deadline <= now])


def _answers(view: RunView) -> tuple[InboxItem, ...]:
    """What is heard while a step is open: decisions, and the ends of tasks. What a task says otherwise is told at
    once with its end, when the step is closed."""
    said = {i.task_id for i in view.inbox.values() if i.event is not None or i.adopted is not None}
    return tuple(
        [
            i
            for i in view.inbox.values()
            if i.kind == "decision" or (i.kind == "task" and i.outcome is not None and i.task_id not in said)
        ]
    )


def _steering(view: RunView, now: int) -> tuple[InboxItem, ...]:
    return tuple(
        [
            i
            for i in view.inbox.values()
            if i.kind == "task" or (i.kind == "input" and i.policy == "steer" and (i.at is None or i.at <= now))
        ]
    )
