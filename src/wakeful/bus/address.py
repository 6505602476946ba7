"""Bus URLs and cluster names."""

from __future__ import annotations

import re
from importlib.util import find_spec
from urllib.parse import urlsplit

from ..errors import ConfigurationError

__all__ = ["check_name", "redact_url", "require_driver"]


def redact_url(url: str, *schemes: str) -> str:
    """Reduce a URL to scheme and hosts, without user, password, token and settings."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in schemes:
        raise ConfigurationError(f"this bus's URL begins with {' or '.join(f'{one}://' for one in schemes)}")
    hosts = ",".join([host.rpartition("@")[2] for host in parts.netloc.split(",")])
    before, at, _ = parts.netloc.rpartition("@")
    # An unescaped / or # in a password ends the host part, and a comma starts another host. An error that quoted
    # the URL would show the password.
    cut = ("@" in url and not at) or any("@" not in host for host in before.split(",")[:-1])
    if cut or not re.fullmatch(r"[\w.,:%\[\]-]*", hosts):
        raise ConfigurationError(
            f"the bus's URL can't be read: write {schemes[0]}://user:password@host:port, with special characters "
            "in the password as %XX"
        )
    return f"{parts.scheme}://{hosts}"


def check_name(name: str) -> str:
    """Validate the name of a cluster. The name separates clusters that share a server."""
    if not re.fullmatch(r"[a-z0-9_-]{1,20}", name):
        raise ConfigurationError(
            f"a bus's name has up to 20 small letters, digits, - and _, not {name!r:.80}; it is the same for all "
            "processes on one store, and another for those on another store"
        )
    return name


def require_driver(module: str, extra: str) -> None:
    """Raise `ConfigurationError` if the bus's driver isn't installed. The import itself comes later."""
    if find_spec(module) is None:
        raise ConfigurationError(f"this bus needs a driver that isn't installed: pip install 'wakeful[{extra}]'")
