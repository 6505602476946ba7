"""The data of the store's contract: what a commit holds, and what is read, claimed and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, repeat
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from ..errors._arguments import Checked
from ..types.events import Event
from ..types.messages import Message
from ..types.runs import (
    PRIORITY,
    Call,
    Identity,
    Principal,
    RunOptions,
    RunRecord,
    TaskEvent,
    TaskOutcome,
    TaskRecord,
    TaskRef,
)
from ..types.tickets import Decision, Ticket
from ._relays import Relay

__all__ = [
    "LEASE_MS",
    "MAX_ATTEMPTS",
    "About",
    "Beside",
    "ChildPolicy",
    "Chunk",
    "Claimed",
    "Claims",
    "Commit",
    "Committed",
    "Dispatch",
    "Due",
    "Fence",
    "InboxItem",
    "InboxKind",
    "InputPolicy",
    "Pruned",
    "Renewals",
    "Retention",
    "StateWrite",
    "ThreadRecord",
    "ThreadView",
    "number",
]

LEASE_MS = 30_000
MAX_ATTEMPTS = 5

InboxKind = Literal["input", "decision", "task", "cancel", "pause", "unpause", "tell", "request"]
InputPolicy = Literal["queue", "steer", "interrupt", "reject"]
ChildPolicy = Literal["reject", "detach", "cascade"]


_NONE: Mapping[str, int] = MappingProxyType({})


class Fence(Struct, frozen=True, gc=False):
    """The right to write to a thread: its epoch and the claim's token, as they were when it was taken."""

    epoch: int
    token: str


class Beside(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Input that goes along with a decision: its item's id, the thread that it is for, and what makes it input."""

    id: str
    thread_id: str
    message: Message
    agent_id: str | None = None
    principal: Principal | None = None
    run_id: str | None = None


class InboxItem(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Something the outside tells a thread: input, a decision, what a task says, to cancel or pause its run, or to
    tell of its end. A request is what remains of input that a run took in at once. Input for a child has the
    `lineage` of the run that it begins, the `task` that this run is, and the `history` that it begins with. Of a
    task an item has the `outcome`, an `event`, or its record, if it was `adopted` while somebody else owned the
    thread; nothing waits for the end of one in the `background`. While input is pending it can be changed: each
    change has the next `revision`. A cancellation with the policy `interrupt` leaves the run's tasks
    in the background to the next run. One with a time `at` wakes nobody before it; the lower its `priority`, the
    sooner its run is claimed. What somebody says `beside` a decision is put where it belongs once that counts, and
    nowhere if it doesn't."""

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
    reason: str = ""
    position: int = 0
    status: Literal["pending", "taken", "retracted"] = "pending"
    taken_by: str | None = None
    lineage: Identity | None = None
    task: TaskRef | None = None
    outcome: TaskOutcome | None = None
    history: tuple[Message, ...] = ()
    revision: int = 0
    priority: int = PRIORITY
    at: int | None = None
    background: bool = False
    event: TaskEvent | None = None
    adopted: TaskRecord | None = None
    beside: Beside | None = None

    @property
    def wake(self) -> str:
        """What the item is to a thread that might be woken by it: an input by its policy, else its kind. What is
        said of a task in the background wakes whoever waits for just that, or by its policy an idle thread too."""
        if self.kind == "input":
            return self.policy
        if self.kind != "task":
            return self.kind
        if self.adopted is not None:
            return ""
        return "steer" if self.policy == "steer" else "event" if self.background else "task"


class StateWrite(Struct, frozen=True, gc=False):
    """A state key's new value as JSON; `run_id` is there iff the key is scoped to the run."""

    name: str
    value: bytes
    run_id: str | None = None


class Chunk(Struct, frozen=True, gc=False, omit_defaults=True):
    """A piece of an answer that is still being streamed, kept until the answer is committed. One of the kind
    `part` is a whole part as JSON, and `offset` is how much text came before it: what readers aren't shown, and
    whoever goes on with the answer needs."""

    message_id: str
    attempt: int
    offset: int
    kind: Literal["text", "reasoning", "call", "part"]
    delta: str
    call_id: str | None = None


class About(Struct, frozen=True, gc=False):
    """What the application says about a thread. It belongs to no run: the last writer wins."""

    title: str | None = None
    metadata: dict[str, Any] | None = None


class Commit(Struct, gc=False):
    """One atomic change to one thread and to other threads' inboxes.

    The owner of a claim writes with its `fence`; without a claim on the thread, `version` says which version
    the writer saw. `claim` takes the thread for the worker of that id, whose lease is begun or prolonged to
    `lease` milliseconds; `release` gives it back. `log` holds messages and durable events in order; the store
    numbers them. A commit with messages names its run in `identity`; a message with a run of its own comes as
    a `MessageAdded`. The store may keep the sequences it is given: they are not changed afterwards. `inbox_head`
    makes the commit fail with `InboxMoved` if items arrived that the writer hasn't seen; `idle` makes it fail with
    `Conflict` if the thread has an owner or an open run, or was given one of the items before; `request` makes it
    fail with `Repeated` if a commit or an item had that id before. `chunks` are dropped with their answer.
    `relays` need neither fence nor version: one whose revision isn't the next is refused with `Conflict`. So are
    changes to `pending` items of the thread: a new message, a new position, or the status `retracted`. `seen` are
    revisions of items: one that was changed, taken or retracted since is refused with `Conflict` too.
    What is released is due as its run says, or at the time `later`; `failed` says why its owner gave up, which
    counts as an attempt: it is due after a pause that grows, and after the last attempt it is a dead letter.
    An `unsynced` commit is safe from the end of its process when it returns; it may be safe from a loss of power
    with its owner's next commit only, or some milliseconds later.
    What comes in `then` is tried once the commit is written, in the same transaction wherever that can be: commits
    of other threads, which may need it. One that is refused is left out, alone; its writer can do without.
    Without `more` there is nothing in it but what stands before that, as in most commits of a run: a store may be
    quicker then.
    """

    thread_id: str
    identity: Identity | None = None
    fence: Fence | None = None
    log: Sequence[Message | Event] = ()
    runs: Sequence[RunRecord] = ()
    calls: Sequence[Call] = ()
    release: bool = False
    inbox_head: int | None = None
    more: bool = True
    version: int | None = None
    claim: str | None = None
    tickets: Sequence[Ticket] = ()
    decisions: Sequence[Decision] = ()
    state: Sequence[StateWrite] = ()
    tasks: Sequence[TaskRecord] = ()
    inbox: Sequence[InboxItem] = ()
    taken: Sequence[str] = ()
    request: str | None = None
    chunks: Sequence[Chunk] = ()
    about: About | None = None
    lease: int = LEASE_MS
    relays: Sequence[Relay] = ()
    pending: Sequence[InboxItem] = ()
    seen: Mapping[str, int] = _NONE
    later: int | None = None
    failed: str | None = None
    unsynced: bool = False
    idle: bool = False
    then: Sequence[Commit] = ()


class Committed(Struct, frozen=True, gc=False):
    """What a commit made of the thread: its version, the last number of its log, and its epoch.

    The commit's own entries have the numbers up to `head`, in their order. `then` has the same of each commit that
    was to come with it, or None where that wasn't written.
    """

    version: int
    head: int
    epoch: int
    inbox_head: int
    then: tuple[Committed | None, ...] = ()


_SEQ = repeat("seq")


def number(log: Sequence[Message | Event], head: int) -> None:
    """Write their sequence numbers on the entries of a log that ends at `head`."""
    # Setting gives None, so that `any` goes through all of them: every commit comes here, and a loop costs more.
    any(map(force_setattr, log, _SEQ, count(head - len(log) + 1)))


class ThreadRecord(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A thread as the store keeps it. `claimed` says whether somebody alive owns it, and `owner` who that is;
    the claim of a worker that died counts no more. `dead` says that its dispatch is a dead letter. A fork has its
    first `base_seq` entries from the thread `base_id`. While a run goes on, `updated_at` may be up to a minute
    old."""

    id: str
    version: int = 0
    head: int = 0
    epoch: int = 0
    claimed: bool = False
    owner: str | None = None
    inbox_head: int = 0
    open_run_id: str | None = None
    last_run_id: str | None = None
    last_agent_id: str | None = None
    parent_id: str | None = None
    base_id: str | None = None
    base_seq: int = 0
    title: str | None = None
    metadata: dict[str, Any] = {}
    created_at: int = 0
    updated_at: int = 0
    dead: bool = False


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


class Due(Struct, frozen=True, gc=False):
    """A dispatch that nobody alive has claimed: a thread that may go on from the time `at`."""

    tenant: str
    thread_id: str
    agent_id: str
    at: int


class Claimed(Struct, frozen=True, gc=False):
    """A thread that `claim` took: its fence is the worker's id with this epoch. `due_at` is when it was due by the
    store's clock and `waited` how long that is ago, in milliseconds; `taken_over` says that its owner
    before died. `view` is the thread's, as it was claimed; where it didn't come along it is loaded."""

    tenant: str
    thread_id: str
    agent_id: str
    epoch: int
    due_at: int
    waited: int
    attempts: int = 0
    taken_over: bool = False
    view: ThreadView | None = None


class Claims(Struct, frozen=True, gc=False):
    """What `claim` took, and in how many milliseconds there is a reason to ask again: something will be due, or
    another worker's lease is over. None if none is known. `unsure` says that a connection broke meanwhile: the
    worker may have claimed more than is told here, which `claims` lists."""

    claimed: tuple[Claimed, ...] = ()
    wait: int | None = None
    unsure: bool = False


class Dispatch(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A queued activation, as an operator sees it. One that is dead has `dead_at`, and `error` says why; one that
    is claimed has the worker's id in `claimed_by`."""

    thread_id: str
    run_id: str | None = None
    agent_id: str = ""
    priority: int = PRIORITY
    due_at: int = 0
    attempts: int = 0
    claimed_by: str | None = None
    dead_at: int | None = None
    error: str = ""


_DAY = 24 * 3600 * 1000


class Retention(Struct, metaclass=Checked, frozen=True, kw_only=True):
    """What `prune` removes, by age in milliseconds and by count; None keeps it for ever.

    `events` are those of finished runs (messages stay), `runs` finished runs with their ledger (messages stay),
    `children` whole threads of delegated runs, `threads` all threads: of both only what nothing waits on.
    `runs_kept` are the newest runs of a thread that stay whatever their age would allow, `threads_kept` those
    threads of a tenant that were active last.
    """

    chunks: int | None = _DAY
    events: int | None = 30 * _DAY
    runs: int | None = None
    runs_kept: int | None = None
    children: int | None = 30 * _DAY
    threads: int | None = None
    threads_kept: int | None = None


class Pruned(Struct, frozen=True):
    """How much `prune` removed."""

    chunks: int = 0
    events: int = 0
    runs: int = 0
    threads: int = 0


class Renewals(Struct):
    """How often a lease was renewed, how often that failed, and how often it was left to run out because the event
    loop gave no sign of life."""

    ok: int = 0
    failed: int = 0
    stalled: int = 0
