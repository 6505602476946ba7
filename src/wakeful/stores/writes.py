"""The writes of an accepted commit: the result of `decide`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import force_setattr

from ..types.base import Data
from ..types.inbox import InboxItem
from ..types.runs import RunRecord
from .heads import Facts, Head, RunRow
from .records import Commit, Committed

__all__ = ["Delivery", "GroupWrites", "Guard", "LeaseWrite", "RunWrite", "Writes", "number_items"]


class RunWrite(Data):
    """A run's record on its way to its row. An `is_step` write leaves indexed columns as they are."""

    record: RunRecord
    row: RunRow
    is_new: bool
    is_step: bool


class Delivery(Data):
    """An item that arrives in an inbox, and its place there."""

    item: InboxItem
    position: int


class LeaseWrite(Data):
    """A lease to begin or to extend."""

    worker_id: str
    until: int


class Guard(Data):
    """The columns of a thread's row that a decision rests on, without claim and epoch."""

    version: bool
    inbox_head: bool


class Writes(Data):
    """The writes of an accepted commit.

    `heads` are the threads' heads afterwards, of those that change. `base` is the log head before. `run_numbers`
    has the row numbers of all runs that the commit names; 0 stands for a run without a record.
    """

    commit: Commit
    now: int
    committed: Committed
    heads: Mapping[str, Head]
    guards: Mapping[str, Guard]
    base: int = 0
    runs: Sequence[RunWrite] = ()
    run_numbers: Mapping[str, int] = {}
    has_changes: bool = False
    drops_chunks: bool = False
    deliveries: Sequence[Delivery] = ()
    taken: Sequence[str] = ()
    lease: LeaseWrite | None = None
    next_thread: int = 0
    next_run: int = 0


class GroupWrites(Data):
    """The writes of a commit and its followers, and the facts afterwards. Refused followers are left out."""

    writes: Sequence[Writes]
    committed: Committed
    facts: Facts


def number_items(writes: Writes) -> None:
    """Tell the sender's items their positions, once the commit is written."""
    for delivery in writes.deliveries:
        force_setattr(delivery.item, "position", delivery.position)
