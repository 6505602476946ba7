"""Bare NATS requests between two processes, the floor of dispatch over the bus."""

import asyncio
import sys
import time

import nats

SUBJECT = "bench.echo"


async def round_trips(url: str, count: int) -> list[float]:
    """The seconds of requests, one after the other."""
    other = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.workers.echo",
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    connection = await nats.connect(url)
    try:
        assert other.stdout is not None
        await other.stdout.readline()
        found: list[float] = []
        for _ in range(count + 20):
            start = time.perf_counter()
            await connection.request(SUBJECT, b"go", timeout=10)
            found.append(time.perf_counter() - start)
        return found[20:]
    finally:
        await connection.close()
        await other.communicate(b"")


async def _answer(url: str) -> None:
    connection = await nats.connect(url)

    async def reply(message: nats.aio.msg.Msg) -> None:
        await message.respond(message.data)

    await connection.subscribe(SUBJECT, cb=reply)
    await connection.flush()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await connection.close()


if __name__ == "__main__":
    asyncio.run(_answer(sys.argv[1]))
