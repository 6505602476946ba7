"""The facts that a commit is decided by: heads of threads, and the rows that the commit refers to.

All of it is frozen. A store loads facts before it calls `decide`, and replaces a head instead of changing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ..types.base import Data
from ..types.runs import PRIORITY

__all__ = [
    "FOREIGN",
    "IDLE_WAKES",
    "DispatchRow",
    "Facts",
    "Head",
    "ItemRow",
    "NeedFacts",
    "RecordKey",
    "RecordRow",
    "RunRow",
]

IDLE_WAKES = "queue steer"
"""The items that wake a thread without an open run."""

FOREIGN = -1

RecordKey = tuple[str, str]
"""The kind and the id of a record that belongs to no thread."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_NO_RECORDS: Mapping[RecordKey, RecordRow | None] = MappingProxyType({})


class RunRow(Data):
    """A run, as far as commits depend on it."""

    no: int
    id: str
    agent: str
    priority: int
    steps: int
    status: str


class DispatchRow(Data):
    """A thread's dispatch.

    `held` says that a claim holds it. `mark` is the step its run had when it was claimed: progress counts from
    there. A dead letter has `dead_at`.
    """

    agent: str
    priority: int
    due_at: int
    attempts: int = 0
    held: bool = False
    mark: int = 0
    dead_at: int | None = None
    error: str | None = None


class ItemRow(Data):
    """An item of an inbox, or a request id that was used (`position` 0, status `taken`)."""

    thread_id: str
    status: str
    revision: int = 0
    position: int = 0
    taken_by: str | None = None
    wake: str = ""
    at: int | None = None
    priority: int = PRIORITY
    agent: str | None = None
    digest: str = ""


class RecordRow(Data):
    """The revision of a stored record, and the digest of the request that made it.

    `FOREIGN` is the revision of another tenant's record whose id is unique over all tenants.
    """

    revision: int
    digest: str = ""


class Head(Data):
    """The small record of a thread that its commits are decided by.

    A thread without a row has `no` 0. `handed` is the version at the last change of owner. `pending` holds the
    pending items by id, in order of position; None means not loaded. `has_chunks` may be true without chunks.
    `principal` is set by the commit that makes the thread; it isn't loaded.
    """

    id: str
    no: int = 0
    version: int = 0
    log_head: int = 0
    epoch: int = 0
    claim: str | None = None
    handed: int = 0
    inbox_head: int = 0
    wakes: str = IDLE_WAKES
    open_run: RunRow | None = None
    last_run: int | None = None
    last_agent: str = ""
    dispatch: DispatchRow | None = None
    pending: Mapping[str, ItemRow] | None = _EMPTY
    has_chunks: bool = True
    parent: str | None = None
    principal: str | None = None


class Facts(Data):
    """Everything `decide` may look at.

    A key that is absent was not loaded; None says that there is no such row. `relays` has
    revisions. `alive` says which workers are alive, `leases` until when a worker's lease is known to
    last. `next_thread` and `next_run` are free row numbers, and so are the numbers that follow them.
    """

    heads: Mapping[str, Head]
    items: Mapping[str, ItemRow | None] = _EMPTY
    runs: Mapping[str, RunRow | None] = _EMPTY
    relays: Mapping[str, int | None] = _EMPTY
    records: Mapping[RecordKey, RecordRow | None] = _NO_RECORDS
    alive: Mapping[str, bool] = _EMPTY
    leases: Mapping[str, int] = _EMPTY
    next_thread: int = 0
    next_run: int = 0


class NeedFacts(Data):
    """Ids of the rows that a decision needs and `Facts` lacks."""

    threads: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    relays: tuple[str, ...] = ()
    records: tuple[RecordKey, ...] = ()
    workers: tuple[str, ...] = ()
