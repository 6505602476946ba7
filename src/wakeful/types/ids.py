"""Names for things: monotonic UUIDv7 strings for everything but threads, which callers may name; and digests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import repeat
from time import time_ns

__all__ = ["digest_of", "new_id", "now_ms"]

_DIGITS = "0123456789abcdef"
# 12 bits count up inside a millisecond. Looking up is several times faster than formatting, and ids are made for
# every message and call.
_HEX = [a + b for a in [c + d for c in _DIGITS for d in _DIGITS] for b in _DIGITS]
_ms = 0
# When the present millisecond is over, in nanoseconds: comparing is cheaper than dividing.
_over = 0
# The ids that the present millisecond still has. Taking the next one is a single operation, whichever thread does.
_left: Iterator[str] = iter(())
# For so many milliseconds randomness is drawn at once.
DRAWN = 64
_tails: Iterator[str] = iter(())


def now_ms() -> int:
    """Milliseconds since the epoch, UTC."""
    return time_ns() // 1_000_000


def new_id() -> str:
    """A UUIDv7 that sorts after every one this process made before."""
    # A clock that stands still or goes back keeps the order too.
    if time_ns() < _over and (made := next(_left, None)) is not None:
        return made
    return _begin()


def _begin() -> str:
    """The first id of another millisecond. A thread that comes here while another does has one of its own."""
    global _ms, _over, _left
    ms, tail = time_ns() // 1_000_000, next(_tails, None) or _draw()
    # Only a call lets other threads in, and there is none up to where the millisecond is taken.
    if ms <= _ms:
        ms = _ms + 1
    _ms = ms
    head = "%08x-%04x-7" % (ms >> 16, ms & 0xFFFF)
    left = map("".join, zip(repeat(head), _HEX, repeat(tail)))
    made = next(left)
    if ms == _ms:
        _over, _left = (ms + 1) * 1_000_000, left
    return made


def _draw() -> str:
    """What the ids of a millisecond end with, which is random; for the next ones too, as asking the system takes
    longer than making hundreds of ids."""
    global _tails
    drawn = os.urandom(8 * DRAWN).hex()
    _tails = iter([f"-8{drawn[at : at + 3]}-{drawn[at + 4 : at + 16]}" for at in range(0, 16 * DRAWN, 16)])
    return next(_tails)


def digest_of(data: bytes) -> str:
    """A short digest, equal for equal data in every process."""
    from hashlib import blake2b  # Few runs need one, and OpenSSL is slow to import.

    return blake2b(data, digest_size=8).hexdigest()


def _after_fork() -> None:
    global _over, _tails
    _over, _tails = 0, iter(())  # So that the next id draws anew.


os.register_at_fork(after_in_child=_after_fork)
