"""Ten thousand idle connections: bounded memory, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

COUNT = 10_000
# Both ends of each connection are files, here in two processes.
FILES = COUNT + 500
SERVER = """
import sys, uvicorn
from wakeful import Agent, Runtime, ScriptedModel
from wakeful.server import ServerLimits, app, http_protocol

class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)

limits = ServerLimits(connections=20_000, header_seconds=300)
served = app(Runtime([Agent("desk", model=ScriptedModel([]))]), limits=limits)
Server(uvicorn.Config(served, port=0, log_level="error", backlog=4096, http=http_protocol(limits))).run()
"""


@contextmanager
def server() -> Iterator[tuple[int, int]]:
    process = Popen([sys.executable, "-c", SERVER], stdout=PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def rss_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


async def reads(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v1/agents HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    found = await reader.read()
    writer.close()
    return found.partition(b"\r\n")[0]


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
async def test_idle_connections_cost_little_and_others_are_served() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        pytest.skip(f"a process may have {hard} open files here, and the test needs {FILES}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    writers: list[asyncio.StreamWriter] = []
    try:
        with server() as (port, pid):
            assert await reads(port) == b"HTTP/1.1 200 OK"
            before = rss_kb(pid)
            for number in range(COUNT):
                writers.append((await asyncio.open_connection("127.0.0.1", port))[1])
                if number % 2:
                    writers[-1].write(b"GET /v1/agents HTTP/1.1\r\nhost: loc")  # Half a header.
            assert await reads(port) == b"HTTP/1.1 200 OK"
            each = (rss_kb(pid) - before) / COUNT
            assert each < 32, f"{each:.1f} KB for a connection"
            for writer in writers:
                writer.transport.abort()
            await asyncio.sleep(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
