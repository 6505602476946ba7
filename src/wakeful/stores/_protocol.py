"""The store's contract: one door to write through, and the reads that runs and readers need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import force_setattr

from ..types.events import Event
from ..types.messages import Message
from ..types.runs import (
    PRIORITY,
    Call,
    Identity,
    Principal,
    RunOptions,
    RunRecord,
    RunStatus,
    TaskEvent,
    TaskOutcome,
    TaskRecord,
    TaskRef,
    TaskStatus,
)
from ..types.tickets import Decision, Ticket, TicketStatus
from ._relays import Relay, RelayStatus

__all__ = [
    "LEASE_MS",
    "MAX_ATTEMPTS",
    "About",
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
    "Lease",
    "Pruned",
    "Renewals",
    "Retention",
    "StateWrite",
    "Store",
    "ThreadRecord",
    "ThreadView",
    "number",
]

LEASE_MS = 30_000
MAX_ATTEMPTS = 5

InboxKind = Literal["input", "decision", "task", "cancel", "pause", "unpause", "tell", "request"]
InputPolicy = Literal["queue", "steer", "interrupt", "reject"]
ChildPolicy = Literal["reject", "detach", "cascade"]


class Fence(Struct, frozen=True, gc=False):
    """The right to write to a thread: its epoch and the claim's token, as they were when it was taken."""

    epoch: int
    token: str


class InboxItem(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Something the outside tells a thread: input, a decision, what a task says, to cancel or pause its run, or to
    tell of its end. A request is what remains of input that a run took in at once. Input for a child has the
    `lineage` of the run that it begins, the `task` that this run is, and the `history` that it begins with. Of a
    task an item has the `outcome`, an `event`, or its record, if it was `adopted` while somebody else owned the
    thread; nothing waits for the end of one in the `background`. While input is pending it can be changed: each
    change has the next `revision`. One with a time `at` wakes nobody before it; the lower its `priority`, the
    sooner its run is claimed."""

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
    revisions of items that are taken: one that was changed or retracted since is refused with `Conflict` too.
    What is released is due as its run says, or at the time `later`; `failed` says why its owner gave up, which
    counts as an attempt: it is due after a pause that grows, and after the last attempt it is a dead letter.
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
    request: str | None = None
    chunks: Sequence[Chunk] = ()
    about: About | None = None
    lease: int = LEASE_MS
    relays: Sequence[Relay] = ()
    pending: Sequence[InboxItem] = ()
    seen: Mapping[str, int] = {}
    later: int | None = None
    failed: str | None = None
    idle: bool = False


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
    """A thread as the store keeps it. `claimed` says whether somebody alive owns it, and `owner` who that is;
    the claim of a worker that died counts no more. `dead` says that its dispatch is a dead letter. A fork has its
    first `base_seq` entries from the thread `base_id`."""

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


class Retention(Struct, frozen=True, kw_only=True):
    """What `prune` removes, by age in milliseconds and by count; None keeps it for ever.

    `events` are those of finished runs (messages stay), `runs` finished runs with their ledger (messages stay),
    `children` whole threads of delegated runs, `threads` all threads: of both only what nothing waits on.
    `runs_kept` and `threads_kept` are the newest ones that stay whatever their age would allow, per thread and per
    tenant.
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


class Lease(Protocol):
    """A worker's sign of life. While it is kept, the worker's claims stand."""

    renewals: Renewals
    """What came of renewing it so far."""

    def beat(self) -> None:
        """The event loop is alive; without a beat for half a lease the store stops renewing."""
        ...

    async def close(self) -> None:
        """Give the lease up: claims of this worker count no more."""
        ...


class Store(Protocol):
    """The truth. Everything durable goes through `commit`, which is atomic and can't be interrupted.

    A store handle belongs to one tenant and sees nothing of others. What is read carries its sequence number in
    `seq`. `commit` raises `StaleFence`, `Conflict`, `InboxMoved` or `Repeated`, having written nothing.
    """

    durable: bool

    async def commit(self, commit: Commit) -> Committed:
        """Write the commit, or nothing of it."""
        ...

    async def load(self, thread_id: str) -> ThreadView | None:
        """The thread's view, or None if it doesn't exist."""
        ...

    async def messages(
        self, thread_id: str, *, after: int = 0, limit: int | None = None, newest: int | None = None
    ) -> list[Message]:
        """The thread's messages, oldest first, from behind a sequence number; with `newest` the last so many."""
        ...

    async def events(self, thread_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """The thread's durable events, oldest first, from behind a sequence number."""
        ...

    async def chunks(self, thread_id: str) -> list[Chunk]:
        """What is kept of an answer that is being streamed, in order."""
        ...

    async def head(self, thread_id: str) -> int:
        """The last number of the thread's log; 0 if there is none."""
        ...

    async def run(self, run_id: str) -> RunRecord | None:
        """One run's record."""
        ...

    async def runs(
        self,
        *,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        agent_id: str | None = None,
        root_run_id: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Run records, newest first, older than the run `before`; with `root_run_id` those below that run."""
        ...

    async def tasks(self, thread_id: str, *, status: TaskStatus | None = None) -> Sequence[TaskRecord]:
        """The tasks that a thread owns, oldest first."""
        ...

    async def answer(self, run_id: str) -> Message | None:
        """The last answer of a run."""
        ...

    async def calls(self, run_id: str) -> Sequence[Call]:
        """The whole ledger of a run, in order."""
        ...

    async def tickets(
        self,
        run_id: str | None = None,
        *,
        thread_id: str | None = None,
        status: TicketStatus | None = None,
        assignee: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Ticket]:
        """Tickets, oldest first, from behind the ticket `after`; of one run, one thread, or of all."""
        ...

    async def ticket(self, ticket_id: str) -> Ticket | None:
        """One ticket."""
        ...

    async def decisions(self, ticket_id: str) -> Sequence[Decision]:
        """Who answered a ticket, and how, in order."""
        ...

    async def decision(self, decision_id: str) -> Decision | None:
        """One decision."""
        ...

    async def item(self, item_id: str) -> InboxItem | None:
        """An inbox item or a request, whatever became of it."""
        ...

    async def item_of_run(self, run_id: str) -> InboxItem | None:
        """The input that this run is of, if it had to wait its turn; the run may not be there yet."""
        ...

    async def relay(self, relay_id: str) -> Relay | None:
        """One relay."""
        ...

    async def relays(
        self,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        kind: str | None = None,
        status: RelayStatus | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Relay]:
        """Relays, oldest first, from behind the relay `after`."""
        ...

    async def due_relays(self, kind: str, now: int, *, limit: int = 100) -> Sequence[Relay]:
        """Live relays of that kind which are due, have something behind their cursor, and nobody delivers."""
        ...

    async def thread(self, thread_id: str) -> ThreadRecord | None:
        """One thread's record."""
        ...

    async def threads(self, *, before: str | None = None, limit: int = 100) -> list[ThreadRecord]:
        """Threads, newest first, older than the thread `before`; without those of delegated runs."""
        ...

    async def counts(self) -> Mapping[str, int]:
        """How many there are: threads, messages, runs by status, open tickets, dispatches."""
        ...

    async def fork(self, thread_id: str, at: int, new_id: str) -> ThreadRecord:
        """A new thread that begins with this one's log up to `at`, and its state as it was there."""
        ...

    async def delete(self, thread_id: str, *, children: ChildPolicy = "reject") -> int:
        """Remove threads and everything of theirs; returns how many. Children are threads of delegated runs."""
        ...

    async def prune(self, retention: Retention) -> Pruned:
        """Remove what is older than it has to be kept."""
        ...

    async def due(self, *, limit: int = 100) -> list[Due]:
        """Dispatches of all tenants that nobody alive has claimed: the first due first, then those of later."""
        ...

    async def claim(
        self,
        worker_id: str,
        *,
        agents: Collection[str],
        limit: int,
        lease: int = LEASE_MS,
        now: int | None = None,
        per_tenant: int | None = None,
        per_agent: Mapping[str, int] | None = None,
    ) -> Claims:
        """Take up to `limit` dispatches of these agents, of all tenants, that are due and that nobody alive has
        claimed: in turns between the tenants, for each the lowest priority and the longest due first.

        No more than `per_tenant` threads of a tenant and `per_agent` of an agent are claimed at once, whoever has
        them. `now` is the time that counts as due, by default the store's. What a worker left that died is an
        attempt; one too many makes the dispatch a dead letter.
        """
        ...

    async def dispatches(
        self, *, dead: bool | None = None, after: str | None = None, limit: int = 100
    ) -> list[Dispatch]:
        """Dispatches by their thread's id, from behind the thread `after`; with `dead` only dead letters, or only
        others."""
        ...

    async def revive(self, thread_id: str) -> bool:
        """Make a dead letter due again, with all its attempts; False if it was none."""
        ...

    async def queued(self, limit: int) -> int:
        """How many dispatches of the tenant wait for a worker, counted up to `limit`."""
        ...

    async def claims(self, worker_id: str) -> list[tuple[str, str, int]]:
        """The threads that a worker has claimed, of all tenants: tenant, thread, and its inbox's head."""
        ...

    def keep(self, worker_id: str, lease: int = LEASE_MS) -> Lease:
        """Keep the claims of this worker alive until the lease is closed."""
        ...

    async def tenants(self) -> list[str]:
        """The tenants that have threads in this store."""
        ...

    def tenant(self, name: str) -> Store:
        """A handle on the same store for another tenant."""
        ...

    async def close(self) -> None:
        """Let go of what the store holds open."""
        ...
