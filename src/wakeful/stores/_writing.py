"""Commits on their way to SQLite: the short way, in one statement, if that is enough; else the long way."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from ..errors import CodecFailed, StoreError
from ._apply import apply
from ._packing import Packer
from ._plain import Known, Plain, found, plain_of, write_together
from ._protocol import Commit, Committed

__all__ = ["Writing"]


class Writing(Struct, eq=False, gc=False):
    """A commit to be written, with what comes along with it."""

    db: sqlite3.Connection
    tenant: str
    packer: Packer
    commit: Commit
    alive: Callable[[str], bool]
    known: Known
    _ready: Plain | None = None

    @property
    def owner(self) -> tuple[str, str]:
        """Whose thread it is about."""
        return self.tenant, self.commit.thread_id

    @property
    def rows(self) -> int:
        """How many rows it was made ready as; 0 if it can't be written together with others."""
        return 0 if self._ready is None else self._ready.rows

    def make_ready(self) -> None:
        """Make rows of it, if its thread is as it was left and there is nothing else to it. While others are being
        written there is time for that."""
        if self.commit.then:
            return
        try:
            self._ready = plain_of(self.tenant, self.packer, self.commit, self.known)
        except Exception:
            self._ready = None  # Written by itself it says what is wrong with it, and others are none the worse.

    def plain(self) -> Plain | None:
        """The same, ready to be written in one statement; None if that isn't possible."""
        if self._ready is None or not self._ready.current:
            self.make_ready()
        return self._ready

    def __call__(self) -> Committed:
        """Write it, or raise and leave the transaction to be rolled back."""
        try:
            written = self._write(self.commit)
            if self.commit.then:
                written = replace(written, then=tuple([self._attempt(one) for one in self.commit.then]))
        except BaseException:
            for commit in (self.commit, *self.commit.then):
                self.known.forget(self.tenant, commit.thread_id)  # What was kept of it is undone.
            raise
        return written

    def _write(self, commit: Commit) -> Committed:
        if (written := self._go_on(commit)) is not None:
            return written
        return apply(self.db, self.tenant, self.packer, commit, self.alive, self.known)

    def _go_on(self, commit: Commit) -> Committed | None:
        """Write a commit that only goes on with its run. None, and nothing is written, if there is more to it, or
        the thread isn't its owner's any more."""
        cursor = self.known.cursor
        for _ in range(2):
            whole = commit is self.commit
            plain = self.plain() if whole else plain_of(self.tenant, self.packer, commit, self.known)
            if plain is None:
                return None
            if (written := write_together(cursor, [plain])) is not None:
                return written[0]
            if not found(cursor, plain):
                return None
        return None

    def _attempt(self, commit: Commit) -> Committed | None:
        late = bool(commit.inbox)  # Only for want of room in an inbox is it refused when something is written.
        if late:
            self.db.execute("SAVEPOINT next")
        try:
            written = self._write(commit)
        except CodecFailed:
            raise  # Some of it may be written: all of it goes, with what it came along with.
        except StoreError:
            written = None
            if late:
                self.db.execute("ROLLBACK TO next")
        if late:
            self.db.execute("RELEASE next")
        return written
