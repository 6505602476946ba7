"""The guard of a model, shared by all runs: rate limits and a circuit breaker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from ...clock import Clock
from ...errors import ModelError, ModelUnavailable, RateLimited, outline
from ...types.runs import Usage
from ..protocol import Chunk, Model, ModelRequest, UsageChunk, chunks_from
from .rate_limits import Bucket, estimate_tokens

__all__ = ["Breaker", "Guard", "Permit", "stream_guarded"]

FAILURES = 5
COOLDOWN = 30.0


class Breaker:
    """A circuit breaker. It opens after `FAILURES` in a row and refuses requests for `COOLDOWN` seconds.

    Then one request passes as a probe. Its success closes the breaker, its failure opens it again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures = 0
        self._open_until: float | None = None
        self._last = ""
        self._probing = False
        self._waiting: list[asyncio.Future[None]] = []
        # Counts state changes. The outcome of a stream that started in an earlier generation is ignored.
        self.generation: int = 0

    def open_for(self) -> float | None:
        """Seconds until a request may pass; None if it may now, 0 while a probe is pending."""
        if self._open_until is None:
            return None
        left = (self._open_until - self._clock.now()) / 1000
        return left if left > 0 else 0.0 if self._probing else None

    def why(self) -> str:
        """The reason why the breaker is open."""
        return f"{self._failures} calls in a row failed; the last: {self._last}"

    async def enter(self, name: str) -> bool:
        """Permit the breaker, or raise `ModelUnavailable`; waits for a pending probe.

        Returns whether this request is the probe.
        """
        while (left := self.open_for()) is not None:
            if left > 0:
                raise ModelUnavailable(
                    f"model {name!r} isn't asked for another {left:.0f} s: {self.why()}", retry_after=left
                )
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        probes = self._probing = self._open_until is not None
        return probes

    def succeeded(self, generation: int) -> None:
        """Record the success of a stream that started in this generation."""
        if generation == self.generation:
            if self._open_until is not None:
                self.generation += 1
            self._failures, self._open_until = 0, None
            self._release()

    def failed(self, generation: int, why: str) -> None:
        """Record the failure of a stream that started in this generation."""
        if generation != self.generation:
            return
        self._failures, self._last = self._failures + 1, why
        if self._failures >= FAILURES:
            self._open_until = self._clock.now() + COOLDOWN * 1000
            self.generation += 1
        self._release()

    def probe_abandoned(self) -> None:
        """Let another request be the probe."""
        self._release()

    def _release(self) -> None:
        self._probing = False
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class Guard:
    """The gate of all requests to one model."""

    def __init__(self, name: str, buckets: Sequence[Bucket], breaker: Breaker | None) -> None:
        self._name = name
        # The model's own bucket, and the vendor's if it has a limit.
        self._buckets = buckets
        self._counts_tokens = any(bucket.counts_tokens for bucket in buckets)
        self._breaker = breaker

    def blocked_for(self) -> tuple[float, str] | None:
        """Seconds for which requests are blocked, and why; None if they aren't."""
        if self._breaker is not None and (left := self._breaker.open_for()) is not None:
            return left, f"not asked for another {left:.0f} s: {self._breaker.why()}"
        if left := self._paused():
            return left, f"its vendor said to come back in {left:.0f} s"
        return None

    def _paused(self) -> float:
        return max([bucket.paused_for() for bucket in self._buckets])

    async def enter(self, request: ModelRequest, longest: float) -> Permit:
        """Wait for the rate limits and Retry-After; raises `RateLimited` if that exceeds `longest`."""
        if (paused := self._paused()) > longest:
            raise RateLimited(
                f"the vendor of model {self._name!r} said to come back in {paused:.0f} s, which is more than "
                f"RetryPolicy(max_retry_after={longest:g}): it isn't waited for",
                retry_after=paused,
            )
        tokens = estimate_tokens(request) if self._counts_tokens else 0
        for bucket in self._buckets:
            await bucket.acquire(tokens)
        breaker = self._breaker
        probes = False if breaker is None else await breaker.enter(self._name)
        return Permit(self._buckets, tokens, breaker, probes)


class Permit:
    """The permit of one request. Only its first outcome counts."""

    __slots__ = ("_breaker", "_buckets", "_generation", "_is_settled", "_probes", "_tokens")

    def __init__(self, buckets: Sequence[Bucket], tokens: int, breaker: Breaker | None, probes: bool) -> None:
        self._buckets = buckets
        self._tokens = tokens
        self._breaker = breaker
        self._generation: int = 0 if breaker is None else breaker.generation
        self._probes = probes
        self._is_settled = False

    def succeeded(self, usage: Usage) -> None:
        """Record a complete answer."""
        if self._is_settled:
            return
        self._is_settled = True
        if self._tokens and usage.total_tokens:
            for bucket in self._buckets:
                bucket.settle(usage.total_tokens - self._tokens)
        if self._breaker is not None:
            self._breaker.succeeded(self._generation)

    def failed(self, error: BaseException) -> None:
        """Record a failed or cancelled answer. A cancellation doesn't count against the model."""
        if self._is_settled:
            return
        self._is_settled = True
        if isinstance(error, RateLimited) and error.retry_after:
            for bucket in self._buckets:  # Retry-After holds for all that share the limit.
                bucket.pause(error.retry_after)
        if self._breaker is None:
            return
        if isinstance(error, ModelError) and error.transient and not isinstance(error, RateLimited):
            self._breaker.failed(self._generation, outline(error))
        elif self._probes:
            self._breaker.probe_abandoned()


async def stream_guarded(
    guard: Guard | None, model: Model, request: ModelRequest, longest: float
) -> AsyncGenerator[Chunk, None]:
    """Stream a model's answer through its guard."""
    permit = None if guard is None else await guard.enter(request, longest)
    usage = Usage()
    try:
        async with aclosing(chunks_from(model, request)) as chunks:
            async for chunk in chunks:
                if type(chunk) is UsageChunk:
                    usage = chunk.usage
                yield chunk
    except BaseException as error:
        if permit is not None:
            permit.failed(error)
        raise
    if permit is not None:
        permit.succeeded(usage)
