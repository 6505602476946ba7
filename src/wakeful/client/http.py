"""Requests to the HTTP API: credentials, retries with one idempotency key, and errors of the runtime."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from ..api.problems import MEDIA_TYPE, Problem, error_of
from ..errors import ConfigurationError, StoreUnavailable, WakefulError
from ..types.codec import decode
from ..types.ids import new_id

__all__ = ["Http", "Unreachable", "path_of"]

T = TypeVar("T")

ATTEMPTS = 6
BACKOFF = 0.1
MAX_BACKOFF = 5.0
TIMEOUT = 70.0  # A long poll takes up to 60 seconds.
_TRANSIENT = frozenset([429, 502, 503, 504])


class Unreachable(StoreUnavailable):
    """The server can't be reached, or doesn't answer."""


def path_of(template: str, *ids: str) -> str:
    """A path with its ids, encoded."""
    return template.format(*[quote(each, safe="") for each in ids])


class Http:
    """The connections of a client."""

    def __init__(self, url: str, key: str | None, transport: httpx.AsyncBaseTransport | None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"a client's url begins with http:// or https://, not {url!r:.80}")
        self.url = url.rstrip("/")
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            timeout = httpx.Timeout(TIMEOUT, connect=10)
            self._client = httpx.AsyncClient(
                base_url=self.url, headers=self._headers, timeout=timeout, transport=self._transport
            )
        return self._client

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def get(self, path: str, reply: type[T], **query: Any) -> T:
        """Read."""
        return await self.call("GET", path, reply, query=query)

    async def post(self, path: str, reply: type[T], body: Any = None, *, request_id: str | None = None) -> T:
        """Create or decide; repeated after a failure under the same idempotency key."""
        return await self.call("POST", path, reply, body=body, request_id=request_id or new_id())

    async def call(
        self,
        method: str,
        path: str,
        reply: type[T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        request_id: str | None = None,
        revision: int | None = None,
        versioned: bool = False,
    ) -> T:
        """Send a request and decode its reply; raises the error that the runtime raised there."""
        response = await self.send(
            method, path, query=query, body=body, request_id=request_id, revision=revision, versioned=versioned
        )
        return decode(response.content, reply)

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        request_id: str | None = None,
        revision: int | None = None,
        versioned: bool = False,
    ) -> httpx.Response:
        """Send a request until it is answered, up to six times."""
        headers = {} if request_id is None else {"idempotency-key": request_id}
        if versioned:
            headers["if-match"] = "*" if revision is None else f'"{revision}"'
        content = b"" if body is None and method in ("GET", "DELETE") else msgspec.json.encode(body or {})
        if content:
            headers["content-type"] = "application/json"
        params = _params(query)
        may_repeat = method != "POST" or request_id is not None
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response = await self._open().request(
                    method, path, params=params, content=content, headers=headers
                )
            except httpx.TransportError as error:
                if not may_repeat or attempt == ATTEMPTS:
                    raise _unreachable(self.url, error) from error
                await _pause(attempt)
                continue
            if response.is_success:
                return response
            if response.status_code not in _TRANSIENT or not may_repeat or attempt == ATTEMPTS:
                raise _error(response)
            await _pause(attempt, response.headers.get("retry-after", ""))
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, body: Any = None, query: Mapping[str, Any] | None = None, **headers: str
    ) -> AsyncGenerator[httpx.Response]:
        """Open a stream; raises the error of a refused one."""
        content = b"" if body is None else msgspec.json.encode(body)
        if content:
            headers["content-type"] = "application/json"
        client = self._open()
        timeout = httpx.Timeout(TIMEOUT, connect=10, read=45)  # The server sends something every 15 seconds.
        request = client.build_request(
            method, path, content=content, params=_params(query), headers=headers, timeout=timeout
        )
        response = await client.send(request, stream=True)
        try:
            if not response.is_success:
                await response.aread()
                raise _error(response)
            yield response
        finally:
            await response.aclose()


def _params(query: Mapping[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in (query or {}).items():
        if value is not None and value != ():
            found[name] = str(value).lower() if isinstance(value, bool) else value
    return found


def _error(response: httpx.Response) -> WakefulError:
    if response.headers.get("content-type", "").startswith(MEDIA_TYPE):
        return error_of(msgspec.json.decode(response.content, type=Problem))
    return Unreachable(
        f"{response.request.url.host} answered with status {response.status_code} and no problem of ours; check "
        "that the URL is that of a wakeful server"
    )


def _unreachable(url: str, error: Exception) -> Unreachable:
    return Unreachable(f"{url} can't be reached ({type(error).__name__}); check the URL, and that the server runs")


async def _pause(attempt: int, asked: str = "") -> None:
    seconds = min(MAX_BACKOFF, BACKOFF * 2**attempt) * random.uniform(0.5, 1)
    await asyncio.sleep(max(seconds, min(float(asked), MAX_BACKOFF)) if asked.isdecimal() else seconds)
