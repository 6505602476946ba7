"""The servers to measure, each in a process of its own: wakeful, and bare Starlette handlers on one SQLite table.

Usage: python -m benchmarks.http.served KIND FOLDER, which prints the port.
"""

import asyncio
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from wakeful import Agent, FunctionModel, ModelRequest, Runtime
from wakeful.models import Chunk, StopChunk, TextChunk
from wakeful.server import ServerLimits, app, http_protocol

KINDS = ("bare", "enqueues", "runs")
LIMITS = ServerLimits(streams=5000)


async def answer(request: ModelRequest) -> AsyncIterator[Chunk]:
    """Deltas with the time at which they were made: as many as the prompt says, with its pause between them."""
    count, pause = request.messages[-1].text.split()
    for _ in range(int(count)):
        await asyncio.sleep(float(pause))
        yield TextChunk(f"{time.monotonic():.7f} ")
    yield StopChunk("end_turn")


def runtime(folder: Path | None, *, execute: bool = True) -> Runtime:
    """An agent that streams what it is asked for."""
    store = None if folder is None else folder / "wakeful.db"
    return Runtime([Agent("clock", model=FunctionModel(answer))], store=store, execute=execute)


def bare(folder: Path) -> Starlette:
    """One row written and committed for each POST, and one read for each GET, as a web application does it."""
    database = sqlite3.connect(folder / "bare.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    async def create(request: Request) -> Response:
        made = database.execute("INSERT INTO runs (body) VALUES (?)", (await request.body(),))
        return Response(b'{"id": %d}' % (made.lastrowid or 0), 201, media_type="application/json")

    async def read(request: Request) -> Response:
        (body,) = database.execute("SELECT body FROM runs WHERE id = ?", (request.path_params["run"],)).fetchone()
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route("/v1/runs", create, methods=["POST"]), Route("/v1/runs/{run:int}", read)])


def served(kind: str, folder: Path) -> Any:
    """The application of this kind."""
    if kind == "bare":
        return bare(folder)
    return app(runtime(folder, execute=kind == "runs"), limits=LIMITS)


class _Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


if __name__ == "__main__":
    options: dict[str, Any] = {"log_level": "error", "http": http_protocol(LIMITS), "port": 0}
    _Server(uvicorn.Config(served(sys.argv[1], Path(sys.argv[2])), **options)).run()
