"""Phoenix, an OTLP back end, reads our spans: it runs from PyPI in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from free_ports import free_port

ROOT = Path(__file__).parents[3]
ENV = ROOT / ".envs" / "phoenix"
SAMPLE = Path(__file__).with_name("phoenix_sample.py")
PACKAGES = ("arize-phoenix>=20,<21", "msgspec>=0.20,<0.23")
INSTALL_SECONDS = 900
START_SECONDS = 240


def python() -> str:
    """The interpreter of Phoenix's environment, which is made on first use."""
    found, mark = ENV / "bin" / "python", ENV / ".ready"
    if not mark.exists():
        commands = [sys.executable, "-m", "venv", str(ENV)], [str(found), "-m", "pip", "install", "-q", *PACKAGES]
        try:
            for command in commands:
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        except (subprocess.SubprocessError, OSError) as error:
            reason = str(getattr(error, "stderr", "") or error).strip()
            pytest.skip(f"Phoenix can't be installed here: {reason[-300:]}")
        mark.touch()
    return str(found)


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:
        body = response.read()
    return json.loads(body) if body.startswith(b"{") else body


def until(condition: Callable[[], Any], process: subprocess.Popen[bytes], log: Path) -> Any:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            if found := condition():
                return found
        except (urllib.error.URLError, OSError):
            pass
        assert process.poll() is None, log.read_text()[-2000:]
        time.sleep(0.2)
    raise AssertionError(f"Phoenix isn't ready:\n{log.read_text()[-2000:]}")


@pytest.fixture
def phoenix(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes], Path]]:
    port, log = free_port(), tmp_path / "log"
    own = {"HOST": "127.0.0.1", "PORT": port, "GRPC_PORT": free_port(), "WORKING_DIR": tmp_path}
    environment = {**os.environ, "PHOENIX_TELEMETRY_ENABLED": "false"}
    environment |= {f"PHOENIX_{name}": str(value) for name, value in own.items()}
    command = [python(), "-m", "phoenix.server.main", "serve"]
    with log.open("wb") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written, env=environment, cwd=tmp_path)
    try:
        yield f"http://127.0.0.1:{port}", process, log
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_phoenix_reads_agents_models_and_tools(phoenix: tuple[str, subprocess.Popen[bytes], Path]) -> None:
    url, process, log = phoenix
    until(lambda: get(f"{url}/healthz") is not None, process, log)
    environment, command = {**os.environ, "PYTHONPATH": str(ROOT / "src")}, [python(), str(SAMPLE), url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

    def exported() -> list[dict[str, Any]] | None:
        found = get(f"{url}/v1/projects/default/spans?limit=50")["data"]
        return found if len(found) == 4 else None

    spans = until(exported, process, log)
    kinds = {span["name"]: span["span_kind"] for span in spans}
    assert kinds == {"invoke_agent forecaster": "AGENT", "chat gpt-5": "LLM", "execute_tool weather": "TOOL"}
    assert {span["attributes"]["session.id"] for span in spans} == {"trip"}
    found = [span["attributes"].get("llm.token_count.total") for span in spans]
    assert sum(count or 0 for count in found) == 68  # As the model said, and nothing twice.
    (agent,) = [span for span in spans if span["span_kind"] == "AGENT"]
    below = [span["parent_id"] for span in spans if span is not agent]
    assert below == [agent["context"]["span_id"]] * 3
    (tool,) = [span for span in spans if span["span_kind"] == "TOOL"]
    assert tool["attributes"]["output.value"] == "Sunny in Rome"
