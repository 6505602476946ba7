"""What a server takes at most, and the guard that looks at a request's bytes."""

from __future__ import annotations

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors._arguments import Checked

__all__ = ["BodyLimit", "ServerLimits"]


class ServerLimits(Struct, metaclass=Checked, frozen=True, kw_only=True):
    """What a server takes at most: bytes of a request's body, parts of a message, entries of a page, messages of a
    task's history, streams that are open at once, and push configurations of a task."""

    body_bytes: int = 2 * 1024 * 1024
    parts: int = 100
    page_size: int = 100
    history: int = 100
    streams: int = 1000
    push_configs: int = 10


class BodyLimit:
    """Reads a request's body for what is behind it, and refuses one that is too large, no text, or not said to be
    JSON: anything else a page in a browser can send to this machine without being asked whether it may."""

    def __init__(self, app: ASGIApp, body_bytes: int) -> None:
        self._app = app
        self._most = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        size = headers.get("content-length", "0")
        if not size.isdecimal() or int(size) > self._most:
            await self._too_large()(scope, receive, send)
            return
        body, messages = bytearray(), list[Message]()
        while not messages or messages[-1].get("more_body", False):
            messages.append(await receive())
            body += messages[-1].get("body", b"")
            if len(body) > self._most:
                await self._too_large()(scope, receive, send)
                return
        if body and not _is_json(headers.get("content-type", "")):
            why = "a request's body is JSON, and says so: send it with the header 'content-type: application/json'"
            await _refused(415, why)(scope, receive, send)
            return
        try:
            body.decode()
        except UnicodeDecodeError as error:  # The SDK would take it for a fault of the server's.
            await _refused(400, f"the request's body is no UTF-8: {error}")(scope, receive, send)
            return
        messages.reverse()

        async def again() -> Message:
            return messages.pop() if messages else await receive()

        await self._app(scope, again, send)

    def _too_large(self) -> JSONResponse:
        why = f"the request's body has more than {self._most:,} bytes, which is the limit; send less at once"
        return _refused(413, why)


def _is_json(kind: str) -> bool:
    name = kind.partition(";")[0].strip().lower()
    return name == "application/json" or name.endswith("+json")


def _refused(code: int, why: str) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "status": "INVALID_ARGUMENT", "message": why}}, code)
