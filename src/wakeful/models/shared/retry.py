"""Timeouts, retries and backoff of model requests."""

from __future__ import annotations

from random import uniform
from typing import Any

from ...errors import ConfigurationError, ModelError, ModelOverloaded
from ...errors.arguments import Checked
from ...types.base import Data

__all__ = ["RetryPolicy"]

_MOST_RETRIES = 1_000_000
_LONGEST = 1_000_000_000.0  # Some thirty years; timers overflow beyond.


class RetryPolicy(Data, metaclass=Checked, omit_defaults=True, kw_only=True):
    """Timeouts and retries of model requests. Times are in seconds; a timeout of None never expires.

    Only transient failures are retried; in a pool the limits hold for each member.

    - `retries`: retries of a request that failed before its answer started.
    - `stream_retries`: how many times a broken answer is continued.
    - `backoff`, `overloaded_backoff`: the upper bound of the first, random wait; the latter if the vendor has no
      capacity. It is doubled after each failure, up to `max_backoff`.
    - `max_retry_after`: the longest Retry-After of a vendor that is waited for; a longer one is a failure.
    - `idle_timeout`: the limit for the first or next chunk of an answer; doubled with reasoning.
    - `answer_timeout`: the limit for one answer.
    """

    retries: int = 2
    stream_retries: int = 2
    backoff: float = 0.5
    overloaded_backoff: float = 2.0
    max_backoff: float = 8.0
    max_retry_after: float = 60.0
    idle_timeout: float | None = 60.0
    answer_timeout: float | None = 600.0

    def __post_init__(self) -> None:
        found: list[str] = []
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if name in ("retries", "stream_retries"):
                kind, fits = f"a whole number and not negative, up to {_MOST_RETRIES:,}", _is_count(value)
            elif name in ("idle_timeout", "answer_timeout"):
                kind, fits = "a number of seconds and positive, or None for no end", _is_timeout(value)
            else:
                kind, fits = f"a number of seconds and not negative, up to {_LONGEST:,.0f}", _is_seconds(value)
            if not fits:
                found.append(f"RetryPolicy.{name} is {kind}; it can't be {value!r:.80}")
        if found:
            raise ConfigurationError(found)

    def allows_retry(self, error: ModelError) -> bool:
        """Whether a retry may help within `max_retry_after`."""
        return error.transient and (error.retry_after or 0) <= self.max_retry_after

    def backoff_after(self, failures: int, error: ModelError) -> float:
        """Seconds to wait after this many failures in a row."""
        base = self.overloaded_backoff if isinstance(error, ModelOverloaded) else self.backoff
        # The exponent is bounded to avoid huge integers.
        most = min(self.max_backoff, base * 2 ** min(failures - 1, 32))
        return max(uniform(0, most), error.retry_after or 0)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_RETRIES


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _LONGEST


def _is_timeout(value: Any) -> bool:
    return value is None or (_is_seconds(value) and value > 0)
