"""The file format of an exported thread: lines of JSON.

The first line names the format and the thread. Then come runs, the log in order, calls, tickets, decisions, state
and pending inbox items, each line an object with one key that names its kind. The last line has the number and the
digest of the others, so that a truncated or changed file is refused. Anybody can make a new digest; a signature
(HMAC-SHA-256) only those who have the key.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct

from ..errors import InvalidExport

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


class End(Struct, omit_defaults=True):
    """The last line: the number and the digest of the others, and their signature if the export has one."""

    lines: int
    digest: str
    signature: str = ""


class Digest:
    """The number and the digest of lines, without their line ends, and their signature with a `key`."""

    def __init__(self, key: bytes | None = None) -> None:
        # Few programs need them, and OpenSSL is slow to import.
        import hmac
        from hashlib import sha256

        self._hash = sha256()
        self._mac = None if key is None else hmac.new(key, digestmod="sha256")
        self.lines = 0

    def add(self, line: bytes) -> None:
        """Add a line."""
        self._hash.update(line + b"\n")
        if self._mac is not None:
            self._mac.update(line + b"\n")
        self.lines += 1

    def end(self) -> End:
        """The last line for the lines so far."""
        return End(self.lines, self._hash.hexdigest(), "" if self._mac is None else self._mac.hexdigest())

    def check(self, end: End, number: int) -> None:
        """Raise `InvalidExport` unless line `number` is the last line of these lines, with the key's signature."""
        from hmac import compare_digest

        found = self.end()
        if (end.lines, end.digest) != (found.lines, found.digest):
            raise InvalidExport(
                f"line {number}: the lines before it aren't those that were exported ({end.lines} then, "
                f"{found.lines} now); the file was changed, and nothing was imported"
            )
        if self._mac is not None and not compare_digest(end.signature.encode(), found.signature.encode()):
            what = "isn't of this key" if end.signature else "is missing"
            raise InvalidExport(
                f"line {number}: the signature of the export {what}: the file was changed, or it was exported "
                "without the key; nothing was imported"
            )
