"""Connections to Bedrock that can be ended from outside: botocore's, with a hold on the socket of each call."""

from __future__ import annotations

import socket
import threading
from functools import cache
from typing import Any

from .._vendor import sdk

__all__ = ["Call", "session_of"]

_thread = threading.local()


class Call:
    """One call: made in a thread, which waits on its socket, and ended from another."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._ended = False
        self._lock = threading.Lock()

    def here(self) -> None:
        """Say that this thread makes the call."""
        _thread.call = self

    def uses(self, connected: socket.socket | None) -> None:
        """Take note of the socket."""
        with self._lock:
            self._socket = connected
            if self._ended:
                self._shut()

    def end(self) -> None:
        """End the call: whoever waits on the socket is told that it is over."""
        with self._lock:
            self._ended = True
            self._shut()

    def over(self) -> None:
        """The socket may be another call's from now on."""
        with self._lock:
            self._socket = None

    def _shut(self) -> None:
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # It is closed already.


def session_of(url: str, *, proxy: str | None, connect: float, read: float, size: int) -> Any:
    """A session of botocore's for HTTP, whose connections tell the call that uses them."""
    http = sdk("botocore.httpsession", "bedrock")
    found = {"http": proxy, "https": proxy} if proxy else sdk("botocore.utils", "bedrock").get_environ_proxies(url)
    session = http.URLLib3Session(proxies=found, timeout=(connect, read), max_pool_connections=size)
    session._pool_classes_by_scheme.update(_pools())
    return session


@cache
def _pools() -> dict[str, Any]:
    wire: Any = sdk("botocore.awsrequest", "bedrock")

    def noted(connection: Any) -> Any:
        class Noted(connection):
            def request(self, *args: Any, **kwargs: Any) -> None:
                above: Any = super()
                above.request(*args, **kwargs)
                if (call := getattr(_thread, "call", None)) is not None:
                    call.uses(self.sock)

        return Noted

    return {
        "http": type("Pool", (wire.AWSHTTPConnectionPool,), {"ConnectionCls": noted(wire.AWSHTTPConnection)}),
        "https": type("Pool", (wire.AWSHTTPSConnectionPool,), {"ConnectionCls": noted(wire.AWSHTTPSConnection)}),
    }
