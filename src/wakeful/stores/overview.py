"""The overview of a database for operators, as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

__all__ = [
    "COUNTED",
    "Backlog",
    "DeadSeen",
    "Mark",
    "Overview",
    "QueueSeen",
    "RunSeen",
    "Tally",
    "TaskSeen",
    "TicketSeen",
    "WorkerSeen",
    "lost",
]

# The most rows that are counted, so that a million waiting runs cost what a thousand do.
COUNTED = 1000


class Mark(Struct, frozen=True):
    """A resource, and a text that differs after each change of it that lists show."""

    kind: Literal["run", "thread", "ticket"]
    id: str
    text: str


class WorkerSeen(Struct, frozen=True, kw_only=True):
    """A worker: `alive` until its lease ends at `until`, or `lost` with threads that wait for a takeover."""

    id: str
    state: Literal["alive", "lost"]
    started_at: int
    until: int
    claims: int


class QueueSeen(Struct, frozen=True, kw_only=True):
    """Unclaimed dispatches of a tenant and an agent.

    `waiting` are due, the oldest since `oldest_at`; `later` will be. `more` says that not all were counted.
    """

    tenant: str
    agent_id: str
    waiting: int
    later: int
    oldest_at: int | None = None
    more: bool = False


class RunSeen(Struct, frozen=True, kw_only=True):
    """An open run. Without a `worker_id`, a running run waits for a worker."""

    id: str
    thread_id: str
    agent_id: str
    status: str
    stage: str
    steps: int
    tokens: int
    created_at: int
    updated_at: int
    worker_id: str | None = None
    parent_run_id: str | None = None
    reason: str | None = None
    until: int | None = None
    cancelling: bool = False


class TaskSeen(Struct, frozen=True, kw_only=True):
    """A running task of a listed run: the run `target` works for the run `run_id`."""

    id: str
    name: str | None
    thread_id: str
    run_id: str | None
    agent_id: str
    target: str
    background: bool
    remote: bool
    created_at: int


class TicketSeen(Struct, frozen=True, kw_only=True):
    """An open ticket, without the arguments of its call, which may be confidential.

    `left` is the verdict of an answer that no run has taken yet, `left_by` who gave it, and `problem` why the last
    worker that tried couldn't take it.
    """

    id: str
    thread_id: str
    run_id: str
    tool: str
    message: str
    asked_by: str
    accepts: tuple[str, ...]
    created_at: int
    assignee: str | None = None
    deadline: int | None = None
    left: str | None = None
    left_by: str | None = None
    problem: str = ""


class DeadSeen(Struct, frozen=True, kw_only=True):
    """A dead letter."""

    thread_id: str
    run_id: str | None
    agent_id: str
    attempts: int
    dead_at: int
    error: str


class Tally(Struct, frozen=True):
    """A count; with `more` a lower bound."""

    count: int = 0
    more: bool = False


class Backlog(Struct, frozen=True):
    """Dispatches of all tenants that wait for a worker at the time `at`, and the number of dead letters."""

    at: int
    queues: tuple[QueueSeen, ...]
    dead: Tally


class Overview(Struct, frozen=True, kw_only=True):
    """An overview at the time `at` of the store's clock.

    Workers and queues are of all tenants, the rest of one. Open runs and dead letters are newest first, tickets
    oldest first.
    """

    at: int
    tenant: str
    workers: tuple[WorkerSeen, ...] = ()
    queues: tuple[QueueSeen, ...] = ()
    running: Tally = Tally()
    waiting: Tally = Tally()
    tickets_open: Tally = Tally()
    dead_letters: Tally = Tally()
    runs: tuple[RunSeen, ...] = ()
    tasks: tuple[TaskSeen, ...] = ()
    tickets: tuple[TicketSeen, ...] = ()
    dead: tuple[DeadSeen, ...] = ()


def lost(workers: Sequence[WorkerSeen], ended: set[str]) -> tuple[WorkerSeen, ...]:
    """Mark workers whose processes ended as lost; those without claims are left out."""
    seen = [replace(one, state="lost") if one.id in ended else one for one in workers]
    return tuple([one for one in seen if one.state == "alive" or one.claims])
