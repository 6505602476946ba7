"""The file format of an exported thread: lines of JSON.

The first line names the format and the thread. Then come runs, the log in order, calls, tickets, decisions, state
and pending inbox items, each line an object with one key that names its kind. The last line has the number and the
digest of the others, so that a truncated or changed file is refused.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

__all__ = ["FORMAT", "FORMAT_VERSION", "Digest", "End", "Header", "StateLine"]

FORMAT = "wakeful-thread"
FORMAT_VERSION = 1


class Header(Struct, omit_defaults=True):
    """The first line."""

    format: str
    version: int
    thread: str
    title: str | None = None
    metadata: dict[str, Any] = {}


class StateLine(Struct, omit_defaults=True):
    """A line of state."""

    name: str
    value: Raw
    run_id: str | None = None


class End(Struct):
    """The last line: the number and the digest of the others."""

    lines: int
    digest: str


class Digest:
    """The number and the digest of lines, without their line ends."""

    def __init__(self) -> None:
        from hashlib import sha256  # Few programs need it, and OpenSSL is slow to import.

        self._hash = sha256()
        self.lines = 0

    def add(self, line: bytes) -> None:
        """Add a line."""
        self._hash.update(line + b"\n")
        self.lines += 1

    def end(self) -> End:
        """The last line for the lines so far."""
        return End(self.lines, self._hash.hexdigest())
