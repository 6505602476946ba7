"""Names for things: monotonic UUIDv7 strings for everything but threads, which callers may name; and digests."""

from __future__ import annotations

import os
import time

__all__ = ["digest_of", "new_id", "now_ms"]

_DIGITS = "0123456789abcdef"
# Looking up is several times faster than formatting, and ids are made for every message and call.
_HEX = [a + b for a in [c + d for c in _DIGITS for d in _DIGITS] for b in _DIGITS]
_ms = 0
# When the present millisecond is over, in nanoseconds: comparing is cheaper than dividing.
_over = 0
_count = 0
_head = ""
_tail = ""


def now_ms() -> int:
    """Milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A UUIDv7 that sorts after every one this process made before."""
    global _count
    if (now := time.time_ns()) >= _over or _count == 0xFFF:
        _begin(now // 1_000_000)
    else:
        # 12 bits count up inside a millisecond; a clock that stands still or goes back keeps the order too.
        _count += 1
    return f"{_head}{_HEX[_count]}{_tail}"


def _begin(ms: int) -> None:
    global _ms, _over, _count, _head, _tail
    # Drawn first: a call lets other threads in, and what follows must not be torn apart.
    bits = os.urandom(8).hex()
    tail = f"-8{bits[:3]}-{bits[4:]}"
    _ms, _count, _tail = (ms if ms > _ms else _ms + 1), 0, tail
    _over = (_ms + 1) * 1_000_000
    _head = "%08x-%04x-7" % (_ms >> 16, _ms & 0xFFFF)


def digest_of(data: bytes) -> str:
    """A short digest, equal for equal data in every process."""
    from hashlib import blake2b  # Few runs need one, and OpenSSL is slow to import.

    return blake2b(data, digest_size=8).hexdigest()


def _after_fork() -> None:
    global _over
    _over = 0  # So that the next id draws anew.


os.register_at_fork(after_in_child=_after_fork)
