"""A small HTTP endpoint for probes and metrics of a worker."""

from __future__ import annotations

import asyncio

from ..errors import UsageError
from ..runtime import Runtime

__all__ = ["Health"]

READ_SECONDS = 5.0


class Health:
    """Serves GET /healthz (the process is alive), /readyz (it claims, and the store answers) and /metrics."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.ready = False
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> str:
        """Start to serve; returns the address."""
        try:
            self._server = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            raise UsageError(
                f"the health endpoint can't listen on {host}:{port} ({error.strerror}); give another --health"
            ) from error
        name, number, *_ = self._server.sockets[0].getsockname()
        return f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                words = (await reader.readline()).split()
                while (await reader.readline()).strip():
                    pass  # Headers are ignored.
            method, path = (words[0], words[1].partition(b"?")[0]) if len(words) > 1 else (b"", b"")
            status, text = (405, "GET only\n") if method not in (b"GET", b"HEAD") else await self._answer(path)
            body = text.encode()
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + (b"" if method == b"HEAD" else body))
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # The client left, was too slow, or didn't send HTTP.
        finally:
            writer.close()

    async def _answer(self, path: bytes) -> tuple[int, str]:
        match path:
            case b"/healthz":
                return 200, "alive\n"
            case b"/readyz":
                return await self._readiness()
            case b"/metrics":
                return 200, await self._runtime.workers.metrics_text()
            case _:
                return 404, "/healthz, /readyz or /metrics\n"

    async def _readiness(self) -> tuple[int, str]:
        if not self.ready:
            return 503, "it claims nothing\n"
        problem = await self._runtime.workers.readiness()
        return (200, "ready\n") if problem is None else (503, f"{problem}\n")

    async def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
