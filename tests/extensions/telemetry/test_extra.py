"""Telemetry with and without its extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

from wakeful import Agent, Runtime, ScriptedModel
from wakeful.errors import ConfigurationError, UsageError
from wakeful.extensions.telemetry import Telemetry, trace_headers

WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
import wakeful
from wakeful.errors import ConfigurationError
from wakeful.extensions.telemetry import Telemetry, trace_headers
assert trace_headers() == {}
runtime = wakeful.Runtime([wakeful.Agent("a", model=wakeful.ScriptedModel(["hi"]))])
assert runtime.run_sync("a", "hi").text == "hi"
try:
    Telemetry()
except ConfigurationError as error:
    print(error)
"""


def test_missing_extra_is_refused_at_construction() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "'opentelemetry-api', which isn't installed: pip install 'wakeful[telemetry]'" in done.stdout


def test_telemetry_is_loaded_by_its_construction_alone() -> None:
    program = "import wakeful.extensions.telemetry, sys; print('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


async def test_unconfigured_telemetry_runs_and_traces_nothing() -> None:
    """The API alone has no exporter: its spans are empty."""
    seen: list[dict[str, str]] = []
    agent = Agent("a", model=ScriptedModel(["hi"]))
    result = await Runtime([agent], telemetry=Telemetry()).run("a", "hi")
    assert (result.text, seen, trace_headers()) == ("hi", [], {})


def test_wrong_telemetry_is_refused() -> None:
    agent = Agent("a", model=ScriptedModel([]))
    with pytest.raises(UsageError, match="telemetry must be a Telemetry"):
        Runtime([agent], telemetry=True)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="content is True, False or None"):
        Telemetry(content="yes")  # type: ignore[arg-type]
