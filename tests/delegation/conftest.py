"""Stores for trees of runs; a test reopens them for a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wakeful import MemoryStore

Place = Callable[[], Any]


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Opens the same store again and again."""
    if request.param == "sqlite":
        return lambda: str(tmp_path / "store.db")
    store = MemoryStore()
    return lambda: store
