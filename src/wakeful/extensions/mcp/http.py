"""Servers behind HTTP: limits on their replies, and errors that reach the request they belong to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
import msgspec
from mcp.client.streamable_http import streamable_http_client

from .attempts import ATTEMPT
from .stdio import MAX_LINE_BYTES

__all__ = ["http_streams"]

# How long a server may be silent within a reply; a call has a timeout of its own.
READ_TIMEOUT = 300.0
CONNECTION_CLOSED = -32000


@asynccontextmanager
async def http_streams(
    url: str, headers: Mapping[str, str], connect_timeout: float
) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield the streams of a server at a URL."""
    # A compressed reply would be larger than what is counted.
    own = {"accept-encoding": "identity", **headers}
    timeout = httpx2.Timeout(connect_timeout, read=READ_TIMEOUT)
    client = _Client(headers=own, timeout=timeout, transport=_Transport(httpx2.AsyncHTTPTransport()))
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_LINE_BYTES) as streams,
    ):
        yield streams


class _Client(httpx2.AsyncClient):
    """Turns an error of one request into its reply: raised, it would end the requests of everybody else."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request; an error becomes a reply with the status 502."""
        attempt = ATTEMPT.get()
        try:
            return await super().send(request, **options)
        except Exception as error:
            if attempt is not None:
                attempt.error = error
            text = f"{type(error).__name__}: {error}"
            body = {"jsonrpc": "2.0", "id": None, "error": {"code": CONNECTION_CLOSED, "message": text[:500]}}
            headers = {"content-type": "application/json"}
            return httpx2.Response(502, headers=headers, content=msgspec.json.encode(body), request=request)


class _Transport(httpx2.AsyncBaseTransport):
    """Notes which requests were written, and limits the size of replies."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        attempt = ATTEMPT.get()
        before = attempt is not None and attempt.is_written
        if attempt is not None:
            attempt.is_written = True
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
            if attempt is not None:
                attempt.is_written = before
            raise
        has_lost_session = response.status_code == 404 and "mcp-session-id" in request.headers
        if attempt is not None and (response.status_code == 401 or has_lost_session):
            attempt.is_written = before  # It was refused before anything happened.
            attempt.has_lost_session = has_lost_session
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                raise httpx2.RemoteProtocolError("the reply is compressed, which the request didn't allow")
            response.stream = _Limited(cast(httpx2.AsyncByteStream, response.stream))
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _Limited(httpx2.AsyncByteStream):
    """A reply that ends with an error once it is too large."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_LINE_BYTES
        async for data in self._inner:
            left -= len(data)
            if left < 0:
                raise httpx2.StreamError(f"the reply has more than {MAX_LINE_BYTES:,} bytes")
            yield data

    async def aclose(self) -> None:
        """Close the connection of the reply."""
        await self._inner.aclose()
