"""Streams that stand still or take too long are interrupted, by the runtime's clock.

One timer looks after all streams that a runtime has open, once in a while: a stream costs no timer of its own, and
a chunk no look at the clock.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..clock import Clock, Timer
from ..errors import ModelTimeout
from ..models import Model, ModelRequest, Patience

__all__ = ["Watch", "Watches"]

# How often is looked, in seconds; more often where a limit is short, so that it is late by a twentieth at most.
LOOK = 1.0
LOOKS = 20

# What asks for no reasoning.
_NONE = (None, "", "none", 0)


class Watches:
    """The streams that are open."""

    __slots__ = ("_clock", "_every", "_timer", "open")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._every = LOOK
        self.open: set[Watch] = set()
        self._timer: Timer | None = None

    def add(self, watch: Watch) -> int:
        """Look after a stream from now on; the time that is now."""
        if watch.idle is not None or watch.whole is not None:
            self.open.add(watch)
            if self._timer is None or watch.every < self._every:
                self._set_timer(watch.every)
        return self._clock.now()

    def _set_timer(self, every: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._every = every
        self._timer = self._clock.call_later(every, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self.open:
            return
        now = self._clock.now()
        for watch in list(self.open):
            watch.look(now)
        self._set_timer(min([watch.every for watch in self.open]))


class Watch:
    """One stream, watched until its `end`. Its reader sets `fresh` with each chunk, and `held` while it waits for
    something else."""

    __slots__ = (
        "_all",
        "_before",
        "_heard",
        "_late",
        "_model",
        "_started",
        "_task",
        "every",
        "fresh",
        "held",
        "idle",
        "whole",
    )

    def __init__(
        self,
        every: Watches,
        task: asyncio.Task[Any] | None,
        model: Model,
        request: ModelRequest,
        patience: Patience,
    ) -> None:
        idle, whole = patience.idle, patience.whole
        if idle is not None and request.settings.reasoning not in _NONE:
            idle *= 2
        self.idle, self.whole = idle, whole
        self.every = LOOK
        if (idle is not None and idle < LOOKS) or (whole is not None and whole < LOOKS):
            self.every = min([limit / LOOKS for limit in (idle, whole) if limit is not None])
        self.fresh = self.held = False
        self._all = every
        self._task = task
        self._before = 0 if task is None else task.cancelling()
        self._model = model
        self._late: ModelTimeout | None = None
        self._started = self._heard = every.add(self)

    def end(self, raised: BaseException | None = None) -> ModelTimeout | None:
        """It is over; what to raise in place of what was raised, if that came of being late."""
        self._all.open.discard(self)
        if self._late is None or self._task is None:
            return None
        left = self._task.uncancel()
        # Where somebody else cancels too, that is what counts.
        return self._late if isinstance(raised, asyncio.CancelledError) and left <= self._before else None

    def look(self, now: int) -> None:
        """Interrupt whoever reads the stream if it is late."""
        if self.fresh or self.held:
            self.fresh, self._heard = False, now
        if self._late is not None or self.held or self._task is None:
            return
        if self.idle is not None and now - self._heard >= self.idle * 1000:
            self._late = ModelTimeout(f"model {self._model.name!r} sent nothing for {self.idle:g} s")
        elif self.whole is not None and now - self._started >= self.whole * 1000:
            self._late = ModelTimeout(
                f"model {self._model.name!r} hadn't finished its answer after {self.whole:g} s"
            )
        if self._late is not None:
            self._task.cancel()
