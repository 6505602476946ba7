"""Server-sent events: the one writer of all streams."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress

from starlette.types import Receive, Scope, Send

from ..errors import Overloaded, explain, report
from .problems import error_response

__all__ = ["EventStream", "frame"]

_log = logging.getLogger("wakeful.server")

BEAT_SECONDS = 15.0
# A reader that takes nothing for this long is cut off; it resumes from its last id.
STUCK_SECONDS = 30.0
# How long the last frame may take.
END_SECONDS = 5.0
RETRY_MS = 1000

HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


def frame(event: str, data: bytes, cursor: str | None = None) -> bytes:
    """One event. `data` is JSON, which has no line breaks."""
    head = b"" if cursor is None else b"id: %s\n" % cursor.encode()
    return b"%sevent: %s\ndata: %s\n\n" % (head, event.encode(), data)


class EventStream:
    """An ASGI response that sends the frames of a source until it ends or the client leaves.

    The first bytes are sent at once, and a comment every 15 seconds of silence. Lines end with LF. The source is
    closed however the stream ends, and its cleanup can await. `admit` counts the stream while it is open, and may
    refuse it. When the server begins to shut down, `drained` is sent and the stream ends. It ends with `revoked`
    if the request's credential is no longer valid, which is checked every 15 seconds.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes],
        *,
        headers: Mapping[str, str] | None = None,
        opening: bytes = b": open\nretry: %d\n\n" % RETRY_MS,
        drained: bytes = b"",
        revoked: bytes = b"",
        admit: Callable[[], AbstractContextManager[None]] = nullcontext,
        beat_seconds: float | None = None,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        self._frames = frames
        self._headers = {**HEADERS, **(headers or {})}
        self._opening = opening
        self._last = drained
        self._revoked = revoked
        self._admit = admit
        self._beat_seconds = BEAT_SECONDS if beat_seconds is None else beat_seconds
        self._stuck_seconds = stuck_seconds
        self._sent_at = time.monotonic()
        self._sending = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream. The source is closed before this returns, also if the request is cancelled."""
        with ExitStack() as held:
            try:
                held.enter_context(self._admit())
            except Overloaded as error:
                await self._frames.aclose()
                await error_response(error)(scope, receive, send)
                return
            await self._run(scope, receive, send)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        headers = [(name.encode(), value.encode()) for name, value in self._headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        feeding = loop.create_task(self._feed(send))
        leaving, watching = loop.create_task(_left(receive)), loop.create_task(self._watch(send))
        checking = loop.create_task(self._check(scope, feeding))
        connection = scope.get("extensions", {}).get("wakeful.connection")
        if connection is not None:
            connection.on_drain = feeding.cancel
            if connection.is_draining:
                feeding.cancel()
        try:
            await asyncio.wait({feeding, leaving, watching}, return_when=asyncio.FIRST_COMPLETED)
            is_cut = watching.done() or (feeding.done() and not feeding.cancelled() and not _is_whole(feeding))
            if is_cut and connection is not None:
                connection.abort()  # What is buffered will never be read, and an end would be taken for the last.
            elif feeding.done() and not is_cut:
                await self._end(send, self._last if feeding.cancelled() else b"")
        finally:
            # A task of its own: a cancelled request can't interrupt it.
            await asyncio.shield(loop.create_task(self._finish(feeding, leaving, watching, checking)))

    async def _feed(self, send: Send) -> None:
        await self._send(send, self._opening)
        async for data in self._frames:
            await self._send(send, data)

    async def _end(self, send: Send, last: bytes) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _send(self, send: Send, data: bytes) -> None:
        self._sending += 1
        await send({"type": "http.response.body", "body": data, "more_body": True})
        self._sending -= 1
        self._sent_at = time.monotonic()

    async def _watch(self, send: Send) -> None:
        """Send a comment when there is silence; return once the client has taken nothing for too long."""
        while True:
            silence = time.monotonic() - self._sent_at
            if self._sending:
                if silence > self._stuck_seconds:
                    return
                await asyncio.sleep(self._stuck_seconds - silence + 0.01)
            elif silence >= self._beat_seconds:
                await self._send(send, b": beat\n\n")
            else:
                await asyncio.sleep(self._beat_seconds - silence + 0.01)

    async def _check(self, scope: Scope, feeding: asyncio.Task[None]) -> None:
        """End the stream once the credential has expired or was revoked."""
        is_valid: Callable[[], Awaitable[bool]] | None = scope.get("wakeful.is_valid")
        if is_valid is None:
            return
        while True:
            await asyncio.sleep(self._beat_seconds)
            try:
                if await is_valid():
                    continue
            except Exception as error:  # The store is away: the next check decides.
                _log.debug("the credential of a stream can't be checked: %s", explain(error))
                continue
            self._last = self._revoked
            feeding.cancel()
            return

    async def _finish(self, *tasks: asyncio.Task[None]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._frames.aclose()


async def _left(receive: Receive) -> None:
    with suppress(OSError):
        while (await receive())["type"] != "http.disconnect":
            pass


def _is_whole(feeding: asyncio.Task[None]) -> bool:
    """Whether the source came to its end; a failure is logged, and the reader resumes."""
    error = feeding.exception()
    if error is not None and not isinstance(error, OSError):  # The client left.
        report(_log, error, "a stream broke off")
    return error is None
