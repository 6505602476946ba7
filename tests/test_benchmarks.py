"""The measures that are ours alone to take can be taken; what they come to is not for tests to say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks import _delegation, _models
from benchmarks._measures import MEASURES, Measure
from benchmarks.contenders import wakeful, wakeful_models, wakeful_sqlite


def short(name: str) -> Measure:
    return replace(next(m for m in MEASURES if m.name == name), rounds=2, budget_s=0)


async def test_the_call_of_another_agent_is_measured() -> None:
    row = await _delegation.delegation(wakeful, short("delegation"))
    assert row["n"] == 2
    assert row["delegated_us"] > 0


async def test_the_call_of_a_durable_agent_is_measured(tmp_path: Path) -> None:
    place = SimpleNamespace(address=str(tmp_path / "bench.db"))
    row = await _delegation.durable_delegation(wakeful_sqlite, short("delegation-durable"), place)
    assert row["transactions_child"] > row["transactions_direct"]


async def test_a_cancelled_tree_leaves_nothing_in_memory() -> None:
    row = await _delegation.cancel_tree(wakeful, short("cancel-tree"))
    assert (row["left"], row["abandoned"]) == (0, 0)


async def test_a_cancelled_tree_leaves_nothing_on_sqlite(tmp_path: Path) -> None:
    place = SimpleNamespace(address=str(tmp_path / "bench.db"))
    row = await _delegation.cancel_tree(wakeful_sqlite, short("cancel-tree"), place)
    assert (row["left"], row["abandoned"]) == (0, 0)


@pytest.mark.parametrize("vendor", ["openai", "openai-chat", "anthropic"])
async def test_what_a_model_adds_to_its_sdk_is_measured(vendor: str) -> None:
    row = await _models.models(wakeful_models, short(f"models-{vendor}"))
    assert row["n"] == 2
    assert row["bare_us"] > 0
    assert row["stream_kb"] > 0
