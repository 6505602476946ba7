"""Webhooks: posts to addresses that callers choose, restricted to public ones by default."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx
from msgspec import Struct

from ..errors import RemoteError, UsageError, WakefulError
from ..errors.arguments import Checked
from ..outbound import NotPublic, addresses_of, open_http

__all__ = ["WebhookFailed", "WebhookRefused", "Webhooks", "check_url", "post"]

MAX_URL = 2048


class WebhookRefused(UsageError):
    """This server doesn't post to the address."""


class WebhookFailed(WakefulError):
    """The recipient couldn't be reached or refused the post."""


class Webhooks(Struct, metaclass=Checked, frozen=True, kw_only=True):
    """Settings of posts to addresses that callers choose.

    `allow_private` permits plain HTTP and private networks; leave it off unless you trust all callers. A failed
    post is retried after `backoff` seconds, doubled up to `max_backoff`, for at most `attempts` attempts.
    `timeout` is in seconds; at most `answer_bytes` of a response are read.
    """

    allow_private: bool = False
    timeout: float = 10
    answer_bytes: int = 64 * 1024
    attempts: int = 10
    backoff: float = 1
    max_backoff: float = 3600


async def check_url(url: str, settings: Webhooks) -> None:
    """Raise `WebhookRefused` for a URL that may not be posted to; all addresses of its host are checked."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        httpx.URL(url)  # It refuses some URLs that `urlsplit` repairs.
    except (ValueError, httpx.InvalidURL):
        raise WebhookRefused("the push URL can't be read; write https://host/path") from None
    if parts.scheme not in (("https", "http") if settings.allow_private else ("https",)) or not host:
        raise WebhookRefused("a push URL begins with https:// and names a host")
    if parts.username is not None or len(url) > MAX_URL:
        raise WebhookRefused(f"a push URL has no user or password in it, and at most {MAX_URL:,} characters")
    try:
        await addresses_of(host, port or 443, allow_private=settings.allow_private)
    except (httpx.ConnectError, NotPublic):
        # One text for both: callers can't find out which names a private network has.
        raise WebhookRefused(
            f"the push URL's host {host!r} has no public address, and this server posts to no other; check its "
            "name"
        ) from None


async def post(url: str, body: bytes, headers: Mapping[str, str], settings: Webhooks) -> None:
    """Post once; raises `WebhookFailed` or `WebhookRefused`.

    The connection goes to the checked address, so that a DNS change in between has no effect. Redirects and
    proxies are not used.
    """
    await check_url(url, settings)
    sent = {**headers, "Content-Type": "application/json"}
    try:
        async with (
            asyncio.timeout(settings.timeout),
            open_http(allow_private=settings.allow_private, timeout=settings.timeout) as client,
            client.stream("POST", url, content=body, headers=sent) as answer,
        ):
            await _read(answer, settings.answer_bytes)
    except (TimeoutError, httpx.TimeoutException):
        raise WebhookFailed(f"the recipient didn't answer within {settings.timeout:g} seconds") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, RemoteError) as error:
        raise WebhookFailed(f"the recipient couldn't be reached ({type(error).__name__})") from None
    if not 200 <= answer.status_code < 300:
        raise WebhookFailed(f"the recipient answered with status {answer.status_code}")


async def _read(answer: httpx.Response, max_bytes: int) -> None:
    """Read at most `max_bytes` of a response, so that the connection closes properly."""
    read = 0
    async for piece in answer.aiter_raw():
        read += len(piece)
        if read > max_bytes:
            return
