"""What a server's protocols share: the runtime, who may call, limits, and work that outlives its request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from ..agents import Agent
from ..errors import RuntimeClosed, UsageError, report
from ..runtime import Runtime
from ._auth import Auth
from ._limits import ServerLimits
from ._webhooks import Webhooks

__all__ = ["Serving", "TooManyStreams"]

T = TypeVar("T")

_log = logging.getLogger("wakeful.server")


class TooManyStreams(UsageError):
    """As many streams are open as the server allows."""


class Serving:
    """One server's shared half. A protocol is handed this, and contributes routes."""

    def __init__(
        self,
        runtime: Runtime,
        agents: tuple[Agent, ...],
        auth: Auth | None,
        limits: ServerLimits,
        public_url: str | None,
        webhooks: Webhooks,
    ) -> None:
        self.runtime = runtime
        self.agents = agents
        self.auth = auth
        self.limits = limits
        self.public_url = public_url
        self.webhooks = webhooks
        self.services: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._work: set[asyncio.Task[Any]] = set()
        self._streams = 0

    def detach(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin work that goes on when the request that wanted it is gone."""
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Detach work and wait for what comes of it, for as long as the request is there."""
        task = self.detach(work)
        try:
            return await asyncio.shield(task)
        finally:
            self.leave(task)

    def leave(self, task: asyncio.Task[Any]) -> None:
        """Let detached work go on by itself: what goes wrong from now on is told nobody, and is logged."""
        if not task.done():
            task.add_done_callback(_unheard)

    @contextmanager
    def stream(self) -> Generator[None]:
        """Count a stream for as long as it is open."""
        if self._streams >= self.limits.streams:
            raise TooManyStreams(
                f"{self.limits.streams:,} streams are open, which is the limit; get the task instead, or try again"
            )
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """The server's lifetime: runs that are due go on, and when it ends all is brought to rest."""
        async with self.runtime:
            services = [asyncio.get_running_loop().create_task(service()) for service in self.services]
            try:
                yield
            finally:
                for service in services:
                    service.cancel()
                await asyncio.gather(*services, return_exceptions=True)
        if self._work:
            await asyncio.wait(self._work)


def _unheard(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, RuntimeClosed):
        report(_log, error, "what a request began failed when it was gone")
