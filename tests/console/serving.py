"""A server of the console on a real socket, with a runtime that tests reach from their own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec import Struct

from sockets import serve_app
from wakeful import Runtime
from wakeful.identity import ApiKeys, Authenticator, create_key
from wakeful.server import app

__all__ = ["Served", "Shop", "serve_console"]

T = TypeVar("T")


class Served(Struct, frozen=True):
    """A server: its address, and its runtime with the loop that runs it."""

    url: str
    runtime: Runtime
    loop: asyncio.AbstractEventLoop

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine beside the server, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    def page(self, path: str = "/") -> str:
        """The URL of a page of the console."""
        return f"{self.url}/console{path}"

    def key(self, name: str, *scopes: str, tenant: str = "default", groups: tuple[str, ...] = ()) -> str:
        """Make an API key for a principal of this name."""
        store = self.runtime.store.tenant(tenant)
        _, text = self.do(create_key(store, name, principal=name, scopes=scopes or ("admin",), groups=groups))
        return text


class Shop(Struct, frozen=True):
    """A server of the demo's store, and the ids of an example of each noun."""

    served: Served
    places: dict[str, str]

    def page(self, path: str = "/") -> str:
        """The URL of a page, whose parameters such as `:run` are those of the examples."""
        return self.served.page("/".join([self._place(part) for part in path.split("/")]))

    def _place(self, part: str) -> str:
        if not part.startswith(":"):
            return part
        assert part[1:] in self.places, f"examples.console_demo has no example of {part}: return one from fill()"
        return self.places[part[1:]]


@contextmanager
def serve_console(
    make: Callable[[], Runtime], *, auth: bool | Authenticator = False, **options: Any
) -> Iterator[Served]:
    """Serve a runtime from a thread of its own, by default without authentication."""
    begun: Future[tuple[Served, asyncio.Event]] = Future()

    async def main() -> None:
        stop = asyncio.Event()
        runtime = make()
        chain = ApiKeys(runtime.store) if auth is True else (auth or ())
        async with serve_app(app(runtime, auth=chain, **options)) as url:
            begun.set_result((Served(url, runtime, asyncio.get_running_loop()), stop))
            await stop.wait()

    def serve() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            if begun.done():
                raise
            begun.set_exception(error)

    thread = threading.Thread(target=serve)
    thread.start()
    served, stop = begun.result(60)
    try:
        yield served
    finally:
        served.loop.call_soon_threadsafe(stop.set)
        thread.join()
