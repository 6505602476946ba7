"""Types: pyright in strict mode infers outputs and dependencies, and rejects code that gets them wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXPECTED = re.compile(r"# error: (\w+)$")


@pytest.fixture(scope="module")
def reported() -> dict[str, dict[int, str]]:
    """The errors of pyright for the snippets, by file and line. It runs once: it takes seconds."""
    command = [sys.executable, "-m", "pyright", "-p", str(HERE), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, dict[int, str]] = {"accepted.py": {}, "rejected.py": {}}
    for entry in json.loads(done.stdout)["generalDiagnostics"]:
        lines = found[Path(entry["file"]).name]
        lines[entry["range"]["start"]["line"] + 1] = entry.get("rule", entry["message"])
    return found


def test_right_code_is_accepted_and_inferred(reported: dict[str, dict[int, str]]) -> None:
    assert reported["accepted.py"] == {}


def test_wrong_code_is_rejected_where_expected(reported: dict[str, dict[int, str]]) -> None:
    lines = (HERE / "rejected.py").read_text().splitlines()
    expected = {number: found[1] for number, line in enumerate(lines, 1) if (found := EXPECTED.search(line))}
    assert len(expected) >= 10
    assert reported["rejected.py"] == expected
