"""Client-side rate limits of requests and tokens in a minute, shared by all runs, in order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from msgspec import Struct

from ...clock import Clock, Timer
from ...errors import ConfigurationError
from ...errors.arguments import Checked
from ...types.base import Data
from ...types.content import Text, Thinking, ToolCall, ToolReply, text_of
from ..protocol import ModelRequest

__all__ = ["Bucket", "RateLimit", "estimate_tokens"]

MINUTE = 60.0
# Seconds of the allowed rate that may be sent at once after an idle time, and the allowance for network delay. The
# steady rate is lowered by both, so that no minute at the vendor exceeds the limit.
BURST = MINUTE / 40
DELAY = MINUTE / 40
PACE = MINUTE + BURST + DELAY

MOST = 1e15
OUTPUT_GUESS = 512
MEDIA_GUESS = 1000


class RateLimit(Data, metaclass=Checked, omit_defaults=True, kw_only=True):
    """Limits of requests and tokens in a minute, for a vendor or a model."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    def __post_init__(self) -> None:
        given = [getattr(self, name) for name in self.__struct_fields__]
        if given == [None, None]:
            raise ConfigurationError("a RateLimit limits something: give requests_per_minute or tokens_per_minute")
        for name, value in zip(self.__struct_fields__, given, strict=True):
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST
            ):
                raise ConfigurationError(
                    f"RateLimit.{name} is a positive number, or None for no limit; not {value!r:.80}"
                )


class _Waiter(Struct, eq=False):
    tokens: int
    future: asyncio.Future[None]


class Bucket:
    """A token bucket with a queue in order of arrival.

    For requests and for tokens it keeps one number: the time at which everything admitted so far is used up at the
    allowed rate. The next request is admitted once that time is at most the burst ahead.
    """

    def __init__(self, clock: Clock, limit: RateLimit | None = None) -> None:
        self._clock = clock
        requests = None if limit is None else limit.requests_per_minute
        tokens = None if limit is None else limit.tokens_per_minute
        self.counts_tokens = tokens is not None
        self._per_request = 0.0 if requests is None else PACE * 1000 / requests
        self._per_token = 0.0 if tokens is None else PACE * 1000 / tokens
        self._requests_until = 0.0
        self._tokens_until = 0.0
        self._paused_until = 0.0
        self._waiting: deque[_Waiter] = deque()
        self._timer: Timer | None = None

    def paused_for(self) -> float:
        """Seconds left of the vendor's Retry-After."""
        return max(0.0, self._paused_until - self._clock.now()) / 1000

    def pause(self, seconds: float) -> None:
        """Admit nothing for `seconds`: the vendor's Retry-After."""
        self._paused_until = max(self._paused_until, self._clock.now() + seconds * 1000)
        self._admit_due()

    async def acquire(self, tokens: int = 0) -> None:
        """Wait until a request of this many tokens is admitted."""
        now = self._clock.now()
        if not self._waiting and self._due(tokens) <= now:
            self._admit(tokens, now)
            return
        waiter = _Waiter(tokens, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._admit_due()
        try:
            await waiter.future
        except BaseException:
            if waiter.future.done() and not waiter.future.cancelled():
                self.settle(-tokens)  # Admitted but never sent. It stays counted as a request.
            else:
                with suppress(ValueError):  # `_admit_due` may have removed it already.
                    self._waiting.remove(waiter)
                self._admit_due()
            raise

    def settle(self, tokens: int) -> None:
        """Correct the reserved tokens by the difference to the actual usage."""
        if self._per_token and tokens:
            self._tokens_until += tokens * self._per_token
            self._admit_due()

    def _due(self, tokens: int) -> float:
        """The time at which the next request may be admitted."""
        due = max(self._paused_until, self._requests_until - BURST * 1000 if self._per_request else 0.0)
        if self._per_token:
            # A request larger than the burst waits until everything before it is used up.
            ahead = max(BURST * 1000 - tokens * self._per_token, 0.0)
            due = max(due, self._tokens_until - ahead)
        return due

    def _admit(self, tokens: int, now: float) -> None:
        self._requests_until = max(self._requests_until, now) + self._per_request
        self._tokens_until = max(self._tokens_until, now) + tokens * self._per_token

    def _admit_due(self) -> None:
        """Admit all due requests and set a timer for the next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.now()
        while self._waiting:
            head = self._waiting[0]
            if not head.future.done():
                if (due := self._due(head.tokens)) > now:
                    # Clocks count whole milliseconds: rather late than early, which would need a second timer.
                    self._timer = self._clock.call_later((due - now + 1) / 1000, self._admit_due)
                    return
                self._admit(head.tokens, now)
                head.future.set_result(None)
            self._waiting.popleft()


def estimate_tokens(request: ModelRequest) -> int:
    """Estimate the tokens of a request and its answer; the reported usage corrects it later."""
    size = len(request.system) + sum([len(spec.description) + 200 for spec in request.tools])
    media = 0
    for message in request.messages:
        for part in message.content:
            match part:
                case Text() | Thinking():
                    size += len(part.text)
                case ToolCall():
                    size += len(str(part.arguments)) + len(part.name)
                case ToolReply():
                    size += len(text_of(part.content))
                    media += sum([type(inner) is not Text for inner in part.content])
                case _:
                    media += 1
    return size // 4 + media * MEDIA_GUESS + (request.settings.max_tokens or OUTPUT_GUESS)
