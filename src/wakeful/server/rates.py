"""Limits of callers: rates of requests, and how many a principal has at once."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import Overloaded
from ..identity import Caller
from .limits import ServerLimits
from .problems import RETRY_SECONDS, problem_of_error, problem_response

__all__ = ["TOO_FAST", "CallerLimits", "Counts", "Quotas", "Rate"]

# Beyond this number of buckets those that are full again are dropped.
MAX_BUCKETS = 10_000

TOO_FAST = "this credential, or its tenant, sends too many requests; send fewer a second"


class Rate:
    """Token buckets: `rate` requests per second for each name, and `burst` of them at once."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        # The tokens of each name and when they were counted. A full bucket needs no entry.
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str) -> float:
        """Take a token; returns 0, or the seconds until there is one."""
        now = self._clock()
        tokens, at = self._buckets.get(name, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        if tokens < 1:
            return (1 - tokens) / self._rate
        if len(self._buckets) >= MAX_BUCKETS and name not in self._buckets:
            self._drop_full(now)
        self._buckets[name] = (tokens - 1, now)
        return 0

    @property
    def size(self) -> int:
        """How many buckets are kept."""
        return len(self._buckets)

    def _drop_full(self, now: float) -> None:
        self._buckets = {
            name: (tokens, at)
            for name, (tokens, at) in self._buckets.items()
            if tokens + (now - at) * self._rate < self._burst
        }


class Counts:
    """How many of a thing each name has at once, at most `limit`."""

    def __init__(self, limit: int, what: str) -> None:
        self._limit = limit
        self._what = what
        self._counts = Counter[str]()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that have any at present."""
        return tuple(self._counts)

    @contextmanager
    def one(self, name: str) -> Generator[None]:
        """Count one more while it lasts; raises `Overloaded` at the limit."""
        if self._counts[name] >= self._limit:
            raise Overloaded(f"{name} has {self._limit:,} {self._what}, the limit; try again once one has ended")
        self._counts[name] += 1
        try:
            yield
        finally:
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]


class Quotas:
    """The limits of a server's callers, whatever protocol they use.

    A caller without a principal, of a server without authentication, is not limited.
    """

    def __init__(self, limits: ServerLimits, own_tenant: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._own_tenant = own_tenant
        self._requests = Counts(limits.principal_requests, "requests at once")
        self._keys = Rate(limits.key_rate, limits.key_burst, clock)
        self._tenants = Rate(limits.tenant_rate, limits.tenant_burst, clock)

    def take(self, caller: Caller) -> float:
        """Count a request of a caller; returns 0, or the seconds until its credential and tenant may send one."""
        if caller.id is None:
            return 0
        tenant = caller.tenant or self._own_tenant
        # A key has an id of its own; of other credentials the principal stands for all.
        name = caller.auth if caller.auth.startswith("key:") else caller.id
        return self._keys.take(f"{tenant}/{name}") or self._tenants.take(tenant)

    def one(self, caller: Caller) -> AbstractContextManager[None]:
        """Count one more request at once while it lasts; raises `Overloaded` at the limit."""
        if caller.id is None:
            return nullcontext()
        return self._requests.one(f"{caller.tenant or self._own_tenant}/{caller.id}")


class CallerLimits:
    """Refuses requests of a caller that has too many at once, or sent too many in a short time."""

    def __init__(self, app: ASGIApp, quotas: Quotas) -> None:
        self._app = app
        self._quotas = quotas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 429, or pass the request on."""
        caller: Caller | None = scope.get("caller")
        if caller is None:
            await self._app(scope, receive, send)
            return
        seconds = self._quotas.take(caller)
        with ExitStack() as held:
            try:
                if seconds:
                    raise Overloaded(TOO_FAST)
                held.enter_context(self._quotas.one(caller))
            except Overloaded as error:
                retry_after = str(math.ceil(seconds) or RETRY_SECONDS)
                await problem_response(problem_of_error(error), retry_after=retry_after)(scope, receive, send)
                return
            await self._app(scope, receive, send)
