"""How long a model is waited for, and how often it is asked again."""

from __future__ import annotations

from random import uniform
from typing import Any

from msgspec import Struct

from ..errors import ConfigurationError, ModelError, ModelOverloaded
from ..errors._arguments import Checked

__all__ = ["Patience"]

_MOST_RETRIES = 1_000_000
_LONGEST = 1_000_000_000.0  # Some thirty years: more is no time that a clock can be set to.


class Patience(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """How patient a run is with its model. Times are in seconds; None is without end.

    A request that failed before anything of its answer came is repeated `retries` times, an answer that broke
    off is gone on with `stream_retries` times; only after failures that may pass, and in a pool for each member.
    The wait before that is a random part of `pause` (of `overloaded_pause` where the vendor has no capacity),
    doubled after each failure up to `longest_pause`; or what the vendor says, unless that is more than
    `longest_retry_after`: then it isn't waited for at all. `idle` is how long the answer's beginning or its next
    piece may take, twice that where reasoning is asked for; `whole` is for all of one answer.
    """

    retries: int = 2
    stream_retries: int = 2
    pause: float = 0.5
    overloaded_pause: float = 2.0
    longest_pause: float = 8.0
    longest_retry_after: float = 60.0
    idle: float | None = 60.0
    whole: float | None = 600.0

    def __post_init__(self) -> None:
        found: list[str] = []
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            endless, counted = name in ("idle", "whole"), name in ("retries", "stream_retries")
            if value is None:
                right = endless
            else:
                number = type(value) is int or (type(value) is float and not counted)
                right = (
                    number and 0 <= value <= (_MOST_RETRIES if counted else _LONGEST) and (value or not endless)
                )
            if right:
                continue
            if counted:
                kind = f"a whole number and not negative, up to {_MOST_RETRIES:,}"
            elif endless:
                kind = "a number of seconds and positive, or None for no end"
            else:
                kind = f"a number of seconds and not negative, up to {_LONGEST:,.0f}"
            found.append(f"Patience.{name} is {kind}; it can't be {value!r:.80}")
        if found:
            raise ConfigurationError(found)

    def waits_for(self, error: ModelError) -> bool:
        """Whether asking again may help, and soon enough."""
        return error.transient and (error.retry_after or 0) <= self.longest_retry_after

    def pause_after(self, failures: int, error: ModelError) -> float:
        """How many seconds to wait after so many failures in a row."""
        base = self.overloaded_pause if isinstance(error, ModelOverloaded) else self.pause
        # The exponent is bounded before it is used: nobody needs 2 to the power of a thousand.
        most = min(self.longest_pause, base * 2 ** min(failures - 1, 32))
        return max(uniform(0, most), error.retry_after or 0)
