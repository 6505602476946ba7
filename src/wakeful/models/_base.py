"""What the model objects of all vendors are: a name, a key, an address, and one way to read an answer."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from importlib import import_module
from re import Pattern
from typing import Any, ClassVar, Generic, TypedDict, TypeVar

from ..errors import ConfigurationError, ModelError, ModelNotFound, ModelUnavailable, WakefulError
from ..errors._arguments import checked
from ._protocol import Chunk
from ._reader import Reader
from ._secrets import Key, checked_proxy, checked_url, forms_of, headers_of, hide, named, public

__all__ = ["Client", "Options", "VendorModel", "check_name"]

T = TypeVar("T")

# How long a connection that has told all is waited for to end, so that the next call can use it.
_ENDING = 1.0


class Options(TypedDict, total=False):
    """What every vendor's model object takes besides its key and its address."""

    headers: Mapping[str, str] | None
    timeout: float | None
    proxy: str | None


class VendorModel:
    """A vendor's model. It is usable from one event loop at a time; `close` ends its connections, and the next
    call opens new ones. `address` is where it is, if that is part of its name."""

    live = True
    # Variables of the environment that may say where the vendor is.
    places: tuple[str, ...] = ()
    # What the SDK is made of that takes long to import.
    modules: ClassVar[tuple[str, ...]] = ()

    @checked
    def __init__(
        self,
        vendor: str,
        model: str,
        key: Key,
        /,
        *,
        base_url: str | None,
        address: str | None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        proxy: str | None = None,
    ) -> None:
        check_name(vendor, model)
        if "://" in model:
            raise ConfigurationError(
                public(f"{vendor}:{model}")
                + ": only servers that speak Chat Completions take an address in their name, "
                "as in openai-compatible:qwen3@http://gpu:8000/v1; pass this model's address as base_url=..."
            )
        # The variable that says where it is, unless it was said here.
        places = self.places if base_url is None else ()
        self._said_by = next((name for name in places if os.environ.get(name, "").strip()), "")
        place = os.environ[self._said_by] if self._said_by else base_url
        what = self._said_by or "its base URL"
        self._base_url = None if place is None else checked_url(f"{vendor}:{model}", place, what)
        self.model = model
        self.name = named(vendor, model, address)
        self._key = key
        self._headers = headers_of(self.name, headers)
        self._timeout = _seconds(self.name, timeout)
        self._proxy = None if proxy is None else checked_proxy(self.name, proxy)
        self._loaded = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    async def prepare(self) -> None:
        """Load the SDK, in a thread: the first import of one takes a second or two, in which nothing else on the
        event loop would go on. What is wrong with it is told when the model is asked."""
        if not self._loaded:
            await asyncio.to_thread(self._load)
            self._loaded = True

    def _load(self) -> None:
        for module in self.modules:
            with suppress(Exception):
                import_module(module)

    async def _answered(
        self,
        opened: AbstractAsyncContextManager[AsyncIterator[Any]],
        reader: Reader,
        headers: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Chunk]:
        """The chunks of one answer. Whatever goes wrong is raised as what it is, without the SDK's own error,
        which may show what a vendor repeats of the request; and without the secrets."""
        await self.prepare()
        try:
            async with opened as events:
                take, read = events.__anext__, reader.read
                while not reader.whole:
                    try:
                        event = await take()
                    except StopAsyncIteration:
                        break
                    for chunk in read(event):
                        yield chunk
                if reader.whole:
                    for chunk in await _rest(take, reader):
                        yield chunk
            for chunk in reader.end():
                yield chunk
            return
        except WakefulError as error:
            raised = error
        except Exception as error:
            raised = self._explained(error, reader)
        if isinstance(raised, ModelNotFound | ModelUnavailable) and self._said_by:
            raised.args = (f"{raised} (it was asked at {self._base_url}, as {self._said_by} says)",)
        if isinstance(raised, ModelError):
            raised.request_id = raised.request_id or reader.request_id
            hide(raised, self._secrets(headers or {}))
        raise raised from None

    def _explained(self, error: Exception, reader: Reader) -> ModelError:
        """What an error of the SDK, or of its HTTP client, is."""
        raise NotImplementedError

    def _secrets(self, headers: Mapping[str, Any]) -> tuple[Pattern[str], ...]:
        """What no error may show, in every form; the request may have headers of its own."""
        urls = (self._base_url, self._proxy)
        return forms_of(self._key.found, urls=urls, headers=(*self._headers.values(), *map(str, headers.values())))


def check_name(vendor: str, model: Any) -> None:
    """Refuse what is no model's name."""
    if not isinstance(model, str) or not model.strip():
        raise ConfigurationError(f"a model of {vendor} is asked for by its name, a text; not {model!r:.80}")


def _seconds(model: str, timeout: Any) -> float | None:
    if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout < math.inf):
        raise ConfigurationError(f"{model}: timeout is a positive number of seconds, not {timeout!r:.80}")
    return timeout


async def _rest(take: Callable[[], Awaitable[Any]], reader: Reader) -> list[Chunk]:
    """What comes after the answer, such as its usage. It is read to the end so that the connection can be used
    again; a failure there takes nothing from the answer."""
    chunks: list[Chunk] = []
    try:
        async with asyncio.timeout(_ENDING):
            while True:
                chunks += reader.read(await take())
    except Exception:  # noqa: S110 - the answer is whole, and this is its end
        pass
    return chunks


class Client(Generic[T]):
    """A vendor's client, made on first use and again for each event loop: its connections belong to one."""

    __slots__ = ("_client", "_close", "_loop", "_make")

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._client: T | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return "Client(open)" if self._client is not None else "Client()"

    def get(self) -> T:
        """The client for the running loop."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client, self._loop = self._make(), loop
        return self._client

    async def close(self) -> None:
        """Close its connections; the next use makes it anew."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await self._close(client)
