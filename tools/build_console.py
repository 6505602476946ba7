"""Build the web console with npm, unless it is built from the present sources.

Usage: python tools/build_console.py
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from wakeful.server.console import ASSETS
from wakeful.server.operations.document import document

__all__ = ["CONSOLE", "ConsoleUnavailable", "build", "needs"]

CONSOLE = Path(__file__).parent.parent / "console"
MODULES = CONSOLE / "node_modules"
# Vite's oldest release of Node.
NODE = (20, 19)
# Made from the others, or not part of the build.
MADE = ("node_modules/", "src/api/generated/", "openapi.json", ".build.lock")


class ConsoleUnavailable(Exception):
    """The console can't be built here: npm, Node or the packages are missing."""


def build() -> bool:
    """Install the packages, check the types and build. False if the present build is of these sources."""
    needs()
    with (CONSOLE / ".build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        api = json.dumps(document(), indent=1)
        digest = _digest(api)
        stamp = MODULES / ".wakeful-build"
        if (ASSETS / "index.html").exists() and _read(stamp) == digest:
            return False
        stamp.unlink(missing_ok=True)
        _install()
        (CONSOLE / "openapi.json").write_text(api)
        for step in ("generate", "check", "build"):
            _npm("run", "--silent", step)
        stamp.write_text(digest)
        return True


def needs() -> None:
    """Raise `ConsoleUnavailable` if Node or npm is missing or too old."""
    for name in ("node", "npm"):
        if shutil.which(name) is None:
            raise ConsoleUnavailable(f"the console needs Node and npm, and there is no {name} in PATH")
    text = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if tuple(map(int, text.removeprefix("v").split(".")[:2])) < NODE:
        raise ConsoleUnavailable(f"the console needs Node {NODE[0]}.{NODE[1]} or later, and this is {text}")


def _install() -> None:
    """Install the packages of the lock file, unless they are there."""
    locked = sha256((CONSOLE / "package-lock.json").read_bytes()).hexdigest()
    stamp = MODULES / ".wakeful-packages"
    if _read(stamp) == locked:
        return
    try:
        _npm("ci", "--no-audit", "--no-fund", "--loglevel=error")
    except subprocess.CalledProcessError as error:
        raise ConsoleUnavailable(f"npm ci failed: {error.stderr.strip()[-500:]}") from None
    stamp.write_text(locked)


def _npm(*arguments: str) -> None:
    done = subprocess.run(["npm", *arguments], cwd=CONSOLE, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise subprocess.CalledProcessError(done.returncode, ["npm", *arguments], done.stdout, done.stderr)


def _digest(api: str) -> str:
    found = sha256(api.encode())
    for path in sorted(CONSOLE.rglob("*")):
        name = path.relative_to(CONSOLE).as_posix()
        if path.is_file() and not name.startswith(MADE):
            found.update(f"\n{name}\n".encode() + path.read_bytes())
    return found.hexdigest()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    try:
        print("built the console" if build() else "the console is built from these sources already")
    except (ConsoleUnavailable, subprocess.CalledProcessError) as error:
        sys.exit(str(error))
