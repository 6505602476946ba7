"""The overhead of model adapters over their vendors' SDKs, against a wire server in another process."""

import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.envs import ROOT
from benchmarks.measures import PROMPT, Measure
from benchmarks.timing import pace, summary

# The number of open streams for the memory measurement.
OPEN = 20

_SERVER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from wire_script import Says, Script
from wire_server import WireServer
from wire_vendors import VENDORS

async def serve():
    codec = next(codec for codec in VENDORS if codec.name == sys.argv[2])
    parts = [f"word-{n} " for n in range(int(sys.argv[3]))]
    reply = codec.answer(Script([Says(parts)]))
    async with WireServer(answer=lambda request: reply) as server:
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(serve())
"""


class Streams(NamedTuple):
    """One streamed answer, by the SDK alone and through wakeful's model. `close` closes both."""

    bare: Callable[[], AsyncIterator[str]]
    ours: Callable[[], AsyncIterator[str]]
    close: Callable[[], Awaitable[None]]


@contextmanager
def wire_server(vendor: str, deltas: int) -> Iterator[str]:
    """Run a wire server of a vendor; yields its URL."""
    command = [sys.executable, "-c", _SERVER, str(ROOT / "tests" / "wire"), vendor, str(deltas)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip()  # pyright: ignore
        finally:
            server.stdin.close()  # pyright: ignore


async def models(module: ModuleType, measure: Measure) -> dict[str, Any]:
    """Measure the CPU time of a delta through wakeful's model; its rounds alternate with those of the bare SDK."""
    vendor = measure.name.removeprefix("models-")
    with wire_server(vendor, measure.plan.deltas) as url:
        streams: Streams = getattr(module, measure.entry)(url, PROMPT)
        try:
            return await _measure(streams, measure)
        finally:
            await streams.close()


async def _measure(streams: Streams, measure: Measure) -> dict[str, Any]:
    bare, ours, paces = [], [], []
    end = time.perf_counter() + measure.budget_s
    await _round(streams.bare, measure)
    await _round(streams.ours, measure)
    while len(ours) < 2 or (len(ours) < measure.rounds and time.perf_counter() < end):
        bare.append(await _round(streams.bare, measure))
        ours.append(await _round(streams.ours, measure))
        paces.append(pace())
    per_piece = summary([cpu for cpu, _ in ours])
    bare_us = statistics.median([cpu for cpu, _ in bare]) * 1e6
    first = statistics.median([first for _, first in ours])
    return {
        **per_piece,
        "bare_us": round(bare_us, 3),
        "overhead": round(per_piece["median_us"] / bare_us - 1, 3),
        "first_ratio": round(first / statistics.median([first for _, first in bare]), 3),
        "stream_kb_bare": await _memory(streams.bare),
        "stream_kb": await _memory(streams.ours),
        "pace_us": round(statistics.median(paces) * 1e6, 1),
    }


async def _round(answer: Callable[[], AsyncIterator[str]], measure: Measure) -> tuple[float, float]:
    """CPU seconds for a delta, and elapsed seconds to the first."""
    gc.collect()
    pieces: list[str] = []
    start, cpu, first = time.perf_counter(), time.process_time(), 0.0
    async for piece in answer():
        if not pieces:
            first = time.perf_counter() - start
        pieces.append(piece)
    spent = time.process_time() - cpu
    if pieces != measure.plan.parts:
        raise AssertionError(f"received {json.dumps(pieces)[:200]}")
    return spent / len(pieces), first


async def _memory(answer: Callable[[], AsyncIterator[str]]) -> float:
    """KB of one open stream, including its connection."""
    streams = [answer() for _ in range(OPEN)]
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    await asyncio.gather(*[anext(stream) for stream in streams])
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for stream in streams:
        async with aclosing(stream):  # pyright: ignore
            pass
    return round((after - before) / OPEN / 1024, 1)


MODELS = {"models_openai": models, "models_openai_chat": models, "models_anthropic": models}
