"""Streams that stand still or take too long are interrupted, by the runtime's clock.

One timer looks after all streams that a runtime has open, once in a while: a stream costs no timer of its own, and
a chunk no look at the clock.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
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

    __slots__ = ("_clock", "_every", "_open", "_timer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._every = LOOK
        self._open: set[Watch] = set()
        self._timer: Timer | None = None

    def watch(
        self, task: asyncio.Task[Any] | None, model: Model, request: ModelRequest, patience: Patience
    ) -> Watch:
        """Watch one stream, while the block that it is in runs in this task."""
        idle, whole = patience.idle, patience.whole
        if request.settings.reasoning not in _NONE and idle is not None:
            idle *= 2
        watch = Watch(self._open, task, model.name, self._clock.now(), idle, whole)
        if idle is not None or whole is not None:
            self._open.add(watch)
            if self._timer is None or watch.every < self._every:
                self._set_timer(watch.every)
        return watch

    def _set_timer(self, every: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._every = every
        self._timer = self._clock.call_later(every, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._open:
            return
        now = self._clock.now()
        for watch in list(self._open):
            watch.look(now)
        self._set_timer(min([watch.every for watch in self._open]))


class Watch:
    """One stream. Its reader sets `fresh` with each chunk, and `held` while it waits for something else."""

    __slots__ = (
        "_before",
        "_heard",
        "_idle",
        "_late",
        "_model",
        "_open",
        "_started",
        "_task",
        "_whole",
        "every",
        "fresh",
        "held",
    )

    def __init__(
        self,
        open: set[Watch],
        task: asyncio.Task[Any] | None,
        model: str,
        now: int,
        idle: float | None,
        whole: float | None,
    ) -> None:
        self._open = open
        self._task = task
        self._before = 0 if task is None else task.cancelling()
        self._model = model
        self._started = self._heard = now
        self._idle = idle
        self._whole = whole
        self._late: ModelTimeout | None = None
        self.every = LOOK
        if (idle is not None and idle < LOOKS) or (whole is not None and whole < LOOKS):
            self.every = min([limit / LOOKS for limit in (idle, whole) if limit is not None])
        self.fresh = False
        self.held = False

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.discard(self)
        if self._late is None or self._task is None:
            return
        left = self._task.uncancel()
        # Where somebody else cancels too, that is what counts.
        if kind is not None and issubclass(kind, asyncio.CancelledError) and left <= self._before:
            raise self._late from error

    def look(self, now: int) -> None:
        """Interrupt whoever reads the stream if it is late."""
        if self.fresh or self.held:
            self.fresh, self._heard = False, now
        if self._late is not None or self.held or self._task is None:
            return
        if self._idle is not None and now - self._heard >= self._idle * 1000:
            self._late = ModelTimeout(f"model {self._model!r} sent nothing for {self._idle:g} s")
        elif self._whole is not None and now - self._started >= self._whole * 1000:
            self._late = ModelTimeout(f"model {self._model!r} hadn't finished its answer after {self._whole:g} s")
        if self._late is not None:
            self._task.cancel()
