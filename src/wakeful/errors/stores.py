"""Errors of stores."""

from __future__ import annotations

from .base import WakefulError

__all__ = [
    "CodecFailed",
    "Conflict",
    "CorruptRow",
    "DuplicateRequest",
    "InboxFull",
    "InboxMoved",
    "InvalidStore",
    "StaleFence",
    "StoreError",
    "StoreFull",
    "StoreLost",
    "StoreUnavailable",
]


class StoreError(WakefulError):
    """The store refused the operation, or failed."""


class StaleFence(StoreError):
    """The writer no longer owns the thread; nothing was written."""


class Conflict(StoreError):
    """Another writer committed to the thread first; nothing was written."""


class InboxMoved(StoreError):
    """New items arrived in the inbox before the run could finish; nothing was written."""


class InboxFull(StoreError):
    """Too many items are pending in the inbox of thread `thread_id`; nothing was written."""

    def __init__(self, message: str, thread_id: str | None = None) -> None:
        super().__init__(message)
        self.thread_id = thread_id


class DuplicateRequest(StoreError):
    """A request with this id was accepted before. `run_id` is its run, None if that hasn't started yet."""

    def __init__(self, message: str, run_id: str | None) -> None:
        super().__init__(message)
        self.run_id = run_id


class CorruptRow(StoreError):
    """A row can't be decoded. Other threads are unaffected."""


class CodecFailed(StoreError):
    """The store's codec could not encode a payload; nothing was written."""


class StoreFull(StoreError):
    """The disk is full; nothing was written."""


class StoreUnavailable(StoreError):
    """The database can't be opened, reached or written to."""


class StoreLost(StoreUnavailable):
    """The file of the store was deleted, replaced or cut off while it was open. Later writes are lost."""


class InvalidStore(StoreUnavailable):
    """The database is damaged, not a wakeful store, or written by a newer version. It was not modified."""
