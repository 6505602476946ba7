"""Owner files: the processes that share a SQLite file each lock a file beside it.

The operating system releases the lock when the process ends, so its claims can be taken over before its lease
ends.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

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
        """Lock a worker's owner file until this process ends."""
        if fcntl is None or worker_id in self._held:
            return
        path = self._path(worker_id)
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if path.exists() and path.stat().st_ino == os.fstat(handle).st_ino:
                break
            os.close(handle)  # Another process swept it before it was locked.
        self._held[worker_id] = handle

    def drop(self, worker_id: str) -> None:
        """Unlock an owner file and remove it."""
        handle = self._held.pop(worker_id, None)
        if handle is not None:
            self._path(worker_id).unlink(missing_ok=True)
            os.close(handle)

    def is_dead(self, worker_id: str) -> bool:
        """Whether the worker's process has ended, as far as its owner file tells. The file stays."""
        if fcntl is None or worker_id in self._held:
            return False
        try:
            handle = os.open(self._path(worker_id), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False  # There is none: the lease decides.
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True

    def sweep(self, leased: set[str]) -> None:
        """Remove the owner files of processes that ended, except those of workers with a lease.

        Until that lease is ended, the file is the only sign that the worker is dead.
        """
        prefix = f"{self._database.name}-owner-"
        for path in self._database.parent.glob(f"{glob.escape(prefix)}*"):
            worker_id = path.name.removeprefix(prefix)
            if worker_id not in leased and self.is_dead(worker_id):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Unlock and remove the owner files of this process."""
        for worker_id in list(self._held):
            self.drop(worker_id)
