"""Load on a server over raw sockets, which costs the least in the process that measures."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

HOST = b"host: localhost\r\n"


class Peer:
    """A kept-alive connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> bytes:
        """Send a request and read the body of its reply."""
        self.writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        size = int(head.partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
        body = await self.reader.readexactly(size)
        if not head.startswith(b"http/1.1 20"):
            raise AssertionError((head + body).decode())
        return body

    async def events(self, request: bytes) -> AsyncIterator[bytes]:
        """The lines of a stream, to its end."""
        self.writer.write(request)
        while line := await self.reader.readline():
            yield line
            if line == b"event: end\n":
                return


@asynccontextmanager
async def connect(port: int) -> AsyncIterator[Peer]:
    """Connect to a server on loopback."""
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))
    try:
        yield peer
    finally:
        peer.writer.close()


def post(path: str, body: bytes) -> bytes:
    """A request that creates something."""
    head = b"POST " + path.encode() + b" HTTP/1.1\r\n" + HOST + b"content-type: application/json\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def get(path: str) -> bytes:
    """A request that reads something."""
    return b"GET " + path.encode() + b" HTTP/1.1\r\n" + HOST + b"\r\n"


async def rate(port: int, request: bytes, seconds: float, connections: int = 8) -> float:
    """Requests per second on a number of connections."""
    done, until = 0, time.perf_counter() + seconds

    async def work() -> None:
        nonlocal done
        async with connect(port) as peer:
            while time.perf_counter() < until:
                await peer.ask(request)
                done += 1

    start = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    return done / (time.perf_counter() - start)


def middle(values: list[float]) -> float:
    """The median."""
    return statistics.median(values)
