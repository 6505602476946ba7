"""Retry-After in all its forms, and the vendors' own headers for it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["parse_delay", "retry_after"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|d)")
_RESET = re.compile(r"(?:x-|anthropic-)?ratelimit-(?:(.+)-)?reset(?:-(.+))?\Z")

# A number this large is a time since the epoch, in seconds or milliseconds.
_EPOCH_S = 1e9
_EPOCH_MS = 1e12


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Find the delay in seconds that the vendor asks for, if any. Header names are lower case."""
    if (text := headers.get("retry-after-ms")) is not None and (wait := _parse_number(text)) is not None:
        return max(wait / 1000, 0.0)
    now = now or datetime.now(UTC)
    # Prefer the vendor's clock: ours may be wrong.
    there = _parse_date(headers.get("date", "")) or now
    if (text := headers.get("retry-after")) is not None and (wait := parse_delay(text, there)) is not None:
        return wait
    resets = [
        wait
        for name, text in headers.items()
        if (found := _RESET.match(name)) is not None
        and _is_exhausted(headers, name, found)
        and (wait := parse_delay(text, there)) is not None
    ]
    return max(resets, default=None)


def parse_delay(text: str, now: datetime | None = None) -> float | None:
    """Parse a delay: `7`, `0.5`, `6m0s`, `120ms`, an HTTP date, an ISO time, or a time since the epoch."""
    text = text.strip()
    now = now or datetime.now(UTC)
    if (number := _parse_number(text)) is not None:
        if number >= _EPOCH_S:
            number = number / (1000 if number >= _EPOCH_MS else 1) - now.timestamp()
        return max(number, 0.0)
    pieces = _DURATION.findall(text)
    if pieces and "".join(n + unit for n, unit in pieces) == text:
        return sum(float(n) * _UNITS[unit] for n, unit in pieces)
    at = _parse_date(text)
    return None if at is None else max((at - now).total_seconds(), 0.0)


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _parse_date(text: str) -> datetime | None:
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            at = parse(text)
        except (ValueError, TypeError, IndexError):
            continue
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return None


def _is_exhausted(headers: Mapping[str, str], name: str, found: re.Match[str]) -> bool:
    """Whether this limit was reached: its `remaining` header is 0 or missing."""
    left = headers.get(name.replace("reset", "remaining"))
    return left is None or _parse_number(left) == 0
