"""Connection settings of NATS from a URL and keyword settings: servers, credentials and TLS."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from ..errors import ConfigurationError
from .address import check_name, redact_url, require_driver

__all__ = ["NatsSettings"]

_NAMES = ("user", "password", "token", "credentials", "ca", "cert", "key", "tls_hostname", "name")
_FILES = ("credentials", "ca", "cert", "key")


class NatsSettings(Struct, eq=False):
    """The settings of a connection. `repr` and errors never show its secrets."""

    address: str
    name: str
    _servers: list[str]
    _given: dict[str, str]
    _tls: ssl.SSLContext | None

    def __repr__(self) -> str:
        return f"NatsSettings({self.address!r})"

    @classmethod
    def parse(cls, url: str, tls: ssl.SSLContext | None, given: Mapping[str, str]) -> NatsSettings:
        """Parse a URL and keyword settings; raises `ConfigurationError`."""
        address = redact_url(url, "nats", "tls")
        parts = urlsplit(url)
        settings = {**_credentials_in(parts.netloc), **dict(parse_qsl(parts.query)), **given}
        if unknown := [name for name in settings if name not in _NAMES]:
            raise ConfigurationError(
                f"a NATS bus has no setting {unknown[0]!r:.40}; there are {', '.join(_NAMES)}"
            )
        if missing := [name for name in _FILES if name in settings and not Path(settings[name]).is_file()]:
            raise ConfigurationError(f"the file that {missing[0]} names, {settings[missing[0]]!r}, doesn't exist")
        if ("cert" in settings) != ("key" in settings):
            raise ConfigurationError("a certificate for the bus needs both: give cert and key, two files")
        require_driver("nats", "nats")
        if "credentials" in settings:
            require_driver("nkeys", "nats")
        name = check_name(settings.pop("name", "wakeful"))
        servers = [f"{parts.scheme}://{host.rpartition('@')[2]}" for host in parts.netloc.split(",")]
        return cls(address, name, servers, settings, tls)

    def options(self) -> dict[str, Any]:
        """Build the driver's connect options."""
        given = self._given
        options: dict[str, Any] = {"servers": self._servers, "name": "wakeful"}
        options |= {name: given[name] for name in ("user", "password", "token", "tls_hostname") if name in given}
        if "credentials" in given:
            options["user_credentials"] = given["credentials"]
        if (context := self._tls_context()) is not None:
            options["tls"] = context
        return options

    def _tls_context(self) -> ssl.SSLContext | None:
        given = self._given
        if self._tls is not None or not any(name in given for name in ("ca", "cert")):
            return self._tls  # For tls:// the driver uses the system's trust store.
        context = ssl.create_default_context(cafile=given.get("ca"))
        if "cert" in given:
            context.load_cert_chain(given["cert"], given["key"])
        return context


def _credentials_in(hosts: str) -> dict[str, str]:
    """Read the credentials of the first server: user and password, or a token."""
    login, at, _ = hosts.partition(",")[0].rpartition("@")
    user, colon, password = login.partition(":")
    if not at:
        return {}
    return {"user": unquote(user), "password": unquote(password)} if colon else {"token": unquote(user)}
