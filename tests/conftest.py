"""Fixtures of all tests."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "wakeful",
    deadline=None,
    max_examples=int(os.environ.get("WAKEFUL_EXAMPLES", "50")),
    derandomize="WAKEFUL_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("wakeful")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every async test of ours runs through the plugin that we ship, leak check included."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.add_marker(pytest.mark.wakeful)


@pytest.fixture(autouse=True)
def _forbid_live_models(no_live_models: None) -> None:
    """No test of ours calls a real model by accident."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests were skipped, and why, also if there are none."""
    skipped = terminalreporter.stats.get("skipped", [])
    terminalreporter.write_line(f"{len(skipped)} tests skipped")
    for reason, count in Counter([report.longrepr[2] for report in skipped]).most_common():
        terminalreporter.write_line(f"  {count}: {reason}")
