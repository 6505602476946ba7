"""Owner files: the processes that share a SQLite file each lock a file beside it.

The operating system releases the lock when the process ends, so its claims can be taken over before its lease
ends. While the lock is held they can't, whatever the wall clock says.
"""

from __future__ import annotations

import glob
import os
from contextlib import suppress
from pathlib import Path

from ...errors import StoreUnavailable

try:
    import fcntl
except ImportError:  # On Windows, leases alone decide.
    fcntl = None  # type: ignore[assignment]

__all__ = ["Owners"]


class Owners:
    """The owner files of one database."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._held: dict[str, int] = {}

    def _path(self, worker_id: str) -> Path:
        return self._database.with_name(f"{self._database.name}-owner-{worker_id}")

    def hold(self, worker_id: str) -> None:
        """Lock a worker's owner file until this process ends, or until it is dropped.

        Raises `StoreUnavailable` if it can't be made.
        """
        if fcntl is None or worker_id in self._held:
            return
        path = self._path(worker_id)
        try:
            self._held[worker_id] = _lock(path)
        except OSError as error:
            raise StoreUnavailable(
                f"the owner file {path} can't be made ({error}): check its folder's rights and free space"
            ) from error

    def drop(self, worker_id: str) -> None:
        """Unlock an owner file and remove it."""
        handle = self._held.pop(worker_id, None)
        if handle is not None:
            with suppress(OSError):  # Its folder may be gone.
                self._path(worker_id).unlink()
            os.close(handle)

    def is_locked(self, worker_id: str) -> bool | None:
        """Whether the worker's process lives, by its owner file, which stays; None if it has none."""
        if fcntl is None:
            return None
        if worker_id in self._held:
            return True
        try:
            handle = os.open(self._path(worker_id), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False

    def sweep(self, leased: set[str]) -> None:
        """Remove the owner files of processes that ended, except those of workers with a lease.

        Until that lease is ended, the file is the only sign that the worker is dead.
        """
        prefix = f"{self._database.name}-owner-"
        for path in self._database.parent.glob(f"{glob.escape(prefix)}*"):
            worker_id = path.name.removeprefix(prefix)
            if worker_id not in leased and self.is_locked(worker_id) is False:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Unlock and remove the owner files of this process."""
        for worker_id in list(self._held):
            self.drop(worker_id)


def _lock(path: Path) -> int:
    """Create a file if there is none, and lock it; returns its handle."""
    assert fcntl is not None  # noqa: S101
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if path.exists() and path.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # Another process swept it before it was locked.
