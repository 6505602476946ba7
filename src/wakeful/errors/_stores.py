"""What a store refuses or fails to do."""

from __future__ import annotations

from ._base import WakefulError

__all__ = [
    "CodecFailed",
    "Conflict",
    "CorruptRow",
    "InboxFull",
    "InboxMoved",
    "Repeated",
    "StaleFence",
    "StoreError",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
]


class StoreError(WakefulError):
    """The store refused the operation or failed to carry it out."""


class StaleFence(StoreError):
    """The writer no longer owns the thread; nothing was written."""


class Conflict(StoreError):
    """Somebody else wrote to the thread first; nothing was written."""


class InboxMoved(StoreError):
    """New items arrived in the inbox before the run could finish; nothing was written."""


class InboxFull(StoreError):
    """Too many items are pending in the inbox of a thread, which `thread_id` names; nothing was written."""

    def __init__(self, message: str, thread_id: str | None = None) -> None:
        super().__init__(message)
        self.thread_id = thread_id


class Repeated(StoreError):
    """A request of that id was made before; `run_id` is the run that it led to, once there is one."""

    def __init__(self, message: str, run_id: str | None) -> None:
        super().__init__(message)
        self.run_id = run_id


class CorruptRow(StoreError):
    """A row that can't be read. Other threads are unaffected."""


class CodecFailed(StoreError):
    """The store's codec couldn't encode a payload; nothing was written."""


class StoreFull(StoreError):
    """There is no room left on the disk; nothing was written."""


class StoreUnavailable(StoreError):
    """The database can't be opened, reached or written to."""


class StoreRefused(StoreUnavailable):
    """The database isn't a store of wakeful's, or a newer version wrote it; it was left as it is."""
