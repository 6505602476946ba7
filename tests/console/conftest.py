"""The console in a browser: a build of these sources, and one browser for each test process.

Where Node, npm or a library of the browser is missing, the tests are skipped, and say what is missing.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from examples.console_demo.agents import make_runtime
from examples.console_demo.examples import fill
from tools.build_console import CONSOLE, ConsoleUnavailable, build

from console.browser import Browser, BrowserError
from console.serving import Shop, serve_console


@pytest.fixture(scope="session")
def built() -> None:
    """Build the console, unless it is built from these sources."""
    try:
        build()
    except ConsoleUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def chromium(built: None) -> Iterator[Browser]:
    with (CONSOLE / ".build.lock").open("w") as lock:  # One process unpacks the browser.
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["node", "tools/browser.mjs", "--path"], cwd=CONSOLE, check=True, capture_output=True)
    try:
        started = Browser()
    except BrowserError as error:
        pytest.skip(f"the browser doesn't start: {error}")
    yield started
    started.close()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """A browser without a tab."""
    yield chromium
    chromium.command(close=True)


@pytest.fixture(scope="session")
def shop(built: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A server of the demo's store, with an example of everything. Tests that share it only read."""
    store = str(tmp_path_factory.mktemp("shop") / "shop.db")
    crash = [sys.executable, "-m", "examples.console_demo", "--crash", store]
    subprocess.run(crash, env={**os.environ, "CONSOLE_DEMO_CRASH": "1"}, check=False)
    with serve_console(lambda: make_runtime(store)) as served:
        yield Shop(served, served.do(fill(served.runtime)))
