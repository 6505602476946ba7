"""Rate limits on our side: so many requests and tokens in a minute, for all runs together, first come first
served."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from msgspec import Struct

from ..clock import Clock, Timer
from ..errors import ConfigurationError
from ..errors._arguments import Checked
from ..types.content import Text, Thinking, ToolCall, ToolReply, text_of
from ._protocol import ModelRequest

__all__ = ["Bucket", "RateLimit", "estimate"]

MINUTE = 60.0
# As parts of the minute: how much may go at once after a quiet time, and how much later than another a request may
# arrive at the vendor. What is sent evenly is slowed down by both, so that no minute has more than the limit.
BURST = MINUTE / 40
DELAY = MINUTE / 40
PACE = MINUTE + BURST + DELAY

MOST = 1e15
OUTPUT_GUESS = 512
MEDIA_GUESS = 1000


class RateLimit(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """How many requests and tokens may go to a vendor or a model in a minute."""

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
    """One limit at work. Whoever asks goes when the minute has room, in the order in which they asked.

    For each dimension there is one number: the time at which all that was let go so far is used up at the allowed
    rate. The next one may go as soon as that is no further ahead than the burst.
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
        """For how many seconds the vendor said to stay away."""
        return max(0.0, self._paused_until - self._clock.now()) / 1000

    def pause(self, seconds: float) -> None:
        """Let nobody go for so long: the vendor said so."""
        self._paused_until = max(self._paused_until, self._clock.now() + seconds * 1000)
        self._pump()

    async def take(self, tokens: int = 0) -> None:
        """Wait until one more request of so many tokens may go."""
        now = self._clock.now()
        if not self._waiting and self._due(tokens) <= now:
            self._let_go(tokens, now)
            return
        waiter = _Waiter(tokens, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._pump()
        try:
            await waiter.future
        except BaseException:
            if waiter.future.done() and not waiter.future.cancelled():
                self.settle(-tokens)  # It was let go and never went; that it was one request stays counted.
            else:
                with suppress(ValueError):  # Whoever was let go meanwhile may have passed it over.
                    self._waiting.remove(waiter)
                self._pump()
            raise

    def settle(self, tokens: int) -> None:
        """Correct what was reserved by so many tokens."""
        if self._per_token and tokens:
            self._tokens_until += tokens * self._per_token
            self._pump()

    def _due(self, tokens: int) -> float:
        """When a request may go that is the next."""
        due = max(self._paused_until, self._requests_until - BURST * 1000 if self._per_request else 0.0)
        if self._per_token:
            # One that is too large to fit with others goes when all before it is used up.
            ahead = max(BURST * 1000 - tokens * self._per_token, 0.0)
            due = max(due, self._tokens_until - ahead)
        return due

    def _let_go(self, tokens: int, now: float) -> None:
        self._requests_until = max(self._requests_until, now) + self._per_request
        self._tokens_until = max(self._tokens_until, now) + tokens * self._per_token

    def _pump(self) -> None:
        """Let go whoever may, and come back when the next one may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock.now()
        while self._waiting:
            head = self._waiting[0]
            if not head.future.done():
                if (due := self._due(head.tokens)) > now:
                    # Clocks count whole milliseconds: a little late, never a little early and then again.
                    self._timer = self._clock.call_later((due - now + 1) / 1000, self._pump)
                    return
                self._let_go(head.tokens, now)
                head.future.set_result(None)
            self._waiting.popleft()


def estimate(request: ModelRequest) -> int:
    """About how many tokens the request and its answer will be; the answer's usage corrects it."""
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
