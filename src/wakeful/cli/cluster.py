"""A cluster on one machine: Postgres, NATS, a server and workers."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from ..errors import UsageError
from .engines import Engines, Folder, need_extras, open_folder
from .processes import Guard, Part, Spec, Stopping
from .render import Renderer

__all__ = ["Order", "check_port", "need_extras", "run_cluster"]

_WORKS = re.compile(r"^worker \S+ runs ")
_HEALTH = re.compile(r"^health: (http://\S+)/healthz")
_SERVES = re.compile(r"^ctrl-C stops it")
_URL = re.compile(r" at (https?://[^/\s]+)")


class Order(Struct, frozen=True, kw_only=True):
    """The options of a cluster."""

    target: str
    workers: int
    concurrency: int
    port: int
    grace: float


def check_port(port: int) -> None:
    """Refuse a port that the server can't bind."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # The server sets it, too.
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(
                f"the server can't listen on port {port} ({error.strerror}): give another --port, or 0 for one "
                "that is free"
            ) from error


def run_cluster(renderer: Renderer, order: Order, data: Path, *, fresh: bool) -> None:
    """Run a cluster with its data in a folder, until a signal comes."""
    folder = open_folder(data, fresh=fresh)
    try:
        asyncio.run(_up(renderer, folder, order))
    finally:
        folder.close()


async def _up(renderer: Renderer, folder: Folder, order: Order) -> None:
    def say(name: str, line: str) -> None:
        if name:
            renderer.line(f"{name:<{width}} │ {line}")
        else:
            renderer.warn(line)

    width = len(f"worker-{order.workers}")
    stopping, engines = Stopping(), Engines(folder, order.workers)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopping.signalled)
    guard = Guard(folder.lock)
    # A row starts once the rows above are ready, and stops once the rows below have ended.
    tiers: list[list[Part]] = []
    try:
        for specs in (
            [engines.postgres],
            [engines.nats],
            [lambda: _server(engines, order)],
            [lambda n=n: _worker(engines, order, n) for n in range(1, order.workers + 1)],
        ):
            tiers.append([Part(spec(), stopping, guard, say) for spec in specs])
            await _started(tiers[-1])
            if stopping.asked.is_set():
                return
        _tell(renderer, folder, engines, tiers)
        await asyncio.gather(*[part.keep() for tier in tiers for part in tier])
    finally:
        stopping.asked.set()
        renderer.interrupted()
        renderer.note(f"stopping; workers have {order.grace:g} s; ctrl-C again stops at once")
        for tier in reversed(tiers):
            await asyncio.gather(*[part.stop() for part in tier])
        guard.close()
        renderer.note(f"all is stopped; the data is in {folder.path}")


async def _started(parts: Sequence[Part]) -> None:
    """Start parts together, and wait for all before the first failure is raised."""
    ends = await asyncio.gather(*[part.start() for part in parts], return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end


def _server(engines: Engines, order: Order) -> Spec:
    return Spec(
        name="server",
        command=_command("serve", order.target, "--port", str(order.port or "{port}"), "--no-workers"),
        ready_line=_SERVES,
        shows=_URL,
        env=_environment(engines),
        grace=20.0,
    )


def _worker(engines: Engines, order: Order, number: int) -> Spec:
    options = (
        "--concurrency",
        str(order.concurrency),
        "--grace",
        str(order.grace),
        "--health",
        "127.0.0.1:{port}",
    )
    return Spec(
        name=f"worker-{number}",
        command=_command("worker", order.target, *options),
        ready_line=_WORKS,
        shows=_HEALTH,
        env=_environment(engines),
        grace=order.grace + 10,
    )


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "wakeful.cli", *words]


def _environment(engines: Engines) -> Mapping[str, str]:
    return {"WAKEFUL_STORE": engines.store, "WAKEFUL_BUS": engines.bus, "PYTHONUNBUFFERED": "1"}


def _tell(renderer: Renderer, folder: Folder, engines: Engines, tiers: Sequence[Sequence[Part]]) -> None:
    """Print the addresses of all parts."""
    renderer.line("the cluster is up", "bold")
    (server,), workers = tiers[2], tiers[3]
    places = {
        "store": engines.store,
        "psql": shlex.join([engines.psql, engines.store]),
        "bus": engines.bus,
        "server": server.address,
        **{part.spec.name: f"{part.address}/healthz, /readyz, /metrics" for part in workers},
        "data": str(folder.path),
        "logs": ", ".join(map(str, engines.logs)),
    }
    for name, place in places.items():
        renderer.line(f"  {name:<10}{place}")
    renderer.note("ctrl-C takes it down")
