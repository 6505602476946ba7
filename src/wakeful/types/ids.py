"""Ids (monotonic UUIDv7 strings) and digests. Only thread ids may come from callers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import repeat
from time import time_ns

__all__ = ["digest_of", "new_id", "now_ms"]

_DIGITS = "0123456789abcdef"
# The 12-bit counter within a millisecond. A table lookup is several times faster than formatting.
_HEX = [a + b for a in [c + d for c in _DIGITS for d in _DIGITS] for b in _DIGITS]
_ms = 0
# End of the current millisecond, in nanoseconds: a comparison is cheaper than a division.
_ms_end = 0
# Unused ids of the current millisecond. `next` on it is atomic, so threads need no lock.
_unused: Iterator[str] = iter(())
# Number of milliseconds for which one system call draws randomness.
TAILS_PER_DRAW = 64
_tails: Iterator[str] = iter(())


def now_ms() -> int:
    """Milliseconds since the epoch, UTC."""
    return time_ns() // 1_000_000


def new_id() -> str:
    """Make a UUIDv7 that sorts after every earlier one of this process."""
    # The order holds even if the clock stops or goes back.
    if time_ns() < _ms_end and (made := next(_unused, None)) is not None:
        return made
    return _start_millisecond()


def _start_millisecond() -> str:
    """Start a new millisecond and return its first id. Concurrent threads each get one of their own."""
    global _ms, _ms_end, _unused
    ms, tail = time_ns() // 1_000_000, next(_tails, None) or _draw_tail()
    # Threads switch only at calls, and there is none between this check and the assignment.
    if ms <= _ms:
        ms = _ms + 1
    _ms = ms
    head = "%08x-%04x-7" % (ms >> 16, ms & 0xFFFF)
    left = map("".join, zip(repeat(head), _HEX, repeat(tail)))
    made = next(left)
    if ms == _ms:
        _ms_end, _unused = (ms + 1) * 1_000_000, left
    return made


def _draw_tail() -> str:
    """Return the random tail for the ids of one millisecond.

    Draws several at once, since one system call takes longer than making hundreds of ids.
    """
    global _tails
    drawn = os.urandom(8 * TAILS_PER_DRAW).hex()
    starts = range(0, 16 * TAILS_PER_DRAW, 16)
    _tails = iter([f"-8{drawn[at : at + 3]}-{drawn[at + 4 : at + 16]}" for at in starts])
    return next(_tails)


def digest_of(data: bytes) -> str:
    """Compute a short digest, stable across processes."""
    from hashlib import blake2b  # OpenSSL is slow to import, and few runs need it.

    return blake2b(data, digest_size=8).hexdigest()


def _after_fork() -> None:
    global _ms_end, _tails
    _ms_end, _tails = 0, iter(())  # The child draws its own randomness.


os.register_at_fork(after_in_child=_after_fork)
