"""When a vendor says to come back: Retry-After in every form, and the headers that vendors have in its place."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["retry_after", "seconds_of"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d)")
_RESET = re.compile(r"(?:x-|anthropic-)?ratelimit-(?:(.+)-)?reset(?:-(.+))?\Z")

# A number this large is a time since the epoch, in seconds or in milliseconds.
_EPOCH_S = 1e9
_EPOCH_MS = 1e12


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """In how many seconds the vendor says to come back, if it does. The headers' names are lower case."""
    if (text := headers.get("retry-after-ms")) is not None and (wait := _number(text)) is not None:
        return max(wait / 1000, 0.0)
    now = now or datetime.now(UTC)
    # The vendor's own clock, where it shows it: ours may be wrong.
    there = _date(headers.get("date", "")) or now
    if (text := headers.get("retry-after")) is not None and (wait := seconds_of(text, there)) is not None:
        return wait
    resets = [
        wait
        for name, text in headers.items()
        if (found := _RESET.match(name)) is not None
        and _exhausted(headers, name, found)
        and (wait := seconds_of(text, there)) is not None
    ]
    return max(resets, default=None)


def seconds_of(text: str, now: datetime | None = None) -> float | None:
    """A wait in seconds: `7`, `0.5`, `6m0s`, `120ms`, an HTTP date, an ISO time, or seconds since the epoch."""
    text = text.strip()
    now = now or datetime.now(UTC)
    if (number := _number(text)) is not None:
        if number >= _EPOCH_S:
            number = number / (1000 if number >= _EPOCH_MS else 1) - now.timestamp()
        return max(number, 0.0)
    pieces = _DURATION.findall(text)
    if pieces and "".join(n + unit for n, unit in pieces) == text:
        return sum(float(n) * _UNITS[unit] for n, unit in pieces)
    at = _date(text)
    return None if at is None else max((at - now).total_seconds(), 0.0)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _date(text: str) -> datetime | None:
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            at = parse(text)
        except (ValueError, TypeError, IndexError):
            continue
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return None


def _exhausted(headers: Mapping[str, str], name: str, found: re.Match[str]) -> bool:
    """Whether this is the limit that was reached: nothing remains of it, or it doesn't say what does."""
    left = headers.get(name.replace("reset", "remaining"))
    return left is None or _number(left) == 0
