"""Posting to an address that a caller named: only to where anybody may post, and never further than that."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit, urlunsplit

import httpx
from msgspec import Struct

from ..errors import UsageError, WakefulError

__all__ = ["WebhookFailed", "WebhookRefused", "Webhooks", "check_url", "post"]

MAX_URL = 2048


class WebhookRefused(UsageError):
    """The address isn't one that this server posts to."""


class WebhookFailed(WakefulError):
    """The recipient couldn't be reached, or didn't take what was posted."""


class Webhooks(Struct, frozen=True, kw_only=True):
    """How addresses that callers name are posted to. With `allow_private` also over plain HTTP, and inside one's
    own network; leave it off where callers aren't trusted. A recipient that fails is tried again after `pause`
    seconds, then after twice as long, up to `longest_pause`; after so many `attempts` it is given up."""

    allow_private: bool = False
    seconds: float = 10
    answer_bytes: int = 64 * 1024
    attempts: int = 10
    pause: float = 1
    longest_pause: float = 3600


async def check_url(url: str, settings: Webhooks) -> str:
    """An address of the URL's host that may be posted to. All that the name stands for are looked at."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise WebhookRefused("the push URL can't be read; write https://host/path") from None
    if parts.scheme not in (("https", "http") if settings.allow_private else ("https",)) or not host:
        raise WebhookRefused("a push URL begins with https:// and names a host")
    if parts.username is not None or len(url) > MAX_URL:
        raise WebhookRefused(f"a push URL has no user or password in it, and at most {MAX_URL:,} characters")
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port or 443, type=socket.SOCK_STREAM)
    except OSError:
        raise WebhookRefused(f"the push URL's host {host!r} has no address; check its name") from None
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses or (not settings.allow_private and not all(map(_is_public, addresses))):
        raise WebhookRefused(
            f"the push URL's host {host!r} is inside a private network, where this server doesn't post to; "
            "give one with a public address"
        )
    return addresses[0]


def _is_public(text: str) -> bool:
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        inner: list[IPv4Address | None] = [address.ipv4_mapped, address.sixtofour]
        inner += list(address.teredo or ())
        if any(each is not None and not _is_public(str(each)) for each in inner):
            return False
        if address.ipv4_mapped is not None:
            return True
    return address.is_global and not address.is_multicast and not address.is_reserved


async def post(url: str, body: bytes, headers: Mapping[str, str], settings: Webhooks) -> None:
    """Post once. The address is looked up now and connected to as it was found, so that a name which changes in
    between leads nowhere else; no redirect is followed, no proxy used, and little of an answer is read."""
    address = await check_url(url, settings)
    parts = urlsplit(url)
    shown = f"[{address}]" if ":" in address else address
    where = urlunsplit(parts._replace(netloc=f"{shown}:{parts.port}" if parts.port else shown, fragment=""))
    sent = {**headers, "Host": parts.netloc, "Content-Type": "application/json"}
    try:
        async with (
            asyncio.timeout(settings.seconds),
            httpx.AsyncClient(follow_redirects=False, trust_env=False, timeout=settings.seconds) as client,
            client.stream(
                "POST", where, content=body, headers=sent, extensions={"sni_hostname": parts.hostname}
            ) as answer,
        ):
            await _read(answer, settings.answer_bytes)
    except (TimeoutError, httpx.TimeoutException):
        raise WebhookFailed(f"the recipient didn't answer within {settings.seconds:g} seconds") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise WebhookFailed(f"the recipient couldn't be reached ({type(error).__name__})") from None
    if not 200 <= answer.status_code < 300:
        raise WebhookFailed(f"the recipient answered with status {answer.status_code}")


async def _read(answer: httpx.Response, most: int) -> None:
    """Read an answer's body, so that the connection ends well, but not more than so much of it."""
    seen = 0
    async for piece in answer.aiter_raw():
        seen += len(piece)
        if seen > most:
            return
