"""Servers as child processes: one process group each, with limits on what they write."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from .attempts import ATTEMPT
from .settings import Settings

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

__all__ = ["MAX_LINE_BYTES", "stdio_streams"]

_log = logging.getLogger("wakeful.mcp")

# The size limit of one message of a server.
MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_LOG_LINE = 2_000
# How long a server may take to exit after its stdin was closed, and after SIGTERM.
EXIT_GRACE = TERM_GRACE = 2.0
_POLL = 0.01

_INHERITED = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR")


@asynccontextmanager
async def stdio_streams(settings: Settings, lost: Callable[[], None]) -> AsyncGenerator[tuple[Any, Any]]:
    """Start a server and yield its streams. Its whole process group is gone afterwards.

    The environment has what a program needs to start, and `env`. `lost` is called when the server closes its
    stdout.
    """
    command = settings.command or ()
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**inherited, **settings.env},
        cwd=settings.cwd,
        start_new_session=True,
        limit=MAX_LINE_BYTES,
    )
    errors = asyncio.ensure_future(_log_errors(settings.name, process))
    try:
        yield _Reader(settings.name, process, lost), _Writer(process)
    finally:
        # In a task of its own: a cancellation of this one must not leave the processes behind.
        ending = asyncio.ensure_future(_end(process))
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                continue
        errors.cancel()
        with suppress(asyncio.CancelledError):
            await errors
        _close_pipes(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close stdin, then end the process group: SIGTERM, and SIGKILL for the rest."""
    if process.stdin is not None:
        process.stdin.close()
    drained = asyncio.ensure_future(_drain(process))
    await _wait_for(lambda: process.returncode is not None, EXIT_GRACE)
    # Processes that the server started are in its group, and may outlive it.
    for number, grace in ((signal.SIGTERM, TERM_GRACE), (signal.SIGKILL, TERM_GRACE)):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        if await _wait_for(lambda: not _is_alive(process.pid), grace):
            break
    drained.cancel()
    with suppress(asyncio.CancelledError):
        await drained


async def _wait_for(is_over: Callable[[], bool], grace: float) -> bool:
    deadline = asyncio.get_running_loop().time() + grace
    while not is_over():
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(_POLL)
    return True


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Discard what the server still writes: a full pipe would keep it from exiting."""
    if process.stdout is not None:
        with suppress(ConnectionError, ValueError, RuntimeError):
            while await process.stdout.read(64 * 1024):
                pass


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """Close the pipes, which a process that left the group may hold open."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        with suppress(PermissionError, ProcessLookupError):
            transport.close()


async def _log_errors(name: str, process: asyncio.subprocess.Process) -> None:
    """Log the server's stderr for debugging, in pieces of a limited size."""
    if process.stderr is None:
        return
    while data := await process.stderr.read(MAX_LOG_LINE):
        _log.debug("MCP server %s: %s", name, data.decode(errors="replace").rstrip())


class _Stream:
    """The parts that the SDK wants of both streams."""

    async def aclose(self) -> None:
        """Do nothing: the process is ended by its context manager."""

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class _Reader(_Stream):
    """The messages of a server's stdout, one a line."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, lost: Callable[[], None]) -> None:
        self._name = name
        self._stdout = cast(asyncio.StreamReader, process.stdout)
        self._lost = lost

    def __aiter__(self) -> _Reader:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        if (message := await self._next()) is None:
            self._lost()
            raise StopAsyncIteration
        return message

    async def receive(self) -> SessionMessage | Exception:
        """The next message; raises `EndOfStream`."""
        from anyio import EndOfStream

        if (message := await self._next()) is None:
            self._lost()
            raise EndOfStream
        return message

    async def _next(self) -> SessionMessage | Exception | None:
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        while True:
            try:
                line = await self._stdout.readuntil(b"\n")
            except asyncio.LimitOverrunError:
                _log.warning("MCP server %s wrote a message of more than %d bytes", self._name, MAX_LINE_BYTES)
                return None
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            try:
                return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError:
                # Servers print to stdout by mistake: such a line is no message.
                _log.debug("MCP server %s wrote a line that is no message: %.200r", self._name, line[:200])


class _Writer(_Stream):
    """Writes messages to a server's stdin."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._stdin = cast(asyncio.StreamWriter, process.stdin)

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message. From here on it may have been read."""
        from anyio import BrokenResourceError

        data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if self._stdin.is_closing():
            raise BrokenResourceError
        if (attempt := ATTEMPT.get()) is not None:
            attempt.is_written = True
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except (ConnectionError, RuntimeError) as error:
            raise BrokenResourceError from error
