"""HTTP connections: uvicorn's protocol, with the limits that it lacks."""

from __future__ import annotations

import asyncio
import http
import logging
import socket
from collections.abc import Callable
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..api.problems import MEDIA_TYPE
from .limits import ServerLimits
from .problems import RETRY_SECONDS, problem_of

__all__ = ["Connection", "http_protocol"]

_log = logging.getLogger("wakeful.server")

# A peer that acknowledges nothing for this long is gone.
VANISHED_MS = 30_000
# How long a refused connection stays open, for the client to read why.
LINGER_SECONDS = 2.0
# The least time between two warnings about the limit of connections.
WARN_SECONDS = 60.0


def http_protocol(limits: ServerLimits | None = None) -> type[asyncio.Protocol]:
    """Make the class of a server's HTTP connections: `uvicorn.Config(app, http=http_protocol(limits))`.

    A connection has `header_seconds` for each request's head, of at most `header_bytes`, and `body_seconds` for
    its body. Beyond `connections` the one that has been idle the longest is closed; without an idle one a new
    connection gets 503. Use one class for each server.
    """

    class LimitedConnection(Connection):
        shared = _Shared(limits or ServerLimits())

    return LimitedConnection


class _Shared:
    """The state of all connections of a server: those that have sent no head, oldest first."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.idle: dict[Connection, None] = {}
        self._warned_at = 0.0

    def warn(self, now: float) -> None:
        """Log that the limit is reached, at most once a minute."""
        if now - self._warned_at >= WARN_SECONDS or not self._warned_at:
            self._warned_at = now
            _log.warning(
                "%d connections are open, the limit; idle ones are closed for new ones. Raise "
                "ServerLimits(connections=...) if these are your users",
                self.limits.connections,
            )


class Connection(HttpToolsProtocol):
    """One connection.

    Requests find it in their scope, under the extension `wakeful.connection`. `on_drain` is called when the server
    begins to shut down during a request.
    """

    shared: _Shared

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_drain: Callable[[], object] | None = None
        self.is_draining = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_refused = False
        self._is_in_head = True
        # Bytes that came while no request's head was complete, and bytes of the present head's lines.
        self._head_bytes = self._head_size = 0
        self._extensions = {"wakeful.connection": self}

    # -- asyncio's protocol ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, or make room for it."""
        super().connection_made(transport)
        _notice_vanished_peer(transport)
        limits, idle = self.shared.limits, self.shared.idle
        if len(self.connections) > limits.connections:
            self.shared.warn(self.loop.time())
            if not idle:
                self._refuse(503, "the server has too many connections; try again", "too-many-connections")
                return
            oldest = next(iter(idle))
            del idle[oldest]
            oldest.abort()
        idle[self] = None
        self._start(limits.header_seconds, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.shared.idle.pop(self, None)
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, and watch the time for the rest."""
        if self._is_refused:
            return
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_refused or self.transport.is_closing() or self._timer is not None:
            return
        limits = self.shared.limits
        if not self._is_in_head:
            self._start(limits.body_seconds, self._body_is_late)
        elif self._head_bytes:
            self._start(limits.header_seconds, self._head_is_late)

    def shutdown(self) -> None:
        """Begin to shut down: an idle connection is closed, a request may end."""
        self.is_draining = True
        super().shutdown()
        if self.on_drain is not None:
            self.on_drain()

    def abort(self) -> None:
        """Drop the connection at once, with everything that is buffered for the peer."""
        self.transport.abort()

    # -- the parser's callbacks ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._head_size = 0
        self.scope["extensions"] = self._extensions  # type: ignore[typeddict-item]

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, unless the head is too large."""
        super().on_header(name, value)
        self._check_head(len(name) + len(value) + 4)

    def on_url(self, url: bytes) -> None:
        """Take a part of the URL, unless the head is too large."""
        super().on_url(url)
        self._check_head(len(url))

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._stop()
        self.shared.idle.pop(self, None)
        self._is_in_head, self._head_bytes = False, 0
        if not self._is_refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request has come in full."""
        self._stop()
        self._is_in_head = True
        if not self._is_refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.on_drain = None
        super().on_response_complete()
        if self._is_in_head and self.cycle.response_complete:
            self.shared.idle[self] = None

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that isn't HTTP. Uvicorn has logged one line."""
        self._refuse(400, f"{msg.rstrip('.')}: what was sent isn't HTTP/1.1", "malformed-request")

    # -- limits ----------------------------------------------------------------------------------------------

    def _check_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self.shared.limits.header_bytes:
            self._refuse(
                431,
                f"the request's headers have more than {self.shared.limits.header_bytes:,} bytes, the limit; send "
                "less in them",
                "headers-too-large",
            )

    def _start(self, seconds: float, late: Callable[[], None]) -> None:
        self._timer = self.loop.call_later(seconds, late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        self._timer = None
        if self._head_bytes:
            seconds = self.shared.limits.header_seconds
            self._refuse(408, f"the request's headers didn't come within {seconds:g} seconds", "headers-too-slow")
        else:
            self.transport.close()

    def _body_is_late(self) -> None:
        self._timer = None
        seconds = self.shared.limits.body_seconds
        if self.flow.read_paused:  # The application reads slowly; the client isn't to blame.
            self._start(seconds, self._body_is_late)
        elif self.cycle.response_started:
            self.transport.close()
        else:
            self._refuse(408, f"the request's body didn't come within {seconds:g} seconds", "body-too-slow")

    def _refuse(self, status: int, detail: str, code: str) -> None:
        """Reply with a problem, unless a reply has begun, and close the connection.

        What the client still sends is discarded: closing at once would reset the connection, and the client might
        never read the reply. A connection that lingers so makes room for others like an idle one.
        """
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        has_begun = bool(self.cycle) and self.cycle.response_started and not self.cycle.response_complete
        if not has_begun:
            body = msgspec.json.encode(problem_of(status, detail, code=code))
            retry = f"retry-after: {RETRY_SECONDS}\r\n" if status == 503 else ""
            head = (
                f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
                f"content-length: {len(body)}\r\n{retry}connection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self._stop()
        if has_begun or not self.transport.can_write_eof():
            self.transport.close()
            return
        if self.cycle and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.flow.resume_reading()
        self.transport.write_eof()
        self.shared.idle[self] = None
        self._start(LINGER_SECONDS, self.abort)


def _notice_vanished_peer(transport: asyncio.Transport) -> None:
    """Let the kernel drop a connection whose peer acknowledges nothing: one that lost power or its network."""
    connected = transport.get_extra_info("socket")
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux has it.
    if option is not None and connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
        connected.setsockopt(socket.IPPROTO_TCP, option, VANISHED_MS)
