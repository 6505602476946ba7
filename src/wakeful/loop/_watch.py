"""Streams that stand still or take too long are interrupted, by the runtime's clock.

One timer looks after all streams that a runtime has open, once in a while: a stream costs no timer of its own, and
a chunk no look at the clock.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from ..clock import Clock, Timer
from ..errors import ModelTimeout
from ..models import Model, Patience
from ..types.requests import ModelSettings

__all__ = ["Watch", "Watches"]

# How often is looked, in seconds; more often where a limit is short, so that it is late by a twentieth at most.
LOOK = 1.0
LOOKS = 20

# What asks for no reasoning.
_NONE = (None, "", "none", 0)


class Limits(Struct, frozen=True, gc=False):
    """How long a stream may stand still and take, in seconds, and how often it is looked at, if at all."""

    idle: float | None
    whole: float | None
    every: float | None


class Watches:
    """Those who read streams, or will do so again."""

    __slots__ = ("_limits", "_settings", "_timer", "_with", "clock", "open", "pace")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.open: set[Watch] = set()
        # How often is looked; None while nobody is to be looked after.
        self.pace: float | None = None
        self._timer: Timer | None = None
        # What was asked for last, which most streams have: the limits of this patience with these settings.
        self._with: Patience | None = None
        self._settings: ModelSettings | None = None
        self._limits = Limits(None, None, None)

    def limits_of(self, settings: ModelSettings, patience: Patience) -> Limits:
        """The limits of a stream; a model that reasons is given more time."""
        if patience is not self._with or settings is not self._settings:
            idle, whole = patience.idle, patience.whole
            if idle is not None and settings.reasoning not in _NONE:
                idle *= 2
            short = [limit / LOOKS for limit in (idle, whole) if limit is not None]
            self._limits = Limits(idle, whole, min([LOOK, *short]) if short else None)
            self._with, self._settings = patience, settings
        return self._limits

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
        self.look_every(min([watch.limits.every or LOOK for watch in self.open]))


class Watch:
    """Watches one stream after the other, each from its `begin` to its `end`, until it is closed. The reader sets
    `fresh` with each chunk, and `held` while it waits for something else."""

    __slots__ = (
        "_all",
        "_before",
        "_heard",
        "_late",
        "_model",
        "_patience",
        "_reading",
        "_settings",
        "_started",
        "_task",
        "fresh",
        "held",
        "limits",
    )

    def __init__(self, every: Watches, task: asyncio.Task[Any] | None) -> None:
        self._all = every
        self._task = task
        self._late: ModelTimeout | None = None
        self._patience: Patience | None = None
        self._settings: ModelSettings | None = None
        self._reading = self.held = False

    def begin(self, model: Model, settings: ModelSettings, patience: Patience, now: int) -> None:
        """Watch a stream that the task reads."""
        if patience is not self._patience or settings is not self._settings:
            self._enlist(settings, patience)
        task = self._task
        self._before = 0 if task is None else task.cancelling()
        self._model = model
        self._started = self._heard = now
        self._reading, self.fresh = True, False

    def _enlist(self, settings: ModelSettings, patience: Patience) -> None:
        """Be looked after from now on, as these want it."""
        watches = self._all
        self._patience, self._settings = patience, settings
        self.limits = watches.limits_of(settings, patience)
        every = self.limits.every
        if every is not None:
            watches.open.add(self)
            if watches.pace is None or every < watches.pace:
                watches.look_every(every)

    def close(self) -> None:
        """Nothing will be watched any more."""
        self._all.open.discard(self)

    def end(self, raised: BaseException | None = None) -> ModelTimeout | None:
        """It is over; what to raise in place of what was raised, if that came of being late."""
        self._reading = False
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
        if not self._reading or self._late is not None or self.held or self._task is None:
            return
        idle, whole = self.limits.idle, self.limits.whole
        if idle is not None and now - self._heard >= idle * 1000:
            self._late = ModelTimeout(f"model {self._model.name!r} sent nothing for {idle:g} s")
        elif whole is not None and now - self._started >= whole * 1000:
            self._late = ModelTimeout(f"model {self._model.name!r} hadn't finished its answer after {whole:g} s")
        if self._late is not None:
            self._task.cancel()
