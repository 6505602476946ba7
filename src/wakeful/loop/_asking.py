"""Asking a model: one stream, watched by the clock, through what stands before the model; and the state over all
requests that one answer takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..clock import Clock, Timer
from ..errors import ModelTimeout
from ..models import (
    Attempt,
    Chunk,
    Model,
    ModelRequest,
    Patience,
    PoolModel,
    check_live,
    check_modalities,
)
from ..types.messages import Message, user_message
from ._answer import NO_USAGE, Answer
from ._checkpoints import Checkpoints

if TYPE_CHECKING:
    from ._activation import Activation

__all__ = ["Asking", "stream"]

GO_ON = (
    "Your last answer broke off. Go on exactly where it stopped: don't repeat anything, and don't mention the "
    "interruption."
)


class Asking(Struct, eq=False):
    """One answer that a run wants: what came of it so far, and how it was asked for. Kept over all retries."""

    answer: Answer
    attempt: Attempt
    started: int
    asked: Model | None = None
    # Whether anything came of the present request, and whether one that was too long was made shorter.
    began: bool = False
    refitted: bool = False

    @property
    def name(self) -> str:
        """Whose answer it is, as events show it."""
        model = self.attempt.model or self.asked
        return "" if model is None else model.name

    def choose(self, asked: Model) -> Model:
        """The model to ask: the one that is wanted, or a member if that is a pool."""
        if asked is not self.asked:
            # A hook wants another one than last time: who was tried before says nothing about it.
            self.asked = asked
            self.attempt = Attempt(self.attempt.thread_id, self.attempt.run_id)
        if isinstance(asked, PoolModel):
            return asked.choose(self.attempt)
        self.attempt.turn_to(asked, asked.name)
        return asked


async def stream(act: Activation, asking: Asking, model: Model, request: ModelRequest, patience: Patience) -> None:
    """Ask the model once, and take in what it answers."""
    answer, models = asking.answer, act.env.registry.models
    check_live(model)
    check_modalities(model, models.facts_of(model), request)
    guard = models.guard(model)
    granted = None if guard is None else await guard.enter(request, patience.longest_retry_after)
    checkpoints = Checkpoints(act, answer) if act.env.store.durable else None
    try:
        answer.go_on(act.head)
        with Watch(act.clock, model, request, patience) as watch:
            await _take_in(asking, model.stream(_continued(act, request, answer)), watch, checkpoints)
    except BaseException as error:
        if granted is not None:
            granted.failed(error)
        if checkpoints is not None and isinstance(error, Exception):
            await checkpoints.write()  # What is gone on from must be there for whoever takes over.
        raise
    finally:
        if answer.usage is not NO_USAGE:
            answer.usage = models.priced(model, answer.usage)
        if checkpoints is not None:
            checkpoints.close()
    if granted is not None:
        granted.succeeded(answer.usage)


async def _take_in(
    asking: Asking, chunks: AsyncIterator[Chunk], watch: Watch, checkpoints: Checkpoints | None
) -> None:
    add, now = asking.answer.add, watch.now
    try:
        async for chunk in chunks:
            asking.began = True
            add(chunk)
            watch.heard = now()
            if checkpoints is not None and checkpoints.due():
                watch.heard = None
                await checkpoints.pass_by()
                watch.heard = now()
    finally:
        # A generator that came to its end is closed; whatever else may still hold a connection.
        ended = getattr(chunks, "ag_frame", chunks) is None
        if not ended and (close := getattr(chunks, "aclose", None)) is not None:
            await close()


class Watch:
    """Interrupts a stream that stands still or takes too long, by the runtime's clock: one timer for each stream,
    which looks when the last chunk was heard of. None means that nobody waits for the model at the moment."""

    __slots__ = (
        "_before",
        "_began",
        "_clock",
        "_ends",
        "_idle",
        "_model",
        "_task",
        "_timer",
        "heard",
        "late",
        "now",
    )

    def __init__(self, clock: Clock, model: Model, request: ModelRequest, patience: Patience) -> None:
        self._clock = clock
        self._model = model
        self.now = clock.now
        twice = request.settings.reasoning not in (None, "", "none", 0)
        self._idle = None if patience.idle is None else patience.idle * (2000 if twice else 1000)
        self._began = clock.now()
        self._ends = None if patience.whole is None else self._began + patience.whole * 1000
        self._timer: Timer | None = None
        self._task: asyncio.Task[object] | None = None
        self._before = 0
        self.heard: int | None = self._began
        self.late: ModelTimeout | None = None

    def __enter__(self) -> Watch:
        self._task = asyncio.current_task()
        self._before = 0 if self._task is None else self._task.cancelling()
        self._look()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.late is None or self._task is None:
            return
        left = self._task.uncancel()
        # Where somebody else cancels too, that is what counts.
        if kind is not None and issubclass(kind, asyncio.CancelledError) and left <= self._before:
            raise self.late from error

    def _look(self) -> None:
        now, heard = self._clock.now(), self.heard
        idle = None if self._idle is None else (now if heard is None else heard) + self._idle
        due = min([at for at in (idle, self._ends) if at is not None], default=None)
        if due is None:
            return
        if now < due or heard is None:
            # While something of ours is written down it isn't the model that is late.
            self._timer = self._clock.call_later(
                max(due - now, 1 if heard is not None else 100) / 1000, self._look
            )
            return
        name, seconds = self._model.name, (now - (heard if due == idle else self._began)) / 1000
        what = "sent nothing for" if due == idle else "hadn't finished its answer after"
        self.late = ModelTimeout(f"model {name!r} {what} {seconds:g} s")
        if self._task is not None:
            self._task.cancel()


def _continued(act: Activation, request: ModelRequest, answer: Answer) -> ModelRequest:
    """The request, with what came of its answer before that broke off."""
    messages = request.messages
    if prefix := answer.prefix():
        begun = Message(answer.message_id, "assistant", prefix, act.now)
        return replace(request, messages=[*messages, begun, _prompt(act)])
    if messages and messages[-1].role == "assistant":
        # A run that failed kept what it had of an answer, and is retried.
        return replace(request, messages=[*messages, _prompt(act)])
    return request


def _prompt(act: Activation) -> Message:
    return user_message(GO_ON, visibility="internal", at=act.now)
