"""Pools of connections to one Postgres database, shared by the handles of all tenants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Any, TypeVar

from ...errors import StoreUnavailable
from .clock import ServerClock
from .driver import Address, explain_error, is_broken, is_conflict, is_session_fault
from .install import install
from .text import NOW_MS

__all__ = ["Connections", "Endpoint", "Retry"]

T = TypeVar("T")

_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0
_MAX_CONFLICTS = 10


class Endpoint:
    """A schema of a database, which several pools connect to: its tables are created once."""

    def __init__(self, address: Address, wait_seconds: float, *, create: bool = True) -> None:
        self.address = address
        self.wait_seconds = wait_seconds
        self.clock = ServerClock()
        self.is_installed = False
        self._create = create

    async def connect(self, settings: Mapping[str, str] | None = None) -> Any:
        """Open a connection on the running loop. The tables exist afterwards."""
        connection = await self.address.connect(self._prepare, self.wait_seconds, settings)
        self.is_installed = True
        return connection

    async def _prepare(self, connection: Any) -> None:
        if not self.is_installed:
            await install(connection, self.address.schema, self.address.place, create=self._create)
        self.clock.set(await connection.fetchval(f"SELECT {NOW_MS}"))


class Connections:
    """A pool of at most `size` connections with the same settings, each opened on demand, all on one event loop.

    Work is retried over broken connections and restarts of the server, for `wait_seconds`.
    """

    def __init__(self, endpoint: Endpoint, size: int, settings: Mapping[str, str] | None = None) -> None:
        self.endpoint = endpoint
        self._settings = settings
        self._size = size
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Any] = []
        self._closed = False

    async def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do work on a connection. If the connection breaks, the work starts again on another one."""
        self._bind()
        retry, began = None, monotonic()
        while True:
            try:
                return await self._once(work)
            except Exception as error:
                failure = error
            retry = retry or Retry(began + self.endpoint.wait_seconds)
            pause = retry.after(failure, ever_connected=self.endpoint.is_installed)
            if pause is None or self._closed:
                raise explain_error(failure, self.endpoint.address.place)
            await asyncio.sleep(pause)

    async def _once(self, work: Callable[[Any], Awaitable[T]]) -> T:
        slots = self._slots
        await slots.acquire()
        try:
            connection = self._take() or await self.endpoint.connect(self._settings)
            try:
                result = await work(connection)
            except BaseException as error:
                self._give_back(connection, error)
                raise
            self._give_back(connection)
            return result
        finally:
            slots.release()

    def _take(self) -> Any:
        """An idle connection, or None."""
        self._check_open()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def _give_back(self, connection: Any, error: BaseException | None = None) -> None:
        """Keep a connection, unless an error left it in an unknown state or is the session's fault."""
        is_whole = error is None or (
            isinstance(error, Exception)
            and not is_broken(error)
            and not is_session_fault(error)
            and not connection.is_closed()
            and not connection.is_in_transaction()
        )
        if is_whole and not self._closed:
            self._idle.append(connection)
        else:
            connection.terminate()

    def _bind(self) -> None:
        self._check_open()
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            place = self.endpoint.address.place
            raise StoreUnavailable(
                f"the store {place} is in use on another event loop; open it once for each loop"
            )
        self._loop, self._slots = loop, asyncio.Semaphore(self._size)
        self._idle.clear()  # They belong to the closed loop.

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"the store {self.endpoint.address.place} was closed; open it again")

    async def close(self) -> None:
        """Close the idle connections; those in use are closed when they are given back."""
        self._closed = True
        idle, self._idle = self._idle, []
        if self._loop is asyncio.get_running_loop():
            await asyncio.gather(*[_close(connection) for connection in idle])


async def _close(connection: Any) -> None:
    try:
        await connection.close(timeout=5)
    except Exception:
        connection.terminate()


class Retry:
    """The pauses between tries: none before the second one, then exponential until a deadline."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._has_retried = False
        self._pause = 0.0
        self._conflicts = 0

    def after(self, error: BaseException, *, ever_connected: bool) -> float | None:
        """The seconds to wait before the next try; None to give up."""
        if is_conflict(error):
            self._conflicts += 1
            return 0.0 if self._conflicts <= _MAX_CONFLICTS else None
        if not is_broken(error, ever_connected=ever_connected):
            return None
        if not self._has_retried:
            self._has_retried = True
            return 0.0
        self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LAST_PAUSE, self._deadline - monotonic())
        return self._pause if self._pause > 0 else None
