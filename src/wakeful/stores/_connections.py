"""Connections to one Postgres database, shared by the handles of all tenants.

What is asked of the database goes on over a server that restarts: it waits, connects again and asks once more, for
so long and no longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar

from ..errors import StoreUnavailable
from ._driver import Address, broken, clashed, explained, soured
from ._install import install

__all__ = ["Connections"]

T = TypeVar("T")

_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0
_CLASHES = 10


class Connections:
    """At most `size` of them, each made when it is first needed, all on one event loop."""

    def __init__(self, address: Address, size: int, wait_seconds: float, *, create: bool = True) -> None:
        self.address = address
        self._create = create
        self._size = size
        self._wait_seconds = wait_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Any] = []
        self._installed = False
        self._closed = False

    async def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do work on a connection; from its beginning again if the connection breaks."""
        self._bind()
        patience, began = None, monotonic()
        while True:
            try:
                return await self._once(work)
            except Exception as error:
                failure = error
            patience = patience or _Patience(began + self._wait_seconds)
            pause = patience.after(failure, ever_connected=self._installed)
            if pause is None or self._closed:
                raise explained(failure, self.address.place)
            await asyncio.sleep(pause)

    async def _once(self, work: Callable[[Any], Awaitable[T]]) -> T:
        slots = self._slots
        await slots.acquire()
        try:
            connection = self._take() or await self.connect()
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
        """One that is idle, if there is one."""
        self._check_open()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def _give_back(self, connection: Any, error: BaseException | None = None) -> None:
        """After an error a connection is kept only if nothing is under way on it, and it isn't the reason."""
        whole = error is None or (
            isinstance(error, Exception)
            and not broken(error)
            and not soured(error)
            and not connection.is_closed()
            and not connection.is_in_transaction()
        )
        if whole and not self._closed:
            self._idle.append(connection)
        else:
            connection.terminate()

    async def connect(self) -> Any:
        """A connection that isn't one of these, on whatever loop runs; the tables are there once it is."""
        connection = await self.address.connect(None if self._installed else self._install, self._wait_seconds)
        self._installed = True
        return connection

    async def _install(self, connection: Any) -> None:
        await install(connection, self.address.schema, self.address.place, create=self._create)

    def _bind(self) -> None:
        self._check_open()
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise StoreUnavailable(
                f"the store {self.address.place} is in use on another event loop; open it once for each loop"
            )
        self._loop, self._slots = loop, asyncio.Semaphore(self._size)
        self._idle.clear()  # They were the old loop's.

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"the store {self.address.place} was closed; open it again")

    async def close(self) -> None:
        """Close those that are idle; those in use are closed when they come back."""
        self._closed = True
        idle, self._idle = self._idle, []
        if self._loop is asyncio.get_running_loop():
            await asyncio.gather(*[_closed(connection) for connection in idle])


async def _closed(connection: Any) -> None:
    try:
        await connection.close(timeout=5)
    except Exception:
        connection.terminate()  # The server is gone, and so is what was to be closed.


class _Patience:
    """How long to wait until the next try: one is at once, the others come until a time."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._tried = False
        self._pause = 0.0
        self._clashes = 0

    def after(self, error: BaseException, *, ever_connected: bool) -> float | None:
        """The pause, or None if there is no more trying."""
        if clashed(error):
            self._clashes += 1
            return 0.0 if self._clashes <= _CLASHES else None
        if not broken(error, ever_connected=ever_connected):
            return None
        if not self._tried:
            self._tried = True
            return 0.0
        self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LAST_PAUSE, self._until - monotonic())
        return self._pause if self._pause > 0 else None
