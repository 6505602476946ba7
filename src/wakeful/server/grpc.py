"""Where a server listens for gRPC."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

from msgspec import Struct

from ..errors import ConfigurationError
from ..errors.arguments import Checked

__all__ = ["Grpc"]


class Grpc(Struct, metaclass=Checked, frozen=True, kw_only=True):
    """The address on which A2A is served over gRPC; port 0 takes a free one.

    `url` is the `host:port` in agent cards, for a server behind a proxy; by default it is the server's name with
    the port. With a `certificate` the server speaks TLS; its `key` may be in the same file. With a `client_ca`
    it requires client certificates of that authority. All are files in PEM format.
    """

    host: str = "127.0.0.1"
    port: int = 50051
    url: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigurationError(f"a port is a number from 0 to 65535, not {self.port}")
        if self.certificate is None and (self.key is not None or self.client_ca is not None):
            raise ConfigurationError("a key and a client_ca go with a certificate; give Grpc(certificate=...)")

    @property
    def is_any(self) -> bool:
        """Whether it listens on every address of the machine."""
        try:
            return ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def address(self, port: int, host: str | None = None) -> str:
        """A port with a host, by default the one it listens on, as gRPC writes them."""
        name = self.host if host is None else host
        return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
