"""Where a run may stand: builders of views for the pure tests."""

from __future__ import annotations

from typing import Any

from wakeful import Decision, Limits
from wakeful.loop import Rules, RunView, Tree
from wakeful.loop.moves import Move, next_move
from wakeful.types.calls import Call
from wakeful.types.inbox import DecisionItem, InboxItem, InputItem, TaskItem
from wakeful.types.messages import user_message
from wakeful.types.runs import Identity, RunRecord, TaskRecord
from wakeful.types.tickets import Ticket

ME = Identity("r", "t", "agent", "r")
NOW = 1_000_000


def record(**fields: Any) -> RunRecord:
    """A running run."""
    defaults: dict[str, Any] = {"status": "running", "created_at": NOW, "started_at": NOW}
    return RunRecord(identity=ME, agent_id="agent", **{**defaults, **fields})


def ledger(**states: str) -> dict[str, Call]:
    """Calls by id, each named for its tool and standing in that state; `done!` has its hooks due."""
    calls: dict[str, Call] = {}
    for index, (name, state) in enumerate(states.items()):
        fields: dict[str, Any] = {"state": state.removesuffix("!"), "hooks_due": state.endswith("!")}
        if fields["state"] == "done":
            fields |= {"state": "finished", "outcome": "ok"}
        if state == "suspended":
            fields["ticket_id"] = f"ticket-{name}"
        calls[name] = Call(name, "r", 1, index, name, {}, **fields)
    return calls


def ticket(call_id: str, **fields: Any) -> Ticket:
    """An open ticket of a call."""
    defaults: dict[str, Any] = {"asked_by": "approval", "accepts": ("proceed", "arguments", "result")}
    of = {"id": f"ticket-{call_id}", "run_id": "r", "thread_id": "t", "call_id": call_id, "tool": call_id}
    return Ticket(arguments={}, **of, **{**defaults, **fields})


def acting(*, live: str = "", deferred: str = "", inbox: tuple[InboxItem, ...] = (), **states: str) -> RunView:
    """A view of a step whose answer is committed, with calls in these states."""
    calls = ledger(**states)
    waiting = [ticket(c.id) for c in calls.values() if c.state == "suspended"]
    run = record(stage="acting", steps=1)
    view = RunView(run, Tree(), calls, {t.id: t for t in waiting}, inbox={i.id: i for i in inbox})
    view.live, view.deferred = dict.fromkeys(live.split()), frozenset(deferred.split())
    return view


def between(*items: InboxItem, tasks: int = 0, **fields: Any) -> RunView:
    """A view of a run between two steps."""
    running = tuple(TaskRecord(f"task-{n}", "t", "r") for n in range(tasks))
    return RunView(record(**fields), Tree(), tasks=running, inbox={i.id: i for i in items})


def given(policy: Any = "queue", item_id: str = "item") -> InboxItem:
    """Input in the inbox."""
    return InputItem(id=item_id, thread_id="t", message=user_message("hi"), policy=policy)


def decided(call_id: str, **fields: Any) -> InboxItem:
    """A decision in the inbox."""
    decision = Decision(f"ticket-{call_id}", **fields)
    return DecisionItem(id=f"decision-{call_id}", thread_id="t", decision=decision)


def task_result(item_id: str = "result") -> InboxItem:
    """A task's result in the inbox."""
    return TaskItem(id=item_id, thread_id="t", task_id="task-0")


def move(view: RunView, now: int = NOW, **rules: Any) -> Move:
    """The next move of the run."""
    limits = {key: rules.pop(key) for key in ("steps", "parallel", "tree_calls") if key in rules}
    return next_move(view, Rules(Limits(**limits), **rules), now)
