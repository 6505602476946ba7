"""Measure the HTTP server: requests per second, delta latency, events per second, and memory of open streams."""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.http.load import Peer, connect, get, middle, post, rate
from benchmarks.http.served import KINDS, runtime
from wakeful.events import TextDelta

MANY = 20_000
TARGETS = {"create ratio": ">= 0.5", "added latency p50": "<= 2 ms", "memory of a stream": "<= 40 KB"}


@contextmanager
def server(kind: str, folder: Path) -> Iterator[tuple[int, int]]:
    """A server process: its port and its process id."""
    command = [sys.executable, "-m", "benchmarks.http.served", kind, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process.pid
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def body(count: int, pause: float = 0, **fields: Any) -> bytes:
    """A request for a run that streams this many deltas."""
    return msgspec.json.encode({"agent": "clock", "input": f"{count} {pause}", **fields})


async def requests(folder: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Create and read, wakeful and bare in turns; the ratios are medians of the rounds."""
    kinds = {kind: (folder / kind) for kind in KINDS}
    rates: dict[str, list[float]] = {f"{what} {kind}": [] for what in ("create", "read") for kind in kinds}
    for path in kinds.values():
        path.mkdir()
    with ExitStack() as stack:
        ports = {kind: stack.enter_context(server(kind, path))[0] for kind, path in kinds.items()}
        reads: dict[str, bytes] = {}
        for kind, port in ports.items():
            async with connect(port) as peer:
                made = msgspec.json.decode(await peer.ask(post("/v1/runs", body(1))))
                if kind == "runs":
                    await peer.ask(get(f"/v1/runs/{made['run_id']}/result?wait=30"))
                    reads[kind] = get(f"/v1/runs/{made['run_id']}")
                elif kind == "bare":
                    reads[kind] = get(f"/v1/runs/{made['id']}")
        for _ in range(rounds):
            for kind, request in reads.items():
                rates[f"read {kind}"].append(await rate(ports[kind], request, seconds))
            for kind, port in ports.items():
                rates[f"create {kind}"].append(await rate(port, post("/v1/runs", body(1)), seconds))
    found: dict[str, Any] = {f"{name} /s": round(middle(each)) for name, each in rates.items() if each}
    for what, kind in (("create", "enqueues"), ("create", "runs"), ("read", "runs")):
        pairs = zip(rates[f"{what} {kind}"], rates[f"{what} bare"], strict=True)
        found[f"{what} ratio ({kind} / bare)"] = round(middle([ours / theirs for ours, theirs in pairs]), 2)
    return found


async def _start(peer: Peer, count: int, pause: float) -> str:
    return msgspec.json.decode(await peer.ask(post("/v1/runs", body(count, pause))))["run_id"]


def _delays(text: str, at: float) -> list[float]:
    return [at - float(each) for each in text.split()]


async def deltas(folder: Path, count: int) -> dict[str, Any]:
    """The age of each delta when its reader has it: in the process of the run, and over HTTP."""
    inside: list[float] = []
    async with runtime(None) as local:
        async for event in local.stream("clock", f"{count} 0.002"):
            if isinstance(event, TextDelta):
                inside += _delays(event.delta, time.monotonic())
    outside: list[float] = []
    with server("runs", folder) as (port, _):
        async with connect(port) as asking, connect(port) as reading:
            run = await _start(asking, count, 0.002)
            kind = b""
            async for line in reading.events(get(f"/v1/runs/{run}/events")):
                if line.startswith(b"event: "):
                    kind = line
                elif line.startswith(b"data: ") and kind == b"event: text_delta\n":
                    at = time.monotonic()
                    outside += _delays(msgspec.json.decode(line[6:])["delta"], at)
            seconds, events = await _read_all(reading, MANY)
    added = (middle(outside) - middle(inside)) * 1000
    return {
        "delta in process p50 ms": round(middle(inside) * 1000, 2),
        "delta over HTTP p50 ms": round(middle(outside) * 1000, 2),
        "added latency p50 ms": round(added, 2),
        "SSE events /s": round(events / seconds),
        "deltas /s over HTTP": round(MANY / seconds),
    }


async def _read_all(reading: Peer, count: int) -> tuple[float, int]:
    """Seconds to start a run that streams this many deltas and to read it, and the events that it took."""
    start, events, size = time.perf_counter(), 0, 0
    async for line in reading.events(post("/v1/runs:stream", body(count))):
        if line.startswith(b"data: "):
            events += 1
            if b'"text_delta"' in line:
                size += len(msgspec.json.decode(line[6:])["delta"].split())
    if not size:
        raise AssertionError("no delta came")
    return time.perf_counter() - start, events


def _rss_kb(process: int) -> int:
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


async def streams(folder: Path, count: int) -> dict[str, Any]:
    """The memory of the server for each open stream of a thread."""
    with server("runs", folder) as (port, process):
        async with AsyncExitStack() as stack:
            asking = await stack.enter_async_context(connect(port))
            made = msgspec.json.decode(await asking.ask(post("/v1/runs", body(1, wait=30))))
            path = f"/v1/threads/{made['thread_id']}/events?after=0"

            async def follow() -> None:
                peer = await stack.enter_async_context(connect(port))
                async for line in peer.events(get(path)):
                    if line == b"event: run_finish\n":
                        return

            for _ in range(20):
                await follow()
            before = _rss_kb(process)
            for _ in range(count):
                await follow()
            return {f"KB a stream ({count} open)": round((_rss_kb(process) - before) / count, 1)}


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Take all measures."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        found |= await requests(Path(folder), arguments.rounds, arguments.seconds)
        for name, work in (("deltas", deltas), ("streams", streams)):
            (Path(folder) / name).mkdir()
            found |= await work(Path(folder) / name, arguments.deltas if name == "deltas" else arguments.streams)
    return found


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of requests; default: 5")
    parser.add_argument("--seconds", type=float, default=2, help="of each; default: 2")
    parser.add_argument("--deltas", type=int, default=500, help="deltas whose latency counts; default: 500")
    parser.add_argument("--streams", type=int, default=1000, help="open streams; default: 1,000")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    arguments = parser.parse_args(argv)
    found = asyncio.run(measure(arguments))
    for name, value in found.items():
        print(f"{name:36} {value:>12,}")
    print("targets: " + ", ".join([f"{name} {bound}" for name, bound in TARGETS.items()]))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
