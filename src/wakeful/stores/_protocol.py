"""The store's contract: one door to write through, and the reads that runs and readers need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import force_setattr

from ..types.events import Event
from ..types.messages import Message
from ..types.runs import Call, Identity, Principal, RunOptions, RunRecord, RunStatus, TaskRecord
from ..types.tickets import Decision, Ticket

__all__ = [
    "Commit",
    "Committed",
    "Fence",
    "InboxItem",
    "InboxKind",
    "InputPolicy",
    "StateWrite",
    "Store",
    "ThreadRecord",
    "ThreadView",
    "number",
]

InboxKind = Literal["input", "decision", "task"]
InputPolicy = Literal["queue", "steer", "interrupt", "reject"]


class Fence(Struct, frozen=True, gc=False):
    """The right to write to a thread: its epoch and the claim's token, as they were when it was taken."""

    epoch: int
    token: str


class InboxItem(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Something the outside tells a thread: input, a decision, a task's result."""

    id: str
    thread_id: str
    kind: InboxKind
    message: Message | None = None
    decision: Decision | None = None
    task_id: str | None = None
    policy: InputPolicy = "queue"
    agent_id: str | None = None
    principal: Principal | None = None
    options: RunOptions | None = None
    run_id: str | None = None
    seed: dict[str, bytes] = {}
    position: int = 0


class StateWrite(Struct, frozen=True, gc=False):
    """A state key's new value as JSON; `run_id` is there iff the key is scoped to the run."""

    name: str
    value: bytes
    run_id: str | None = None


class Commit(Struct, gc=False):
    """One atomic change to one thread and to other threads' inboxes.

    The owner of a claim writes with its `fence`; without a claim on the thread, `version` says which version
    the writer saw. `claim` takes the thread for the writer, `release` gives it back. `log` holds messages and
    durable events in order; the store numbers them. A commit with messages names its run in `identity`. The
    store may keep the sequences it is given: they are not changed afterwards. `inbox_head` makes the commit
    fail with `InboxMoved` if items arrived that the writer hasn't seen.
    """

    thread_id: str
    identity: Identity | None = None
    fence: Fence | None = None
    log: Sequence[Message | Event] = ()
    runs: Sequence[RunRecord] = ()
    calls: Sequence[Call] = ()
    release: bool = False
    inbox_head: int | None = None
    version: int | None = None
    claim: str | None = None
    tickets: Sequence[Ticket] = ()
    decisions: Sequence[Decision] = ()
    state: Sequence[StateWrite] = ()
    tasks: Sequence[TaskRecord] = ()
    inbox: Sequence[InboxItem] = ()
    taken: Sequence[str] = ()


class Committed(Struct, frozen=True, gc=False):
    """What a commit made of the thread: its version, the last number of its log, and its epoch.

    The commit's own entries have the numbers up to `head`, in their order.
    """

    version: int
    head: int
    epoch: int
    inbox_head: int


def number(log: Sequence[Message | Event], head: int) -> None:
    """Write their sequence numbers on the entries of a log that ends at `head`."""
    seq = head - len(log)
    for entry in log:
        seq += 1
        force_setattr(entry, "seq", seq)


class ThreadRecord(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A thread as the store keeps it."""

    id: str
    version: int = 0
    head: int = 0
    epoch: int = 0
    claimed: bool = False
    inbox_head: int = 0
    open_run_id: str | None = None
    last_run_id: str | None = None
    last_agent_id: str | None = None
    created_at: int = 0


class ThreadView(Struct, frozen=True, gc=False, kw_only=True):
    """What it takes to go on with a thread: never its history.

    The open run with the calls, tickets and answer of its open step, live tasks, pending inbox
    items, and state: the thread's and the run's.
    """

    thread: ThreadRecord
    run: RunRecord | None = None
    calls: tuple[Call, ...] = ()
    tickets: tuple[Ticket, ...] = ()
    answer: Message | None = None
    tasks: tuple[TaskRecord, ...] = ()
    inbox: tuple[InboxItem, ...] = ()
    state: dict[str, bytes] = {}
    run_state: dict[str, bytes] = {}


class Store(Protocol):
    """The truth. Everything durable goes through `commit`, which is atomic and can't be interrupted.

    What is read carries its sequence number in `seq`. `commit` raises `StaleFence`, `Conflict` or `InboxMoved`,
    having written nothing.
    """

    async def commit(self, commit: Commit) -> Committed:
        """Write the commit, or nothing of it."""
        ...

    async def load(self, thread_id: str) -> ThreadView | None:
        """The thread's view, or None if it doesn't exist."""
        ...

    async def messages(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> list[Message]:
        """The thread's messages, oldest first, from behind a sequence number."""
        ...

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The thread's durable events, oldest first, from behind a sequence number."""
        ...

    async def run(self, run_id: str) -> RunRecord | None:
        """One run's record."""
        ...

    async def runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Run records, newest first, older than the run `before`."""
        ...

    async def calls(self, run_id: str) -> Sequence[Call]:
        """The whole ledger of a run, in order."""
        ...

    async def tickets(self, run_id: str) -> Sequence[Ticket]:
        """All tickets of a run, in order, whatever became of them."""
        ...

    async def close(self) -> None:
        """Let go of what the store holds open."""
        ...
