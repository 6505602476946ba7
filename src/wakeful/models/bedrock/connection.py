"""Connections of botocore whose socket another thread can shut down."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from ..shared.faults import PAGE, not_a_stream
from ..shared.reader import Reader
from ..shared.vendor import sdk

__all__ = ["Call", "WholeAnswer", "call_headers", "open_session"]

_thread = threading.local()


class Call:
    """One call. A thread blocks on its socket; another thread can end it."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers
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


class WholeAnswer(Exception):
    """Carries the body of a response that isn't a stream out of the SDK."""

    def __init__(self, url: str, kind: str, body: bytes) -> None:
        self.url = url
        self.kind = kind
        self.body = body

    def decode(self, reader: Reader) -> dict[str, Any]:
        """The answer in the body; raises the error for anything else."""
        try:
            found = msgspec.json.decode(self.body, type=dict[str, Any])
        except msgspec.MsgspecError:
            found = {}
        if not reader.is_answer(found):
            raise not_a_stream(reader.model, self.url, self.kind, self.body[:PAGE])
        return found


def call_headers() -> Mapping[str, str]:
    """The headers of the current thread's call alone."""
    call: Call | None = getattr(_thread, "call", None)
    return {} if call is None else call.headers


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
