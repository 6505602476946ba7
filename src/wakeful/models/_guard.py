"""What stands before a model for all runs together: its rate limits, and a breaker that gives a sick one rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from ..clock import Clock
from ..errors import ModelError, ModelUnavailable, RateLimited, explain
from ..types.runs import Usage
from ._limits import Bucket, estimate
from ._protocol import Chunk, Model, ModelRequest, UsageChunk, chunks_from

__all__ = ["Breaker", "Guard", "Pass", "guarded"]

FAILURES = 5
COOLDOWN = 30.0


class Breaker:
    """Opens after so many failures in a row: nobody asks until the cooldown is over. Then one request is let
    through as a probe, and its end says whether the others may follow."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._open_until: float | None = None
        self._last = ""
        self._probing = False
        self._waiting: list[asyncio.Future[None]] = []
        # Streams that began before the breaker opened or closed have no say in what it does since.
        self.era: int = 0

    def shut_for(self) -> float | None:
        """For how many seconds nobody may ask; None if one may ask now. While a probe is out, that isn't known."""
        if self._open_until is None:
            return None
        left = (self._open_until - self._clock.now()) / 1000
        return left if left > 0 else 0.0 if self._probing else None

    def why(self) -> str:
        """Why nobody may ask."""
        return f"{self._failures} calls in a row failed; the last: {self._last}"

    async def enter(self, name: str) -> bool:
        """Come through, or be refused; while a probe is out, wait for its end. Returns whether this is the
        probe."""
        while (left := self.shut_for()) is not None:
            if left > 0:
                raise ModelUnavailable(
                    f"model {name!r} isn't asked for another {left:.0f} s: {self.why()}", retry_after=left
                )
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        probes = self._probing = self._open_until is not None
        return probes

    def succeeded(self, era: int) -> None:
        """A stream that began in this era came to its end."""
        if era == self.era:
            if self._open_until is not None:
                self.era += 1
            self._failures, self._open_until = 0, None
            self._release()

    def failed(self, era: int, why: str) -> None:
        """A stream that began in this era failed."""
        if era != self.era:
            return
        self._failures, self._last = self._failures + 1, why
        if self._failures >= FAILURES:
            self._open_until = self._clock.now() + COOLDOWN * 1000
            self.era += 1
        self._release()

    def dropped(self) -> None:
        """The probe was given up before it had an end: somebody else may be it."""
        self._release()

    def _release(self) -> None:
        self._probing = False
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class Guard:
    """What every request to one model goes through, whichever run makes it."""

    def __init__(self, name: str, buckets: Sequence[Bucket], breaker: Breaker | None) -> None:
        self._name = name
        # The model's own, and its vendor's if that has a limit.
        self._buckets = buckets
        self._counts_tokens = any(bucket.counts_tokens for bucket in buckets)
        self._breaker = breaker

    def blocked(self) -> tuple[float, str] | None:
        """For how many seconds it is no use to ask, and why; None if one may."""
        if self._breaker is not None and (left := self._breaker.shut_for()) is not None:
            return left, f"not asked for another {left:.0f} s: {self._breaker.why()}"
        if left := self._paused():
            return left, f"its vendor said to come back in {left:.0f} s"
        return None

    def _paused(self) -> float:
        return max([bucket.paused_for() for bucket in self._buckets])

    async def enter(self, request: ModelRequest, longest: float) -> Pass:
        """Wait for the rate limits, and for the vendor if it said to stay away no longer than that."""
        if (paused := self._paused()) > longest:
            raise RateLimited(
                f"the vendor of model {self._name!r} said to come back in {paused:.0f} s, which is more than "
                f"Patience(longest_retry_after={longest:g}): it isn't waited for",
                retry_after=paused,
            )
        tokens = estimate(request) if self._counts_tokens else 0
        for bucket in self._buckets:
            await bucket.take(tokens)
        breaker = self._breaker
        probes = False if breaker is None else await breaker.enter(self._name)
        return Pass(self._buckets, tokens, breaker, probes)


class Pass:
    """One request that was let through. It has one end, whichever is told first."""

    __slots__ = ("_breaker", "_buckets", "_era", "_over", "_probes", "_tokens")

    def __init__(self, buckets: Sequence[Bucket], tokens: int, breaker: Breaker | None, probes: bool) -> None:
        self._buckets = buckets
        self._tokens = tokens
        self._breaker = breaker
        self._era: int = 0 if breaker is None else breaker.era
        self._probes = probes
        self._over = False

    def succeeded(self, usage: Usage) -> None:
        """The answer came to its end."""
        if self._over:
            return
        self._over = True
        if self._tokens and usage.total_tokens:
            for bucket in self._buckets:
                bucket.settle(usage.total_tokens - self._tokens)
        if self._breaker is not None:
            self._breaker.succeeded(self._era)

    def failed(self, error: BaseException) -> None:
        """The answer failed, or nobody wants it any more, which is no fault of the model's."""
        if self._over:
            return
        self._over = True
        if isinstance(error, RateLimited) and error.retry_after:
            for bucket in self._buckets:  # Who shares a limit shares what its vendor says about it.
                bucket.pause(error.retry_after)
        if self._breaker is None:
            return
        if isinstance(error, ModelError) and error.transient and not isinstance(error, RateLimited):
            self._breaker.failed(self._era, explain(error))
        elif self._probes:
            self._breaker.dropped()


async def guarded(
    guard: Guard | None, model: Model, request: ModelRequest, longest: float
) -> AsyncGenerator[Chunk, None]:
    """The model's answer, asked for through its guard."""
    granted = None if guard is None else await guard.enter(request, longest)
    usage = Usage()
    try:
        async with aclosing(chunks_from(model, request)) as chunks:
            async for chunk in chunks:
                if type(chunk) is UsageChunk:
                    usage = chunk.usage
                yield chunk
    except BaseException as error:
        if granted is not None:
            granted.failed(error)
        raise
    if granted is not None:
        granted.succeeded(usage)
