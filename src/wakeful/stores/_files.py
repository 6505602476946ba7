"""Opening a SQLite file: ours and of this version, made or migrated if need be, or refused untouched."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import StoreRefused, StoreUnavailable
from ._schema import APPLICATION_ID, MIN_READER, VERSION, statements

__all__ = ["open_database"]

# A commit touches a few pages and writes each of them whole: small ones halve what a step writes.
PAGE_BYTES = 2048

LOOKS, LOOK_AGAIN_SECONDS = 5, 0.05


def open_database(path: Path, synchronous: str, busy_seconds: float) -> sqlite3.Connection:
    """The writing connection to a file that holds our tables in their present version."""
    if str(path) == ":memory:":
        raise StoreUnavailable("SQLite in memory isn't a store: use MemoryStore(), or the path of a file")
    if path.is_dir() or not path.parent.is_dir():
        what = "a folder" if path.is_dir() else "in a folder that doesn't exist"
        raise StoreUnavailable(f"{path} is {what}; give the path of a file")
    _look(path)
    db = _connect(path, busy_seconds)
    try:
        if path.stat().st_size == 0:
            db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {'NORMAL' if synchronous == 'NORMAL' else 'FULL'}")
        _prepare(db, path)
    except sqlite3.Error as error:
        db.close()
        if "readonly" in str(error):
            raise StoreUnavailable(f"{path} is read-only: check its rights and its folder's") from error
        raise StoreUnavailable(f"{path} can't be opened: {error}") from error
    except BaseException:
        db.close()
        raise
    return db


def _connect(path: Path, busy_seconds: float) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path} can't be opened: {error}") from error


def _look(path: Path) -> None:
    """Refuse a file that isn't ours, before anything touches it."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        header = file.read(100)
    if header[:16] != b"SQLite format 3\x00":
        raise StoreRefused(f"{path} isn't a SQLite database; it was left as it is: give another path")
    if int.from_bytes(header[68:72], "big") == APPLICATION_ID:
        return
    # What was just made may still be in the log beside the file.
    if not _read(path, _ours_or_empty):
        raise StoreRefused(f"{path} is another program's database; it was left as it is: give another path")


def _ours_or_empty(db: sqlite3.Connection) -> bool:
    if db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
        return True
    return db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0


def _read(path: Path, look: Callable[[sqlite3.Connection], bool]) -> bool:
    """Look into a file without touching it. The log of a process that was killed has to be recovered first, for
    which SQLite must write: that is done to a copy, which may be bad while another process does it to the file."""
    problem: sqlite3.Error | None = None
    for _ in range(LOOKS):
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
                return look(db)
        except sqlite3.Error:
            pass
        with TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.db"
            shutil.copyfile(path, copy)
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}-wal", f"{copy}-wal")
            try:
                with closing(sqlite3.connect(copy)) as db:
                    return look(db)
            except sqlite3.Error as error:
                problem = error
        time.sleep(LOOK_AGAIN_SECONDS)
    raise StoreRefused(f"{path} can't be read ({problem}); it was left as it is") from problem


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Make or migrate the tables. Whoever comes first does it; the others find it done."""
    version = _version(db)
    if version == VERSION:
        return
    if version > VERSION:
        _check_reader(db, path, version)
        return
    if version:
        _backup(db, path, version)
    db.execute("BEGIN EXCLUSIVE")
    try:
        for step in range(_version(db) + 1, VERSION + 1):
            for statement in statements(step, "sqlite"):
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute(
            "INSERT INTO meta VALUES ('min_reader', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (str(MIN_READER),),
        )
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def _check_reader(db: sqlite3.Connection, path: Path, version: int) -> None:
    rows = db.execute("SELECT value FROM meta WHERE name = 'min_reader'").fetchall()
    if not rows or int(rows[0][0]) > VERSION:
        raise StoreRefused(
            f"{path} was written by a newer version of wakeful (its tables are version {version}, this one knows "
            f"{VERSION}); it was left as it is: upgrade wakeful"
        )


def _backup(db: sqlite3.Connection, path: Path, version: int) -> None:
    """Keep the file as it was before it is migrated."""
    target = path.with_name(f"{path.name}.v{version}.bak")
    if target.exists():
        return
    with closing(sqlite3.connect(target)) as into:
        db.backup(into)
