"""The tables of models.md are what the adapters declare."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_model_tables_are_up_to_date() -> None:
    tables = runpy.run_path(str(ROOT / "tools/model_tables.py"))
    for path in tables["PAGES"]:
        page = path.read_text()
        assert tables["page"](page) == page, "run python tools/model_tables.py"
