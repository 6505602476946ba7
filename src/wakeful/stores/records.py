"""The data of the store protocol: commits, views, claims, and what retention removes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, repeat
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from ..errors.arguments import Checked
from ..types.base import Data
from ..types.calls import Call
from ..types.events import Event
from ..types.inbox import InboxItem, Request
from ..types.messages import Message
from ..types.records import ApiKey, MemoryNote, Record
from ..types.runs import PRIORITY, Identity, RunRecord, TaskRecord
from ..types.tickets import Decision, Ticket
from .relays import Relay
from .usage import UsageEntry

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
    "Pruned",
    "Records",
    "Renewals",
    "Retention",
    "StateWrite",
    "ThreadRecord",
    "ThreadView",
    "number",
]

LEASE_MS = 30_000
MAX_ATTEMPTS = 5

ChildPolicy = Literal["reject", "detach", "cascade"]


_NONE: Mapping[str, int] = MappingProxyType({})


class Fence(Data):
    """The right to write to a thread: the epoch and the token of its claim."""

    epoch: int
    token: str


class StateWrite(Data):
    """A state key's new value as JSON. `run_id` is set if the key is scoped to a run."""

    name: str
    value: bytes
    run_id: str | None = None


class Chunk(Data, omit_defaults=True):
    """A piece of an answer that is being streamed, kept until the answer is committed.

    A chunk of the kind `part` is a whole content part as JSON, at the text offset `offset`. Readers are not shown
    such a chunk; a continuation of the answer needs it.
    """

    message_id: str
    attempt: int
    offset: int
    kind: Literal["text", "reasoning", "call", "part"]
    delta: str
    call_id: str | None = None


class About(Data):
    """Title and metadata of a thread. They belong to no run: the last writer wins. An empty title removes it."""

    title: str | None = None
    metadata: dict[str, Any] | None = None


class Records(Data):
    """Changes to records that belong to no thread: records to put, and records to remove.

    A put requires that the stored record has the revision before the given one; 1 requires that there is none. A
    record that is removed has to be stored at the given revision. Otherwise nothing is written, and `Conflict` is
    raised.
    """

    put: Sequence[Record] = ()
    removed: Sequence[ApiKey | MemoryNote] = ()


class Commit(Struct):
    """One atomic change to one thread and to other threads' inboxes.

    Who may write: the owner of a thread writes with its `fence`. Without an owner, `version` is the version that
    the writer saw. `claim` claims the thread for a worker and extends its lease to `lease` milliseconds; `release`
    ends the claim.

    What is written: `log` has messages and durable events in order, which the store numbers; messages belong to
    the run of `identity`, a `MessageAdded` to its own run. `inbox` sends items; `taken` are pending items that the
    run takes. `chunks` are dropped with their answer. `usage` are requests to models, for the usage log of the
    tenant. `pending` edits, moves or retracts pending items. The store may keep the sequences that it is given:
    don't change them afterwards.

    Conditions: `inbox_head` refuses the commit with `InboxMoved` if items arrived that the writer hasn't seen.
    `idle` refuses it with `Conflict` if the thread has an owner or an open run, or had one of the items before.
    `request` refuses it with `DuplicateRequest` if its id was used. If its id, or that of an item in `inbox`, was
    used with another digest, the commit is refused with `RequestReused`. Relays and pending items have to be at
    the revision before the given one, and `seen` items at the given one; else `Conflict`.

    Dispatch of a released thread: due as its run waits, or at the time `later`; `why` is kept as its error.
    `failed` counts an attempt: the thread is due after a backoff, or a dead letter after the last attempt.

    `then` are commits of other threads that are decided after this one, in the same transaction. A refused
    follower is left out. `records` are changes of records without a thread. `more=False` promises that no field
    after `more` is set.
    """

    thread_id: str
    identity: Identity | None = None
    fence: Fence | None = None
    log: Sequence[Message | Event] = ()
    runs: Sequence[RunRecord] = ()
    calls: Sequence[Call] = ()
    release: bool = False
    inbox_head: int | None = None
    usage: Sequence[UsageEntry] = ()
    more: bool = True
    version: int | None = None
    claim: str | None = None
    tickets: Sequence[Ticket] = ()
    decisions: Sequence[Decision] = ()
    state: Sequence[StateWrite] = ()
    tasks: Sequence[TaskRecord] = ()
    inbox: Sequence[InboxItem] = ()
    taken: Sequence[str] = ()
    request: Request | None = None
    chunks: Sequence[Chunk] = ()
    about: About | None = None
    lease: int = LEASE_MS
    relays: Sequence[Relay] = ()
    pending: Sequence[InboxItem] = ()
    seen: Mapping[str, int] = _NONE
    later: int | None = None
    why: str | None = None
    failed: str | None = None
    idle: bool = False
    then: Sequence[Commit] = ()
    records: Records | None = None


class Committed(Data):
    """The thread after a commit: version, log head, epoch and inbox head.

    The commit's own log entries have the numbers up to `head`. `then` has one entry for each follower; None if it
    was refused.
    """

    version: int
    head: int
    epoch: int
    inbox_head: int
    then: tuple[Committed | None, ...] = ()


_SEQ = repeat("seq")


def number(log: Sequence[Message | Event], head: int) -> None:
    """Set the sequence numbers of log entries, of which the last one is `head`."""
    # `force_setattr` returns None, so `any` visits every entry, faster than a loop.
    any(map(force_setattr, log, _SEQ, count(head - len(log) + 1)))


class ThreadRecord(Data, omit_defaults=True, kw_only=True):
    """A thread's record.

    `owner` is the worker that has claimed it; claims of dead workers don't count. `dead` says that its dispatch is
    a dead letter. A fork has the first `base_seq` entries of the thread `base_id`. While a run is active,
    `updated_at` may be up to a minute old. `principal` is the id of the principal whose input made the thread;
    None stands for trusted code. A fork has its base's.
    """

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
    principal: str | None = None


class ThreadView(Data, kw_only=True):
    """Everything that continues a thread, without its history.

    The open run with the calls, tickets and answer of its open step, running tasks, pending inbox items, and the
    state of the thread and of the run.
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


class Due(Data):
    """A dispatch without a live owner, due at the time `at`."""

    tenant: str
    thread_id: str
    agent_id: str
    at: int


class Claimed(Data):
    """A claimed thread. Its fence is this epoch with the worker's id as the token.

    `due_at` is by the store's clock; `waited` is the delay since then, in milliseconds. `taken_over` says that the
    previous owner died. `view` is the thread's view if the store returned one with the claim.
    """

    tenant: str
    thread_id: str
    agent_id: str
    epoch: int
    due_at: int
    waited: int
    attempts: int = 0
    taken_over: bool = False
    view: ThreadView | None = None


class Claims(Data):
    """The result of `Store.claim`.

    `wait` is the time until the next claim makes sense, in milliseconds: a dispatch will be due, or the lease of
    another worker ends; None if neither is known. `unsure` says that the connection broke: the worker may have
    claimed more threads, which `Store.claims` lists.
    """

    claimed: tuple[Claimed, ...] = ()
    wait: int | None = None
    unsure: bool = False


class Dispatch(Data, omit_defaults=True, kw_only=True):
    """A dispatch as an operator sees it. `error` says why a worker gave it up or put it off.

    A dead letter has `dead_at`.
    """

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
    """Limits for `prune`, as ages in milliseconds and as counts. None keeps everything.

    `events` are events of finished runs, `runs` finished runs with their ledger; messages stay. `children` are
    threads of delegated runs, `threads` all threads; threads with an open run, pending items or outgoing relays
    stay. `runs_kept` is the number of newest runs that a thread keeps, `threads_kept` the number of threads that a
    tenant keeps, by last activity. `usage` are entries of the usage log, which outlive their thread, `audit` are
    audit entries.
    """

    chunks: int | None = _DAY
    events: int | None = 30 * _DAY
    runs: int | None = None
    runs_kept: int | None = None
    children: int | None = 30 * _DAY
    threads: int | None = None
    threads_kept: int | None = None
    usage: int | None = None
    audit: int | None = None


class Pruned(Data):
    """The number of removed rows, by kind."""

    chunks: int = 0
    events: int = 0
    runs: int = 0
    threads: int = 0
    usage: int = 0
    audit: int = 0


class Renewals(Struct):
    """Counts of lease renewals: successful, failed, and left out because the event loop stalled."""

    ok: int = 0
    failed: int = 0
    stalled: int = 0
