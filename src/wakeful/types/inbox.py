"""Inbox items: everything that reaches a thread from outside its run, one struct for each kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from .base import Data
from .messages import Message
from .runs import (
    PRIORITY,
    Author,
    Identity,
    Principal,
    RunOptions,
    TaskEvent,
    TaskOutcome,
    TaskRecord,
    TaskRef,
    TraceContext,
)
from .tickets import Decision

__all__ = [
    "CancelItem",
    "DecisionItem",
    "InboxItem",
    "InputItem",
    "InputPolicy",
    "Item",
    "NotifyItem",
    "PauseItem",
    "Request",
    "RequestItem",
    "TaskItem",
    "UnknownItem",
    "UnpauseItem",
    "decisions_in",
]

InputPolicy = Literal["queue", "steer", "interrupt", "reject"]


class Request(Data):
    """A caller's id for a call that creates or decides something, and a digest of what the call asks for.

    A repetition has no effect. The same id with another digest is refused with `RequestReused`. An empty digest,
    as of an id that is a plain text, is not compared.
    """

    id: str
    digest: str = ""


class Item(Data, omit_defaults=True, kw_only=True, tag_field="kind"):
    """The fields that all kinds share.

    `run_id` is the run that the item starts or addresses, `agent_id` the agent of a run that it starts. An item
    wakes nobody before `at` (milliseconds); a lower `priority` is claimed sooner. The id may be a request's, whose
    digest is `digest`. The store sets `position`,
    `status`, `taken_by` and `revision`; every edit of a pending item has the next revision. `trace` is that of the
    sender.
    """

    id: str
    thread_id: str
    agent_id: str | None = None
    run_id: str | None = None
    position: int = 0
    status: Literal["pending", "taken", "retracted"] = "pending"
    taken_by: str | None = None
    revision: int = 0
    priority: int = PRIORITY
    at: int | None = None
    digest: str = ""
    trace: TraceContext | None = None

    kind: ClassVar[str] = ""

    @property
    def wake(self) -> str:
        """The word for this item in the `wakes` of a waiting run; empty if it wakes none."""
        return self.kind

    @property
    def parent_thread_id(self) -> str | None:
        """The parent of the thread that the item creates, if it creates one."""
        return None


class InputItem(Item, omit_defaults=True, kw_only=True, tag="input"):
    """A message for the thread, from a person, an agent or a schedule.

    Input for a child run has the run's `lineage`, the `task` that the run is, and the `history` to start with.
    `seed` holds initial state values as JSON. `owner` is that of the run.
    """

    kind: ClassVar[str] = "input"

    message: Message
    policy: InputPolicy = "queue"
    principal: Principal | None = None
    owner: str | None = None
    options: RunOptions | None = None
    seed: dict[str, bytes] = {}
    lineage: Identity | None = None
    task: TaskRef | None = None
    history: tuple[Message, ...] = ()

    @property
    def wake(self) -> str:
        """The policy: `queue` wakes an idle thread, `steer` a run that waits for tasks or a timer too."""
        return self.policy

    @property
    def parent_thread_id(self) -> str | None:
        """The thread of the run that delegated."""
        return None if self.lineage is None else self.lineage.parent_thread_id


class DecisionItem(Item, omit_defaults=True, kw_only=True, tag="decision"):
    """A decision on a ticket. `follow_up` is input that is delivered if the decision is accepted.

    The run that takes the decision checks the rights of its `author` again. Trusted code has none.
    """

    kind: ClassVar[str] = "decision"

    decision: Decision
    author: Author | None = None
    follow_up: InputItem | None = None


class TaskItem(Item, omit_defaults=True, kw_only=True, tag="task"):
    """News of a task for its owner: its `outcome`, an `event`, or its record if the thread `adopted` it.

    `background` says that no call waits for the task; `starts_run` that an idle thread starts a run for the item,
    which has the `principal` and `owner` of the task's run.
    """

    kind: ClassVar[str] = "task"

    task_id: str
    outcome: TaskOutcome | None = None
    event: TaskEvent | None = None
    adopted: TaskRecord | None = None
    background: bool = False
    starts_run: bool = False
    principal: Principal | None = None
    owner: str | None = None

    @property
    def wake(self) -> str:
        """`task` for a waiting call, `event` for background work, `steer` for an idle thread too."""
        if self.adopted is not None:
            return ""
        return "steer" if self.starts_run else "event" if self.background else "task"


class CancelItem(Item, omit_defaults=True, kw_only=True, tag="cancel"):
    """Cancel a run. With `by_owner` nobody needs a report of its end; with `leaves_tasks` background tasks
    go to the thread's next run."""

    kind: ClassVar[str] = "cancel"

    reason: str = ""
    by_owner: bool = False
    leaves_tasks: bool = False


class PauseItem(Item, omit_defaults=True, kw_only=True, tag="pause"):
    """Pause a run before its next step."""

    kind: ClassVar[str] = "pause"


class UnpauseItem(Item, omit_defaults=True, kw_only=True, tag="unpause"):
    """Let a paused run continue."""

    kind: ClassVar[str] = "unpause"


class NotifyItem(Item, omit_defaults=True, kw_only=True, tag="notify"):
    """Ask a child run to report its end to its owner's inbox, since the owner moved to another process."""

    kind: ClassVar[str] = "notify"


class RequestItem(Item, omit_defaults=True, kw_only=True, tag="request"):
    """An id without content: a request that a run took at once, or an item whose content was pruned."""

    kind: ClassVar[str] = "request"


class UnknownItem(Item, omit_defaults=True, kw_only=True, tag="unknown"):
    """An item of a kind that a newer version wrote, in `raw`. It stays in the inbox and wakes nobody."""

    kind: ClassVar[str] = "unknown"

    raw: Any = None

    @property
    def wake(self) -> str:
        """Nothing: this version can't act on the item."""
        return ""


InboxItem = (
    InputItem
    | DecisionItem
    | TaskItem
    | CancelItem
    | PauseItem
    | UnpauseItem
    | NotifyItem
    | RequestItem
    | UnknownItem
)


def decisions_in(items: Iterable[InboxItem]) -> list[Decision]:
    """The decisions among some items, in order."""
    return [item.decision for item in items if isinstance(item, DecisionItem)]
