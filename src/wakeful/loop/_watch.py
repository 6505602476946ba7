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

    __slots__ = ("_timer", "clock", "open", "pace")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.open: set[Watch] = set()
        # How often is looked; None while nobody is to be looked after.
        self.pace: float | None = None
        self._timer: Timer | None = None

    def look_every(self, seconds: float) -> None:
        """Look so often from now on."""
        if self._timer is not None:
            self._timer.cancel()
        self.pace = seconds
        self._timer = self.clock.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = self.pace = None
        if not self.open:
            return
        now = self.clock.now()
        for watch in list(self.open):
            watch.look(now)
        self.look_every(min([watch.every for watch in self.open]))


class Watch:
    """Watches one stream after the other, each from its `begin` to its `end`. The reader sets `fresh` with each
    chunk, and `held` while it waits for something else."""

    __slots__ = (
        "_all",
        "_before",
        "_heard",
        "_idle",
        "_late",
        "_model",
        "_started",
        "_task",
        "_whole",
        "every",
        "fresh",
        "held",
    )

    def __init__(self, every: Watches) -> None:
        self._all = every
        self._late: ModelTimeout | None = None

    def begin(
        self, task: asyncio.Task[Any] | None, model: Model, request: ModelRequest, patience: Patience
    ) -> None:
        """Watch a stream that this task reads."""
        idle, whole, watches = patience.idle, patience.whole, self._all
        if idle is not None and request.settings.reasoning not in _NONE:
            idle *= 2
        self._task = task
        self._before = 0 if task is None else task.cancelling()
        self._model = model
        self._idle, self._whole = idle, whole
        self._started = self._heard = watches.clock.now()
        self.fresh = self.held = False
        self.every = LOOK
        if idle is None and whole is None:
            return
        if (idle is not None and idle < LOOKS) or (whole is not None and whole < LOOKS):
            self.every = min([limit / LOOKS for limit in (idle, whole) if limit is not None])
        watches.open.add(self)
        if watches.pace is None or self.every < watches.pace:
            watches.look_every(self.every)

    def end(self, raised: BaseException | None = None) -> ModelTimeout | None:
        """It is over; what to raise in place of what was raised, if that came of being late."""
        self._all.open.discard(self)
        if self._late is None or self._task is None:
            return None
        late, self._late = self._late, None
        left = self._task.uncancel()
        # Where somebody else cancels too, that is what counts.
        return late if isinstance(raised, asyncio.CancelledError) and left <= self._before else None

    def look(self, now: int) -> None:
        """Interrupt whoever reads the stream if it is late."""
        if self.fresh or self.held:
            self.fresh, self._heard = False, now
        if self._late is not None or self.held or self._task is None:
            return
        if self._idle is not None and now - self._heard >= self._idle * 1000:
            self._late = ModelTimeout(f"model {self._model.name!r} sent nothing for {self._idle:g} s")
        elif self._whole is not None and now - self._started >= self._whole * 1000:
            self._late = ModelTimeout(
                f"model {self._model.name!r} hadn't finished its answer after {self._whole:g} s"
            )
        if self._late is not None:
            self._task.cancel()
