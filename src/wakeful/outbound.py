"""HTTP to untrusted URLs: no private addresses, no redirects, bounded bodies."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import cast

import httpx

from .errors import RemoteError

__all__ = [
    "BODY_LIMIT",
    "CARD_LIMIT",
    "GuardedTransport",
    "NotPublic",
    "TooLarge",
    "addresses_of",
    "limited",
    "open_http",
]

CARD_LIMIT = 256 * 1024
BODY_LIMIT = 16 * 1024 * 1024
STREAM_LIMIT = 256 * 1024 * 1024
LINE_LIMIT = 4 * 1024 * 1024
_LIMIT = "wakeful.limit"
_CONNECT = 10.0


class NotPublic(RemoteError):
    """The host resolves to a private address."""


class TooLarge(RemoteError):
    """The remote sends more than is read of it."""


def limited(size: int) -> dict[str, int]:
    """Build the request extensions that limit the size of the response body in bytes."""
    return {_LIMIT: size}


async def addresses_of(host: str, port: int, *, allow_private: bool) -> list[str]:
    """Resolve a host and check every address. Connect to these: a second lookup may resolve differently.

    Raises `NotPublic` for a private host and `httpx.ConnectError` for one without an address. Unless private ones
    are allowed, both have the same text: who chose the name doesn't learn which names a private network has.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        text = f"no address for {host!r}: {error}" if allow_private else _no_public_address(host)
        raise httpx.ConnectError(text) from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not allow_private and not all(_is_public(address) for address in addresses):
        raise NotPublic(_no_public_address(host))
    return addresses


def _no_public_address(host: str) -> str:
    return (
        f"{host!r} has no public address: check the name, or give the agent `allow_private=True` if it is in a "
        "private network of yours"
    )


def _is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        # An address with an embedded IPv4 address is as public as that one.
        inner = [each for each in (ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())) if each is not None]
        if ip in _NAT64:
            inner = [ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)]
        if inner:
            return all(_is_global(each) for each in inner)
    return _is_global(ip)


def _is_global(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    is_refused = any(ip in network for network in _REFUSED if network.version == ip.version)
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and not is_refused


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

# Networks that Python takes for public: protocol assignments, which some clouds use for metadata; the wire server
# of Azure; site-local addresses; documentation.
_REFUSED = tuple(
    [ipaddress.ip_network(each) for each in ("192.0.0.0/24", "168.63.129.16/32", "fec0::/10", "3fff::/20")]
)


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context()  # Loading the certificates takes tens of milliseconds.


class GuardedTransport(httpx.AsyncBaseTransport):
    """A transport that connects only to checked addresses and bounds response bodies."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        # One pool for each host: a certificate is valid for one host name.
        self._pools: dict[tuple[bool, str], httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to the first checked address that accepts a connection."""
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        addresses = await addresses_of(host, port, allow_private=self._allow_private)
        # A compressed body has no size limit once it is decompressed.
        request.headers["Accept-Encoding"] = "identity"
        response = await self._connect(request, host, addresses)
        try:
            return _bounded(request, response)
        except BaseException:
            await response.aclose()
            raise

    async def _connect(self, request: httpx.Request, host: str, addresses: list[str]) -> httpx.Response:
        secure = request.url.scheme == "https"
        pool = self._pools.get((secure, host))
        if pool is None:
            pool = self._pools[secure, host] = httpx.AsyncHTTPTransport(verify=_tls() if secure else False)
        # The caller's timeout may be minutes; connecting gets seconds.
        timeout = {**request.extensions.get("timeout", {}), "connect": _CONNECT}
        extensions = {**request.extensions, "timeout": timeout, "sni_hostname": host}
        failure: httpx.HTTPError = httpx.ConnectError(f"no address for {host!r}")
        for address in addresses:
            at = httpx.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,  # They include `Host`.
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await pool.handle_async_request(at)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.aclose()


def _bounded(request: httpx.Request, response: httpx.Response) -> httpx.Response:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise RemoteError(f"{request.url} sent a compressed response, although the request refuses compression")
    stream = cast(httpx.AsyncByteStream, response.stream)
    if response.headers.get("Content-Type", "").startswith("text/event-stream"):
        bounded = _Escaped(_Bounded(stream, str(request.url), STREAM_LIMIT, LINE_LIMIT))
    else:
        limit = int(request.extensions.get(_LIMIT, BODY_LIMIT))
        bounded = _Bounded(stream, str(request.url), limit, limit)
    return httpx.Response(
        response.status_code, headers=response.headers, stream=bounded, extensions=response.extensions
    )


class _Bounded(httpx.AsyncByteStream):
    """A body stream that fails beyond its limits, regardless of `Content-Length`."""

    def __init__(self, stream: httpx.AsyncByteStream, url: str, limit: int, line_limit: int) -> None:
        self._stream = stream
        self._url = url
        self._limit = limit
        self._line_limit = line_limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = line = 0
        chunks = aiter(self._stream)
        async for chunk in chunks:
            size += len(chunk)
            newline = chunk.rfind(b"\n")
            line = line + len(chunk) if newline < 0 else len(chunk) - newline - 1
            if size > self._limit or line > self._line_limit:
                limit = self._limit if size > self._limit else self._line_limit
                raise TooLarge(
                    f"{self._url} answers with more than {limit:,} bytes, which is the most that is read"
                )
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Escaped(httpx.AsyncByteStream):
    """An event stream of JSON with the Unicode line separators escaped.

    httpx splits lines at three characters that JSON allows unescaped, which would cut an event in two.
    """

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = b""
        async for chunk in self._stream:
            data = held + chunk
            # A separator's bytes may be split between chunks.
            keep = 2 if data.endswith(b"\xe2\x80") else int(data.endswith((b"\xe2", b"\xc2")))
            held, data = data[len(data) - keep :], data[: len(data) - keep]
            for raw, escaped in _SEPARATORS:
                data = data.replace(raw, escaped)
            if data:
                yield data
        if held:
            yield held

    async def aclose(self) -> None:
        await self._stream.aclose()


_SEPARATORS = ((b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"), (b"\xc2\x85", rb"\u0085"))


def open_http(*, allow_private: bool, timeout: float, auth: httpx.Auth | None = None) -> httpx.AsyncClient:
    """Open a client for one exchange. Redirects and proxies are off: they would bypass the address checks."""
    transport = GuardedTransport(allow_private=allow_private)
    return httpx.AsyncClient(
        transport=transport, timeout=timeout, auth=auth, follow_redirects=False, trust_env=False
    )
