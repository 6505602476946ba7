"""Fill a store with living examples, and serve it with the web console on loopback until ctrl-C.

Usage: python -m examples.console_demo [FOLDER]
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import webbrowser
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn

from wakeful.server import app

from .agents import make_runtime
from .examples import crash, fill

PORT = 8000


async def serve(store: str) -> None:
    """Serve the shop, whose examples are made as soon as it runs."""
    runtime = make_runtime(store)
    config = uvicorn.Config(app(runtime), host="127.0.0.1", port=PORT, log_level="warning")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    async with runtime:
        places = await fill(runtime)
        url = f"http://127.0.0.1:{PORT}/console/"
        print(f"the console is at {url}; a run to begin with: {url}runs/{places['run']}")
        if os.environ.get("DISPLAY") or sys.platform in ("darwin", "win32"):
            webbrowser.open(url)
        await serving


def main(folder: Path) -> None:
    """Leave a run behind whose process died in the middle of a call, and serve the rest."""
    store = str(folder / "console.db")
    crashing = [sys.executable, "-m", "examples.console_demo", "--crash", store]
    subprocess.run(crashing, env={**os.environ, "CONSOLE_DEMO_CRASH": "1"}, check=False)
    asyncio.run(serve(store))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--crash"]:
        asyncio.run(crash(sys.argv[2]))
    elif sys.argv[1:]:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as made:
            main(Path(made))
