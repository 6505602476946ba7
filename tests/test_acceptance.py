"""The page of acceptance rows and the tests that prove them agree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent


def listed() -> dict[str, set[str]]:
    """The tests of each row, as the page lists them."""
    rows = re.findall(
        r"^\| (\d+\.\d+) \| .+? \| (.+?) \| .*\|$", (TESTS / "ACCEPTANCE.md").read_text(), re.MULTILINE
    )
    return {row: set(re.findall(r"`(\w+)`", names)) for row, names in rows}


def written() -> dict[str, set[str]]:
    """The tests of each row, by their names. A name may have two rows: `test_seed_4_9_and_10_…`."""
    found: dict[str, set[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_seed_"):
                match = re.match(r"test_seed_(\d+)_(\d+)_(?:and_(\d+)_)?", node.name)
                assert match is not None, f"{path.name}: {node.name} names no row"
                for row in filter(None, match.groups()[1:]):
                    found.setdefault(f"{match[1]}.{row}", set()).add(node.name)
    return found


def test_page_lists_every_row_with_its_tests() -> None:
    assert len(listed()) == 109
    assert listed() == written()
