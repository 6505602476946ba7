"""The table of protocols is what the tests are, with the versions that they run."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_protocol_table_is_up_to_date() -> None:
    tables = runpy.run_path(str(ROOT / "tools/protocol_table.py"))
    text = tables["PAGE"].read_text()
    assert tables["page"](text) == text, "run python tools/protocol_table.py"
