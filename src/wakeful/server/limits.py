"""Limits of a server, and the middleware that checks request bodies."""

from __future__ import annotations

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors.arguments import Checked
from .problems import problem_of, problem_response

__all__ = ["BodyLimit", "ServerLimits"]


class ServerLimits(Struct, metaclass=Checked, frozen=True, kw_only=True):
    """Limits of a server.

    Of connections (`http_protocol` enforces them): how many are open, the seconds for a request's head and for its
    body, and the bytes of a head. Of requests: bytes of a body, parts of a message, entries of a page, messages of
    a task's history, push configurations of a task, and the period in which watch feeds look for changes.

    Of callers, which a server without authentication doesn't tell apart: open streams and concurrent requests of a
    principal, requests per second of a credential and of a tenant, each with the burst that it may have saved up.
    `streams` is the limit of all callers together.
    """

    connections: int = 5000
    header_seconds: float = 10.0
    header_bytes: int = 32 * 1024
    body_seconds: float = 30.0
    body_bytes: int = 2 * 1024 * 1024
    parts: int = 100
    page_size: int = 100
    history: int = 100
    push_configs: int = 10
    watch_seconds: float = 1.0
    streams: int = 1000
    principal_streams: int = 100
    principal_requests: int = 200
    key_rate: float = 100.0
    key_burst: int = 1000
    tenant_rate: float = 1000.0
    tenant_burst: int = 5000


class BodyLimit:
    """Refuses a request body that is too large, isn't UTF-8, or isn't declared as JSON.

    Browsers send other content types across origins without a preflight request.
    """

    def __init__(self, app: ASGIApp, body_bytes: int) -> None:
        self._app = app
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        size = headers.get("content-length", "0")
        if not size.isdecimal() or int(size) > self._body_bytes:
            await self._too_large()(scope, receive, send)
            return
        body, messages = bytearray(), list[Message]()
        while not messages or messages[-1].get("more_body", False):
            messages.append(await receive())
            if messages[-1]["type"] == "http.disconnect":
                return
            body += messages[-1].get("body", b"")
            if len(body) > self._body_bytes:
                await self._too_large()(scope, receive, send)
                return
        if body and not _is_json(headers.get("content-type", "")):
            reason = "the request body isn't declared as JSON: send the header 'content-type: application/json'"
            await _error(415, reason)(scope, receive, send)
            return
        try:
            body.decode()
        except UnicodeDecodeError as error:  # The SDK would answer with an internal error.
            await _error(400, f"the request body isn't UTF-8: {error}")(scope, receive, send)
            return
        messages.reverse()

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, replay, send)

    def _too_large(self) -> Response:
        return _error(
            413, f"the request body has more than {self._body_bytes:,} bytes, the limit; send less at once"
        )


def _is_json(kind: str) -> bool:
    name = kind.partition(";")[0].strip().lower()
    return name == "application/json" or name.endswith("+json")


def _error(status: int, detail: str) -> Response:
    return problem_response(problem_of(status, detail))
