"""Connections of botocore whose socket another thread can shut down."""

from __future__ import annotations

import socket
import threading
from functools import cache
from typing import Any

from ..shared.vendor import sdk

__all__ = ["Call", "open_session"]

_thread = threading.local()


class Call:
    """One call. A thread blocks on its socket; another thread can end it."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._ended = False
        self._lock = threading.Lock()

    def bind_thread(self) -> None:
        """Make this the call of the current thread."""
        _thread.call = self

    def set_socket(self, connected: socket.socket | None) -> None:
        """Record the socket of the call."""
        with self._lock:
            self._socket = connected
            if self._ended:
                self._shutdown()

    def end(self) -> None:
        """End the call: shut the socket down, which wakes the waiting thread."""
        with self._lock:
            self._ended = True
            self._shutdown()

    def release_socket(self) -> None:
        """Forget the socket, which another call may reuse."""
        with self._lock:
            self._socket = None

    def _shutdown(self) -> None:
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # Already closed.


def open_session(url: str, *, proxy: str | None, connect: float, read: float, size: int) -> Any:
    """Open an HTTP session of botocore whose connections report their socket to the call."""
    http = sdk("botocore.httpsession", "bedrock")
    found = {"http": proxy, "https": proxy} if proxy else sdk("botocore.utils", "bedrock").get_environ_proxies(url)
    session = http.URLLib3Session(proxies=found, timeout=(connect, read), max_pool_connections=size)
    session._pool_classes_by_scheme.update(_pools())
    return session


@cache
def _pools() -> dict[str, Any]:
    wire: Any = sdk("botocore.awsrequest", "bedrock")

    def recording(connection: Any) -> Any:
        class Recording(connection):
            def request(self, *args: Any, **kwargs: Any) -> None:
                above: Any = super()
                above.request(*args, **kwargs)
                if (call := getattr(_thread, "call", None)) is not None:
                    call.set_socket(self.sock)

        return Recording

    return {
        "http": type("Pool", (wire.AWSHTTPConnectionPool,), {"ConnectionCls": recording(wire.AWSHTTPConnection)}),
        "https": type(
            "Pool", (wire.AWSHTTPSConnectionPool,), {"ConnectionCls": recording(wire.AWSHTTPSConnection)}
        ),
    }
