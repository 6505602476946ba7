"""Addresses of buses: what of them may be shown, and names of clusters."""

from __future__ import annotations

import re
from importlib.util import find_spec
from urllib.parse import urlsplit

from ..errors import ConfigurationError

__all__ = ["checked_name", "need_driver", "place_of"]


def place_of(url: str, *schemes: str) -> str:
    """The address as it may be shown: without user, password, token and settings."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in schemes:
        raise ConfigurationError(f"this bus's URL begins with {' or '.join(f'{one}://' for one in schemes)}")
    hosts = ",".join([host.rpartition("@")[2] for host in parts.netloc.split(",")])
    before, at, _ = parts.netloc.rpartition("@")
    # A / or a # in a password ends what is read as the host, a comma begins another: nothing of it may be shown.
    cut = ("@" in url and not at) or any("@" not in host for host in before.split(",")[:-1])
    if cut or not re.fullmatch(r"[\w.,:%\[\]-]*", hosts):
        raise ConfigurationError(
            f"the bus's URL can't be read: write {schemes[0]}://user:password@host:port, with special characters "
            "in the password as %XX"
        )
    return f"{parts.scheme}://{hosts}"


def checked_name(name: str) -> str:
    """The name of a cluster, which keeps those apart that share a server."""
    if not re.fullmatch(r"[a-z0-9_-]{1,20}", name):
        raise ConfigurationError(
            f"a bus's name has up to 20 small letters, digits, - and _, not {name!r:.80}; it is the same for all "
            "processes on one store, and another for those on another store"
        )
    return name


def need_driver(module: str, extra: str) -> None:
    """Refuse a bus whose driver isn't installed; it is imported when the bus is used."""
    if find_spec(module) is None:
        raise ConfigurationError(f"this bus needs a driver that isn't installed: pip install 'wakeful[{extra}]'")
