"""Open a SQLite file: create or migrate its tables, or refuse it without a change."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from filecmp import cmp
from itertools import chain, count
from pathlib import Path
from shutil import disk_usage

from ...errors import InvalidStore, StoreError, StoreFull, StoreUnavailable, WakefulError
from ..sql.schema import APPLICATION_ID, MIN_READER, VERSION, statements

__all__ = [
    "CHECKPOINT_PAGES",
    "PAGE_BYTES",
    "check_rights",
    "check_room",
    "create_private",
    "explained",
    "is_busy",
    "open_database",
]

# A commit writes whole pages: small pages keep the WAL of a step small, as long as most messages fit into one. The
# WAL is checkpointed after as many bytes as with SQLite's defaults.
PAGE_BYTES = 2048
CHECKPOINT_PAGES = 2000

SMALLEST_FILE = 512
PAUSE_SECONDS = 0.01

COPY = "restore a copy that `wakeful store backup` made"
RESTORE = f"{COPY}, or the .bak that a migration left beside it"

_ID = "PRAGMA application_id"
_TABLES = "SELECT count(*) FROM sqlite_master"


def open_database(path: Path, synchronous: str, busy_seconds: float) -> sqlite3.Connection:
    """Open a file for writing, with the tables of the current version."""
    if str(path) == ":memory:":
        raise StoreUnavailable("SQLite in memory isn't a store: use MemoryStore(), or the path of a file")
    if path.is_dir() or not path.parent.is_dir():
        what = "a folder" if path.is_dir() else "in a folder that doesn't exist"
        raise StoreUnavailable(f"{path} is {what}; give the path of a file")
    if path.exists():
        # SQLite would leave a WAL beside it that the file's owner can't write to.
        check_rights(path)
    until = time.monotonic() + busy_seconds
    while True:
        _look(path)
        try:
            return _opened(path, synchronous, busy_seconds)
        except sqlite3.Error as error:
            # When several processes open a new file, SQLite fails all but one at once, without the busy timeout.
            if is_busy(error) and time.monotonic() < until:
                time.sleep(PAUSE_SECONDS)
            else:
                raise _unopened(error, path) from error


def _opened(path: Path, synchronous: str, busy_seconds: float) -> sqlite3.Connection:
    create_private(path)
    db = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    try:
        if path.stat().st_size == 0:
            db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            # Before there is a WAL: even after a crash the file itself has the id.
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {'NORMAL' if synchronous == 'NORMAL' else 'FULL'}")
        db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        _prepare(db, path)
    except BaseException:
        db.close()
        raise
    return db


def check_rights(path: Path) -> None:
    """Raise `StoreUnavailable` if a file is read-only, for its owner or for this process."""
    is_allowed = os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    if not (is_allowed and path.stat().st_mode & 0o222):  # Root may write to anything.
        raise StoreUnavailable(f"{path} is read-only; nothing was written: check its rights, or open a copy")


def check_room(path: Path) -> None:
    """Raise `StoreFull` if the disk has less room than the WAL takes between two checkpoints."""
    wanted, free = CHECKPOINT_PAGES * PAGE_BYTES, disk_usage(path).free
    if free < wanted:
        raise StoreFull(f"{free} bytes are free for {path}, and its WAL takes up to {wanted}: free some space")


def create_private(path: Path) -> None:
    """Create an empty file for its owner alone, if there is none. SQLite gives its WAL the same mode."""
    with suppress(OSError):  # SQLite says what is wrong.
        os.close(os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _look(path: Path) -> None:
    """Refuse a file of another program before anything is written to it.

    SQLite itself reads it: closing the file in any other way would release all locks that this process has on it.
    """
    if not path.exists() or (size := path.stat().st_size) == 0:
        return
    if size < SMALLEST_FILE:
        raise InvalidStore(f"{path} isn't a SQLite database; it was left as it is: give another path")
    if _ask(path, _ID, "&immutable=1") == APPLICATION_ID:
        return
    # Recent writes may be only in the WAL.
    found = _ask(path, _ID)
    if found is None:
        raise InvalidStore(
            f"{path} isn't a SQLite database, or a damaged one; it was left as it is: give another path, or "
            f"{RESTORE}"
        )
    if found != APPLICATION_ID and _ask(path, _TABLES):
        raise InvalidStore(f"{path} is another program's database; it was left as it is: give another path")


def _ask(path: Path, sql: str, options: str = "") -> int | None:
    """Query a number; None if the file isn't an intact database."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{options}", uri=True)) as db:
            return db.execute(sql).fetchone()[0]
    except sqlite3.Error as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return None
        raise InvalidStore(
            f"{path} can't be read ({error}); it was left as it is: check its rights and its folder's"
        ) from error


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Create or migrate the tables, unless another process did."""
    version = _version(db)
    if version == VERSION:
        return
    if version > VERSION:
        _check_reader(db, path, version)
        return
    db.execute("BEGIN EXCLUSIVE")
    backup: Path | None = None
    try:
        version = _version(db)
        steps = [statements(step, "sqlite") for step in range(version + 1, VERSION + 1)]
        if version and (any(steps) or version < MIN_READER):
            backup = _backup(path, version)
        for statement in chain(*steps):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute(
            "INSERT INTO meta VALUES ('min_reader', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (str(MIN_READER),),
        )
        db.execute("COMMIT")
    except BaseException as error:
        if db.in_transaction:  # SQLite rolls back by itself when the disk is full.
            db.execute("ROLLBACK")
        if backup is not None:
            backup.unlink()  # The file is unchanged.
        if version and _damaged(error):
            raise InvalidStore(
                f"{path} can't be brought from version {version} to {VERSION}, for it is damaged ({error}); it "
                f"was left as it is: {COPY}, or export its threads with the version of wakeful that wrote it"
            ) from error
        raise
    if version:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # Rebuilt tables are in the WAL.


def _version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def _check_reader(db: sqlite3.Connection, path: Path, version: int) -> None:
    rows = db.execute("SELECT value FROM meta WHERE name = 'min_reader'").fetchall()
    if not rows or int(rows[0][0]) > VERSION:
        raise InvalidStore(
            f"{path} was written by a newer version of wakeful (its tables are version {version}, this one knows "
            f"{VERSION}); it was left as it is: upgrade wakeful"
        )


def _backup(path: Path, version: int) -> Path | None:
    """Copy the file before its migration; None if there is an equal copy.

    Called while no other process can write. The copy gets its name once it is complete; older copies stay.
    """
    names = chain([f"{path.name}.v{version}.bak"], (f"{path.name}.v{version}-{n}.bak" for n in count(2)))
    part = path.with_name(f"{path.name}.v{version}.bak.part")
    part.unlink(missing_ok=True)
    try:
        create_private(part)
        with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(part)) as into:
            db.backup(into)
        for target in map(path.with_name, names):
            if not target.exists():
                return part.replace(target)
            if cmp(target, part, shallow=False):
                return None
    finally:
        for left in (part, part.with_name(f"{part.name}-journal")):
            left.unlink(missing_ok=True)
    return None


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds a lock."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def explained(error: BaseException, path: Path) -> BaseException:
    """Translate an error of SQLite into one that says what to do."""
    if isinstance(error, WakefulError):
        return error
    text = str(error)
    if "disk is full" in text:
        found: StoreError = StoreFull(
            f"no room left for {path}; nothing was written: free some space and try again"
        )
    elif "locked" in text or "busy" in text:
        found = StoreUnavailable(f"{path} was locked by another process for too long; nothing was written")
    elif "readonly" in text:
        found = StoreUnavailable(f"{path} is read-only; nothing was written: check its rights and its folder's")
    elif "disk I/O error" in text:  # Also where a quota is used up.
        found = StoreUnavailable(
            f"{path} can't be read or written ({text}): check the disk, its quota and the limit of file sizes"
        )
    elif "unable to open" in text:
        found = StoreUnavailable(_no_way_in(path, text))
    elif _damaged(error):
        found = InvalidStore(f"{path} is damaged ({text}); see `wakeful store check`, and {RESTORE}")
    else:
        found = StoreError(f"{path}: {text}")
    found.__cause__ = error
    return found


def _unopened(error: sqlite3.Error, path: Path) -> BaseException:
    if _damaged(error):
        return InvalidStore(f"{path} can't be opened: it is damaged ({error}); {RESTORE}")
    found = explained(error, path)
    return StoreUnavailable(f"{path} can't be opened: {error}") if type(found) is StoreError else found


def _no_way_in(path: Path, text: str) -> str:
    if path.exists():
        return f"{path} can't be opened ({text}): check its rights and its folder's, or give another path"
    return f"{path} can't be made ({text}): check that its folder is there and writable, or give another path"


def _damaged(error: BaseException) -> bool:
    return "malformed" in str(error) or "not a database" in str(error)
