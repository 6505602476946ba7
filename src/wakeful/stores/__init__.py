"""Stores: the contract, and the implementations of it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .conditions import refuse_reuse as refuse_reuse
from .conditions import reused as reused
from .factory import open_store as open_store
from .filters import NO_DEADLINE as NO_DEADLINE
from .filters import OutcomeKind as OutcomeKind
from .filters import RunFilters as RunFilters
from .filters import TicketFilters as TicketFilters
from .filters import TicketOrder as TicketOrder
from .filters import due_of as due_of
from .jobs import Promise as Promise
from .jobs import next_turn as next_turn
from .jobs import settled as settled
from .memories import search_words as search_words
from .memory import MemoryStore as MemoryStore
from .overview import COUNTED as COUNTED
from .overview import Backlog as Backlog
from .overview import DeadSeen as DeadSeen
from .overview import Mark as Mark
from .overview import Overview as Overview
from .overview import QueueSeen as QueueSeen
from .overview import RunSeen as RunSeen
from .overview import Tally as Tally
from .overview import TaskSeen as TaskSeen
from .overview import TicketSeen as TicketSeen
from .overview import WorkerSeen as WorkerSeen
from .protocol import Lease as Lease
from .protocol import Store as Store
from .records import LEASE_MS as LEASE_MS
from .records import MAX_ATTEMPTS as MAX_ATTEMPTS
from .records import About as About
from .records import ChildPolicy as ChildPolicy
from .records import Chunk as Chunk
from .records import Claimed as Claimed
from .records import Claims as Claims
from .records import Commit as Commit
from .records import Committed as Committed
from .records import Dispatch as Dispatch
from .records import Due as Due
from .records import Fence as Fence
from .records import Pruned as Pruned
from .records import Records as Records
from .records import Renewals as Renewals
from .records import Retention as Retention
from .records import StateWrite as StateWrite
from .records import ThreadRecord as ThreadRecord
from .records import ThreadView as ThreadView
from .records import number as number
from .relays import Relay as Relay
from .relays import RelayStatus as RelayStatus
from .reports import DELETED as DELETED
from .reports import report as report
from .usage import UsageEntry as UsageEntry
from .usage import UsageKey as UsageKey
from .usage import UsageRow as UsageRow

if TYPE_CHECKING:
    from .codec.packer import Codec as Codec
    from .postgres import PostgresStore as PostgresStore
    from .sqlite import SqliteStore as SqliteStore

# The public names. The others are for the packages above.
__all__ = [
    "About",
    "Backlog",
    "ChildPolicy",
    "Chunk",
    "Claimed",
    "Claims",
    "Codec",
    "Commit",
    "Committed",
    "DeadSeen",
    "Dispatch",
    "Due",
    "Fence",
    "Lease",
    "MemoryStore",
    "OutcomeKind",
    "Overview",
    "PostgresStore",
    "Pruned",
    "QueueSeen",
    "Records",
    "Relay",
    "RelayStatus",
    "Renewals",
    "Retention",
    "RunFilters",
    "RunSeen",
    "SqliteStore",
    "StateWrite",
    "Store",
    "Tally",
    "TaskSeen",
    "ThreadRecord",
    "ThreadView",
    "TicketFilters",
    "TicketOrder",
    "TicketSeen",
    "UsageEntry",
    "UsageKey",
    "UsageRow",
    "WorkerSeen",
    "open_store",
]

# Imported on first use: they load a driver.
_LAZY = {"Codec": ".codec.packer", "PostgresStore": ".postgres", "SqliteStore": ".sqlite"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'wakeful.stores' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)
