"""`wakeful worker`: a process that claims and executes due runs."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Annotated

import typer
from msgspec.structs import replace

from ..errors import UsageError
from ..extensions.telemetry.worker_metrics import report
from ..runtime import Runtime
from .exit_codes import ExitCode, reported
from .health import Health
from .logs import show_log
from .render import Renderer
from .target import load_runtime

__all__ = ["BusUrl", "Concurrency", "Grace", "StoreUrl", "as_worker", "worker"]

GRACE = 30.0
CONCURRENCY = 16

Concurrency = Annotated[int, typer.Option(min=1, metavar="N", help="How many runs it has at once.")]
# URLs may contain passwords, and a process list doesn't show the environment.
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", envvar="WAKEFUL_STORE", help="Another store than the runtime's."),
]
BusUrl = Annotated[
    str | None,
    typer.Option("--bus", metavar="URL", envvar="WAKEFUL_BUS", help="Another bus: nats://... or postgres://..."),
]
Grace = Annotated[float, typer.Option(min=0, metavar="S", help="Seconds that open steps have when it is stopped.")]


def worker(
    target: Annotated[str, typer.Argument(metavar="MODULE:RUNTIME", show_default=False)],
    concurrency: Concurrency = CONCURRENCY,
    store: StoreUrl = None,
    bus: BusUrl = None,
    agents: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="The agents it runs, and tasks as task:NAME; all by default."),
    ] = None,
    grace: Grace = GRACE,
    health: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Answer /healthz, /readyz and /metrics there.")
    ] = "",
) -> None:
    """Claim due runs and execute them, until SIGTERM or ctrl-C.

    Then it claims nothing more, lets open steps finish, and hands the rest
    over to other workers. A second signal stops it at once.
    """
    renderer = Renderer()
    with reported(renderer):
        names = None if agents is None else [name.strip() for name in agents.split(",") if name.strip()]
        runtime = as_worker(load_runtime(target, store), bus, names, concurrency)
        if not runtime.store.durable:
            raise UsageError(
                "a worker shares its store with other processes, and this runtime's is in memory: give --store, "
                "such as --store app.db or --store postgres://user@host/database"
            )
        address = address_of(health) if health else None
        cut = asyncio.run(_work(renderer, runtime, grace, address))
    if cut is None:
        raise typer.Exit(ExitCode.ERROR)


def as_worker(
    runtime: Runtime,
    bus: str | None,
    agents: list[str] | None,
    concurrency: int | None,
    *,
    execute: bool = True,
) -> Runtime:
    """The runtime with a limit of concurrent runs, on this bus."""
    capacity = (
        runtime.workers.capacity if concurrency is None else replace(runtime.workers.capacity, running=concurrency)
    )
    return runtime.as_worker(bus=bus or None, agents=agents, capacity=capacity, execute=execute)


def address_of(text: str) -> tuple[str, int]:
    """The address of the health endpoint; loopback if only a port is given."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text!r} isn't HOST:PORT; write 127.0.0.1:9000, or :9000 for loopback")
    return host.strip("[]") or "127.0.0.1", int(port)


async def _work(renderer: Renderer, runtime: Runtime, grace: float, address: tuple[str, int] | None) -> int | None:
    """Work until a signal comes; returns the number of runs cut off."""
    show_log()
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    health = Health(runtime)
    report(runtime.workers.metrics)

    def stop() -> None:
        if stopping.is_set():
            renderer.warn("stopped at once; other workers recover what ran here")
            os._exit(ExitCode.ERROR)
        stopping.set()

    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop)
    try:
        if address is not None:
            renderer.note(f"health: {await health.listen(*address)}/healthz")
        async with runtime:
            health.ready = True
            renderer.line(f"worker {runtime.workers.id} runs {', '.join(runtime.workers.agents)}", "bold")
            await stopping.wait()
            health.ready = False
            renderer.note(f"draining: open steps have {grace:g} s; a second signal stops at once")
            cut = await runtime.workers.drain(grace)
            for one in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(one, lambda: None)  # Further signals change nothing.
            renderer.note("drained" if not cut else f"drained; {cut} were cut off, and are recovered elsewhere")
        return cut
    finally:
        await health.close()
