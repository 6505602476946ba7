"""Ports for servers that tests start by number, and may start again at the same one."""

from __future__ import annotations

import secrets
import socket

__all__ = ["free_port"]

# Below those that systems give to whoever asks for any port: nobody is given one of these while its server starts.
_FIRST, _COUNT = 15_000, 17_000


def free_port() -> int:
    """A port of the loopback address on which nobody listens. Processes that ask at once get different ones."""
    while True:
        port = _FIRST + secrets.randbelow(_COUNT)  # Not `random`, which tests seed.
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
