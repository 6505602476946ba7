"""Timeouts of model streams: idle ones and long ones are interrupted, by the runtime's clock.

One timer checks all open streams of a runtime: a stream needs no timer of its own, a chunk no look at the clock.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...clock import Clock, Timer
from ...errors import ModelTimeout
from ...models import Model, RetryPolicy
from ...types.base import Data
from ...types.requests import ModelSettings

__all__ = ["Watch", "Watches"]

# Seconds between checks; a short timeout is checked 20 times, so that it is at most 5% late.
INTERVAL = 1.0
CHECKS = 20

# Values that ask for no reasoning.
_NO_REASONING = (None, "", "none", 0)


class Timeouts(Data):
    """The timeouts of a stream in seconds: between chunks, in all, and the interval of checks."""

    idle: float | None
    whole: float | None
    every: float | None


class Watches:
    """The open streams of a runtime, and the timer that checks them."""

    __slots__ = ("_settings", "_timeouts", "_timer", "_with", "clock", "open", "pace")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.open: set[Watch] = set()
        # Seconds between checks; None while the timer is off.
        self.pace: float | None = None
        self._timer: Timer | None = None
        # The last timeouts: most streams have the same policy and settings.
        self._with: RetryPolicy | None = None
        self._settings: ModelSettings | None = None
        self._timeouts = Timeouts(None, None, None)

    def timeouts_of(self, settings: ModelSettings, retry: RetryPolicy) -> Timeouts:
        """The timeouts of a stream, cached; a model that reasons gets more time between chunks."""
        if retry is not self._with or settings is not self._settings:
            idle, whole = retry.idle_timeout, settings.timeout or retry.answer_timeout
            if idle is not None and settings.reasoning not in _NO_REASONING:
                idle *= 2
            short = [limit / CHECKS for limit in (idle, whole) if limit is not None]
            self._timeouts = Timeouts(idle, whole, min([INTERVAL, *short]) if short else None)
            self._with, self._settings = retry, settings
        return self._timeouts

    def check_every(self, seconds: float) -> None:
        """Restart the timer with this interval."""
        if self._timer is not None:
            self._timer.cancel()
        self.pace = seconds
        self._timer = self.clock.call_later(seconds, self._check)

    def _check(self) -> None:
        self._timer = self.pace = None
        if not self.open:
            return
        now = self.clock.now()
        for watch in list(self.open):
            watch.check(now)
        self.check_every(min([watch.timeouts.every or INTERVAL for watch in self.open]))


class Watch:
    """Watches one stream after the other, each from `begin` to `end`, until it is closed.

    The reader sets `has_chunk` with each chunk, and `is_held` while it waits for something else.
    """

    __slots__ = (
        "_before",
        "_last_chunk",
        "_late",
        "_model",
        "_reading",
        "_retry",
        "_settings",
        "_started",
        "_task",
        "_watches",
        "has_chunk",
        "is_held",
        "timeouts",
    )

    def __init__(self, watches: Watches, task: asyncio.Task[Any] | None) -> None:
        self._watches = watches
        self._task = task
        self._late: ModelTimeout | None = None
        self._retry: RetryPolicy | None = None
        self._settings: ModelSettings | None = None
        self._reading = self.is_held = False

    def begin(self, model: Model, settings: ModelSettings, retry: RetryPolicy, now: int) -> None:
        """Watch a stream that the task reads."""
        if retry is not self._retry or settings is not self._settings:
            self._enlist(settings, retry)
        task = self._task
        self._before = 0 if task is None else task.cancelling()
        self._model = model
        self._started = self._last_chunk = now
        self._reading, self.has_chunk = True, False

    def _enlist(self, settings: ModelSettings, retry: RetryPolicy) -> None:
        """Join the checked streams with these timeouts."""
        watches = self._watches
        self._retry, self._settings = retry, settings
        self.timeouts = watches.timeouts_of(settings, retry)
        every = self.timeouts.every
        if every is not None:
            watches.open.add(self)
            if watches.pace is None or every < watches.pace:
                watches.check_every(every)

    def close(self) -> None:
        """Leave the checked streams."""
        self._watches.open.discard(self)

    def end(self, raised: BaseException | None = None) -> ModelTimeout | None:
        """End a stream; returns the timeout error to raise in place of `raised`, if a timeout caused it."""
        self._reading = False
        if self._late is None or self._task is None:
            return None
        late, self._late = self._late, None
        left = self._task.uncancel()
        # A cancellation by someone else takes precedence.
        return late if isinstance(raised, asyncio.CancelledError) and left <= self._before else None

    def check(self, now: int) -> None:
        """Cancel the reader if its stream has timed out."""
        if self.has_chunk or self.is_held:
            self.has_chunk, self._last_chunk = False, now
        if not self._reading or self._late is not None or self.is_held or self._task is None:
            return
        idle, whole = self.timeouts.idle, self.timeouts.whole
        if idle is not None and now - self._last_chunk >= idle * 1000:
            self._late = ModelTimeout(f"model {self._model.name!r} sent nothing for {idle:g} s")
        elif whole is not None and now - self._started >= whole * 1000:
            self._late = ModelTimeout(f"model {self._model.name!r} hadn't finished its answer after {whole:g} s")
        if self._late is not None:
            self._task.cancel()
