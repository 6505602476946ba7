"""Whether the files that are open are still the files at their paths."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from ...errors import StoreLost

__all__ = ["OpenFiles"]


class OpenFiles:
    """A database file, its WAL and its shared memory, as they were when they were opened.

    SQLite writes to the open files, wherever their names went: a commit to a deleted file succeeds, and is gone
    with the process. Without the shared memory, processes overwrite each other's part of the WAL.
    """

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        # The process may change its working directory. SQLite names the others after the target of a link.
        target = path.resolve()
        self._names = (str(path.absolute()), f"{target}-wal", f"{target}-shm")
        # The others are there from the first transaction on.
        self._opened: list[os.stat_result | None] = [path.stat() if path.exists() else None, None, None]

    def check(self) -> None:
        """Raise `StoreLost` if one of them was deleted, replaced or truncated. Outside of transactions."""
        for index, name in enumerate(self._names):
            opened = self._opened[index]
            try:
                found = os.stat(name)
            except OSError:
                found = None
            if opened is not None:
                if found is None:
                    raise _lost(f"{name} was deleted or moved")
                if found.st_ino != opened.st_ino or found.st_dev != opened.st_dev:
                    raise _lost(f"{name} was replaced")
                if found.st_size < opened.st_size and self._is_truncated(index, opened.st_size):
                    raise _lost(f"{name} was truncated")
            self._opened[index] = found

    def _is_truncated(self, index: int, size: int) -> bool:
        """Whether a file that is smaller now was cut off, and not made smaller by VACUUM or a checkpoint."""
        try:
            if index == 0:
                ((pages,),) = self._db.execute("PRAGMA page_count")
                ((page_size,),) = self._db.execute("PRAGMA page_size")
                return pages * page_size >= size or os.path.getsize(self._names[0]) == 0
            ((_, frames, _),) = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            return frames > 0 and os.path.getsize(self._names[1]) == 0
        except (OSError, sqlite3.Error):
            return True


def _lost(loss: str) -> StoreLost:
    return StoreLost(
        f"{loss} while it was open; what is written here is lost: stop this process, put the file or a backup "
        "back, and start again"
    )
