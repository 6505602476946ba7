"""Names of hosts."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["host_name", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone, by its address or by the name `localhost`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_name(host: str) -> str:
    """A `Host` header without its port and brackets."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
