"""Clients that are npm packages: installed once for each lock file, and driven by lines of JSON.

A folder in `tests/clients` has a `package.json`, its lock file and scripts. The packages are installed outside the
repository, under a name with the hash of both files, so that any number of test processes share them.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

__all__ = ["NodeClient", "node_client", "run_example"]

FOLDER = Path(__file__).parent / "clients"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "wakeful-clients"
INSTALL = ("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=optional", "--loglevel=error")
# A line may have a whole recorded stream.
LINE_BYTES = 16 * 1024 * 1024


def installed(name: str) -> Path:
    """The folder of a client's packages; skips the test where they can't be installed."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm and Node.js aren't installed; this test drives a client from npm")
    files = [FOLDER / name / file for file in ("package.json", "package-lock.json", ".npmrc")]
    digest = sha256(b"".join([file.read_bytes() for file in files])).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    ready = CACHE / f"{name}-{digest}"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            half = CACHE / f"{name}-{digest}.half"
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir()
            for file in files:
                shutil.copy(file, half)
            done = subprocess.run(INSTALL, cwd=half, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"npm can't install the packages of tests/clients/{name}: {done.stderr[-300:]}")
            half.rename(ready)
    return ready


class NodeClient:
    """A script in a Node.js process: it reads commands as lines, and prints a line for each."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, do: str, **arguments: Any) -> Any:
        """Send a command and return its answer; raises `AssertionError` with what the script threw."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        line = await self._process.stdout.readline()
        assert line, "the script ended"
        answer = json.loads(line)
        assert "threw" not in answer, answer["threw"]
        return answer["value"]


async def _prepare(packages: str, folder: Path) -> None:
    """Put the packages of a client into a folder."""
    ready = await asyncio.to_thread(installed, packages)
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(ready / "node_modules")
        (folder / "package.json").write_text('{"type": "module"}')


async def run_example(packages: str, page: str, url: str, folder: Path) -> str:
    """Run the first JavaScript block of a page with its server at another address; returns what it prints."""
    await _prepare(packages, folder)
    source = (FOLDER.parents[1] / "docs" / page).read_text().partition("```js\n")[2].partition("```")[0]
    (folder / "example.mjs").write_text(source.replace("http://localhost:8000", url))
    process = await asyncio.create_subprocess_exec(
        "node", "example.mjs", cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode().strip()


@asynccontextmanager
async def node_client(packages: str, script: str, folder: Path) -> AsyncIterator[NodeClient]:
    """Start a script of `tests/clients` with the packages of one of its folders."""
    await _prepare(packages, folder)
    for source in FOLDER.glob("*.mjs"):
        shutil.copy(source, folder)
    process = await asyncio.create_subprocess_exec(
        "node", script, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=LINE_BYTES
    )
    try:
        yield NodeClient(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        if process.returncode is None:
            process.kill()
        await process.wait()
        for thread in [each for each in threading.enumerate() if each.name.startswith("asyncio-waitpid")]:
            await asyncio.to_thread(thread.join)  # It ends just after the process.
