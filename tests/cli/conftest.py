"""Ways to drive the command: in this process, and as the real one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cli_process import HERE, Process
from typer.testing import CliRunner, Result


@pytest.fixture
def wakeful(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command in this process: `wakeful("run", "sample:make", ...)`."""
    from wakeful.cli.app import app

    monkeypatch.chdir(HERE)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def invoke(*arguments: str, input: str = "") -> Result:
        return CliRunner().invoke(app, arguments, input=input, catch_exceptions=False)

    return invoke


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Start the real command: stdin and stdout are pipes unless said otherwise, stderr joins stdout."""
    started: list[Process] = []

    def make(*arguments: str, **streams: Any) -> Process:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(Process(arguments, **{**pipes, **streams}))
        return started[-1]

    yield make
    for process in started:
        process.close()
