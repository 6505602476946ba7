"""Posting to an address that a caller named: only to where anybody may post, and never further than that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx
from msgspec import Struct

from .._outside import NotPublic, addresses_of, open_http
from ..errors import RemoteError, UsageError, WakefulError
from ..errors._arguments import Checked

__all__ = ["WebhookFailed", "WebhookRefused", "Webhooks", "check_url", "post"]

MAX_URL = 2048


class WebhookRefused(UsageError):
    """The address isn't one that this server posts to."""


class WebhookFailed(WakefulError):
    """The recipient couldn't be reached, or didn't take what was posted."""


class Webhooks(Struct, metaclass=Checked, frozen=True, kw_only=True):
    """How addresses that callers name are posted to. With `allow_private` also over plain HTTP, and inside one's
    own network; leave it off where callers aren't trusted. A recipient that fails is tried again after `pause`
    seconds, then after twice as long, up to `longest_pause`; after so many `attempts` it is given up."""

    allow_private: bool = False
    seconds: float = 10
    answer_bytes: int = 64 * 1024
    attempts: int = 10
    pause: float = 1
    longest_pause: float = 3600


async def check_url(url: str, settings: Webhooks) -> None:
    """Refuse a URL that may not be posted to. All addresses that its host's name stands for are looked at."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        httpx.URL(url)  # It refuses some that `urlsplit` mends.
    except (ValueError, httpx.InvalidURL):
        raise WebhookRefused("the push URL can't be read; write https://host/path") from None
    if parts.scheme not in (("https", "http") if settings.allow_private else ("https",)) or not host:
        raise WebhookRefused("a push URL begins with https:// and names a host")
    if parts.username is not None or len(url) > MAX_URL:
        raise WebhookRefused(f"a push URL has no user or password in it, and at most {MAX_URL:,} characters")
    try:
        await addresses_of(host, port or 443, allow_private=settings.allow_private)
    except httpx.ConnectError:
        raise WebhookRefused(f"the push URL's host {host!r} has no address; check its name") from None
    except NotPublic:
        raise WebhookRefused(
            f"the push URL's host {host!r} is inside a private network, where this server doesn't post to; "
            "give one with a public address"
        ) from None


async def post(url: str, body: bytes, headers: Mapping[str, str], settings: Webhooks) -> None:
    """Post once. The address is looked up now and connected to as it was found, so that a name which changes in
    between leads nowhere else; no redirect is followed, no proxy used, and little of an answer is read."""
    await check_url(url, settings)
    sent = {**headers, "Content-Type": "application/json"}
    try:
        async with (
            asyncio.timeout(settings.seconds),
            open_http(allow_private=settings.allow_private, timeout=settings.seconds) as client,
            client.stream("POST", url, content=body, headers=sent) as answer,
        ):
            await _read(answer, settings.answer_bytes)
    except (TimeoutError, httpx.TimeoutException):
        raise WebhookFailed(f"the recipient didn't answer within {settings.seconds:g} seconds") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, RemoteError) as error:
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
