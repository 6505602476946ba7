"""`wakeful up`: a cluster on one machine, with real engines, until ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..stores.factory import replace_store
from .exit_codes import reported
from .render import Renderer
from .target import load_runtime
from .worker import CONCURRENCY, GRACE, Concurrency, Grace

__all__ = ["up"]


def up(
    target: Annotated[str, typer.Argument(metavar="MODULE:RUNTIME", show_default=False)],
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="How many workers.")] = 4,
    concurrency: Concurrency = CONCURRENCY,
    data: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where Postgres and NATS keep what they hold.")
    ] = Path(".wakeful"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what the last cluster held.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The server's port; 0 for one that is free.")] = 8000,
    grace: Grace = GRACE,
) -> None:
    """Start Postgres, NATS, a server and workers on this machine.

    They replace the runtime's own store and bus. The data is kept for the next
    start. Ctrl-C stops the cluster in order; a second one stops it at once.
    """
    renderer = Renderer()
    with reported(renderer):
        from .cluster import Order, check_port, need_extras, run_cluster  # Its imports need POSIX.

        # Report all problems before anything starts.
        need_extras()
        with replace_store(None):
            load_runtime(target)
        check_port(port)
        order = Order(target=target, workers=workers, concurrency=concurrency, port=port, grace=grace)
        run_cluster(renderer, order, data or Path(".wakeful"), fresh=fresh)
