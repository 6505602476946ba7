"""Validation of remote URLs."""

from __future__ import annotations

from urllib.parse import urlsplit

from ...errors import RemoteError

__all__ = ["check_url"]


def check_url(url: str, what: str, schemes: tuple[str, ...] = ("https", "http")) -> tuple[str, int]:
    """Return the host and port of a URL; raises `RemoteError` if it is invalid or carries a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise RemoteError(f"{what} isn't a URL: {url!r}") from None
    if parts.scheme not in schemes or not host:
        raise RemoteError(f"{what} isn't an {' or '.join(schemes)} URL: {url!r}")
    if not url.isprintable() or url != url.strip():  # `urlsplit` accepts these, but no request could be sent.
        raise RemoteError(f"{what} has a line break, a blank or the like in it: {url!r}")
    if parts.username or parts.password:
        raise RemoteError(f"{what} carries a password, which would end up in logs: pass it as `auth` instead")
    return host, port or (80 if parts.scheme in ("http", "grpc") else 443)
