"""The base of all vendors' models: name, key, URL, and reading an answer."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from importlib import import_module
from re import Pattern
from typing import Any, ClassVar, Generic, TypedDict, TypeVar

from ...errors import ConfigurationError, ModelError, ModelNotFound, ModelUnavailable, WakefulError
from ...errors.arguments import checked
from ..protocol import Chunk
from .reader import Reader
from .secrets import Key, check_headers, check_proxy, check_url, hide_secrets, model_name, redact, secret_patterns
from .support import Support

__all__ = ["Client", "Options", "VendorModel", "check_name"]

T = TypeVar("T")

# Seconds to read the rest of a complete answer, so that the connection can be reused.
_REST_SECONDS = 1.0


class Options(TypedDict, total=False):
    """Options of every vendor's model, beside key and URL."""

    headers: Mapping[str, str] | None
    timeout: float | None
    proxy: str | None


class VendorModel:
    """A vendor's model, usable from one event loop at a time.

    `close` closes its connections; the next call opens new ones. `address` is set if it is part of the model's
    name.
    """

    live = True
    # Environment variables that may hold the base URL.
    url_variables: tuple[str, ...] = ()
    # The abilities of the adapter, as the docs show them.
    support: ClassVar[Support]
    # Modules of the SDK that are slow to import.
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
                redact(f"{vendor}:{model}")
                + ": only servers that speak Chat Completions take an address in their name, "
                "as in openai-compatible:qwen3@http://gpu:8000/v1; pass this model's address as base_url=..."
            )
        variables = self.url_variables if base_url is None else ()
        # The environment variable that the base URL comes from, if any.
        self._url_variable = next((name for name in variables if os.environ.get(name, "").strip()), "")
        url = os.environ[self._url_variable] if self._url_variable else base_url
        what = self._url_variable or "its base URL"
        self._base_url = None if url is None else check_url(f"{vendor}:{model}", url, what)
        self.model = model
        self._vendor = vendor
        self.name = model_name(vendor, model, address)
        self._key = key
        self._headers = check_headers(self.name, headers)
        self._timeout = _check_timeout(self.name, timeout)
        self._proxy = None if proxy is None else check_proxy(self.name, proxy)
        self._loaded = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    async def prepare(self) -> None:
        """Import the SDK in a thread: the first import takes a second or two and would block the event loop.

        An import error is reported by the request.
        """
        if not self._loaded:
            await asyncio.to_thread(self._load)
            self._loaded = True

    def _load(self) -> None:
        for module in self.modules:
            with suppress(Exception):
                import_module(module)

    async def _stream_answer(
        self,
        opened: AbstractAsyncContextManager[AsyncIterator[Any]],
        reader: Reader,
        headers: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Chunk]:
        """Stream the chunks of one answer.

        Failures are raised as our own errors without secrets and without the SDK's error, which may quote the
        request.
        """
        await self.prepare()
        try:
            async with opened as events:
                take, read = events.__anext__, reader.read
                while not reader.is_complete:
                    try:
                        event = await take()
                    except StopAsyncIteration:
                        break
                    for chunk in read(event):
                        yield chunk
                if reader.is_complete:
                    for chunk in await _read_rest(take, reader):
                        yield chunk
            for chunk in reader.end():
                yield chunk
            return
        except WakefulError as error:
            raised = error
        except Exception as error:
            raised = self._to_model_error(error, reader)
        if isinstance(raised, ModelNotFound | ModelUnavailable) and self._url_variable:
            raised.args = (f"{raised} (its base URL is {self._base_url}, from {self._url_variable})",)
        if isinstance(raised, ModelError):
            raised.request_id = raised.request_id or reader.request_id
            hide_secrets(raised, self._secrets(headers or {}))
        raise raised from None

    def _to_model_error(self, error: Exception, reader: Reader) -> ModelError:
        """Convert an error of the SDK or its HTTP client."""
        raise NotImplementedError

    def _secrets(self, headers: Mapping[str, Any]) -> tuple[Pattern[str], ...]:
        """Patterns of the secrets that no error may show, including the request's own headers."""
        urls = (self._base_url, self._proxy)
        return secret_patterns(
            self._key.found, urls=urls, headers=(*self._headers.values(), *map(str, headers.values()))
        )


def check_name(vendor: str, model: Any) -> None:
    """Raise `ConfigurationError` if `model` isn't a name."""
    if not isinstance(model, str) or not model.strip():
        raise ConfigurationError(f"a model of {vendor} is asked for by its name, a text; not {model!r:.80}")


def _check_timeout(model: str, timeout: Any) -> float | None:
    if timeout is not None and (type(timeout) not in (int, float) or not 0 < timeout < math.inf):
        raise ConfigurationError(f"{model}: timeout is a positive number of seconds, not {timeout!r:.80}")
    return timeout


async def _read_rest(take: Callable[[], Awaitable[Any]], reader: Reader) -> list[Chunk]:
    """Read the rest after a complete answer, such as its usage, so that the connection can be reused.

    A failure here doesn't affect the answer.
    """
    chunks: list[Chunk] = []
    try:
        async with asyncio.timeout(_REST_SECONDS):
            while True:
                chunks += reader.read(await take())
    except Exception:  # noqa: S110 - the answer is complete
        pass
    return chunks


class Client(Generic[T]):
    """A vendor's client, created on first use for each event loop, which owns its connections."""

    __slots__ = ("_client", "_close", "_loop", "_make")

    def __init__(self, make: Callable[[], T], close: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._client: T | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return "Client(open)" if self._client is not None else "Client()"

    def get(self) -> T:
        """Get the client of the running loop."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client, self._loop = self._make(), loop
        return self._client

    async def close(self) -> None:
        """Close the connections; the next use creates a new client."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await self._close(client)
