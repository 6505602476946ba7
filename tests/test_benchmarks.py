"""The measures that are ours alone to take can be taken; what they come to is not for tests to say."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import delegation, durable, encoders, envs, long_threads, models, syncs
from benchmarks.contenders import (
    floor_msgspec,
    floor_sqlite,
    wakeful,
    wakeful_models,
    wakeful_protocols,
    wakeful_sqlite,
)
from benchmarks.databases import database
from benchmarks.harness import measure_import, measure_runs
from benchmarks.http import __main__ as http
from benchmarks.measures import MEASURES, Measure
from benchmarks.workers import profile
from benchmarks.workers.echo import round_trips
from benchmarks.workers.report import report
from benchmarks.workers.roster import CONTENDERS
from benchmarks.workers.servers import nats_server, postgres_server
from benchmarks.workers.session import Session, spread
from benchmarks.workers.setup import STEPS


def short(name: str) -> Measure:
    return replace(next(m for m in MEASURES if m.name == name), rounds=2, budget_s=0)


def test_every_measure_has_contenders() -> None:
    defined = set[str]().union(*[envs.entries(name) for name in envs.contenders()])
    assert [measure.name for measure in MEASURES if measure.entry not in defined] == []


async def test_hooks_are_measured() -> None:
    row = await measure_runs(wakeful, short("hooks-20"))
    assert row["median_us"] > 0


@pytest.mark.parametrize("protocol", ["agui", "aisdk"])
def test_encoder_is_measured_beside_bare_events(protocol: str) -> None:
    row = encoders.encoders(wakeful_protocols, short(f"encode-{protocol}"))
    assert row["share"] == pytest.approx(row["bare_us"] / row["median_us"], rel=0.1)


def test_import_measure_counts_names() -> None:
    row = measure_import("from wakeful import Agent, Runtime, tool", 1)
    assert row["median_us"] > row["package_us"] * 0.5 > 0


def test_slow_sync_can_be_simulated(tmp_path: Path) -> None:
    try:
        environ = syncs.delay_environ(1)
    except syncs.NoDelay as error:
        pytest.skip(str(error))
    file = tmp_path / "synced"
    code = (
        f"import os; file = os.open({str(file)!r}, os.O_CREAT | os.O_RDWR); os.write(file, b'x'); os.fsync(file)"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **environ}, check=True)
    assert file.read_bytes() == b"x"


async def test_delegated_call_is_measured() -> None:
    row = await delegation.delegation(wakeful, short("delegation"))
    assert row["n"] == 2
    assert row["delegated_us"] > 0


async def test_durable_child_is_measured(tmp_path: Path) -> None:
    place = SimpleNamespace(address=str(tmp_path / "bench.db"))
    row = await delegation.durable_delegation(wakeful_sqlite, short("delegation-durable"), place)
    assert row["transactions_child"] < 3  # Of its own and of its caller, together.


@pytest.mark.parametrize("module", [wakeful_sqlite, floor_sqlite])
async def test_conversation_measure_counts_added_bytes(module: Any) -> None:
    measure = replace(short("growth"), rounds=100, budget_s=60)
    with database("sqlite") as place:
        row = await durable.growth(module, measure, place)
        payload = 50 * (durable.MESSAGE_BYTES + len(measure.plan.text))
        assert row["empty_bytes"] > 0
        # The second fifty turns add as much as the first.
        added = (place.stored() - row["empty_bytes"]) / 2
        assert row["payload_ratio_50"] == pytest.approx(added / payload, rel=0.05)


async def test_cancelled_tree_leaves_nothing_in_memory() -> None:
    row = await delegation.cancel_tree(wakeful, short("cancel-tree"))
    assert (row["left"], row["abandoned"]) == (0, 0)


async def test_cancelled_tree_leaves_nothing_on_sqlite(tmp_path: Path) -> None:
    place = SimpleNamespace(address=str(tmp_path / "bench.db"))
    row = await delegation.cancel_tree(wakeful_sqlite, short("cancel-tree"), place)
    assert (row["left"], row["abandoned"]) == (0, 0)


@pytest.mark.parametrize("vendor", ["openai", "openai-chat", "anthropic"])
async def test_model_overhead_is_measured(vendor: str) -> None:
    row = await models.models(wakeful_models, short(f"models-{vendor}"))
    assert row["n"] == 2
    assert row["bare_us"] > 0
    assert row["stream_kb"] > 0


FEW: dict[str, Any] = {
    "runs": 3,
    "dispatches": 3,
    "seconds": 0,
    "idle": 0.5,
    "concurrency": 2,
    "steps": STEPS,
    "pythons": {"wakeful-workers": sys.executable},
}


def test_sqlite_worker_is_measured() -> None:
    row = Session({**FEW, "dispatches": 1}, None, "").measure(CONTENDERS[0], 1)
    assert row.get("error") is None
    assert (row["runs"], row["dispatches"]) == (3, 1)
    assert row["runs_per_s"] > 0


@pytest.mark.long
def test_postgres_workers_are_measured_with_and_without_bus() -> None:
    alone, with_nats = (one for one in CONTENDERS if one.name in ("wakeful-postgres", "wakeful-postgres-nats"))
    with postgres_server() as postgres, nats_server() as nats:
        session = Session(FEW, postgres, nats)
        out: dict[str, Any] = {
            "machine": "-",
            "postgres": {"fsync": postgres.ask("SHOW fsync")},
            "nats": {**spread("round_trip", asyncio.run(round_trips(nats, 3))), "n": 3},
            "bare_commits_per_s": {"1": profile.bare(postgres, 1)},
            "rows": [session.measure(alone, 2), session.measure(with_nats, 1)],
            "profile": [profile.profile(session, alone)],
        }
    assert [row for row in out["rows"] if "error" in row] == []
    statements = [name for name, _ in out["profile"][0]["queries"]]
    for commit_or_claim in ("WITH guards AS MATERIALIZED", "WITH locked AS MATERIALIZED"):
        assert any(name.startswith(commit_or_claim) for name in statements), statements
    assert "fsync on" in report(out, STEPS)


@pytest.mark.parametrize("module", [wakeful, floor_msgspec, wakeful_sqlite, floor_sqlite])
async def test_long_thread_is_measured(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_threads, "SIZES", (1000, 2000))
    kind = "sqlite" if module in (wakeful_sqlite, floor_sqlite) else None
    with database(kind) if kind else nullcontext() as place:
        row = await long_threads.long_thread(module, short("long-thread"), place)
    assert row["n"] == 2
    assert row["short_us"] > 0


@pytest.mark.long
def test_http_server_is_measured(tmp_path: Path) -> None:
    options = ["--rounds", "1", "--seconds", "0.1", "--deltas", "5", "--streams", "5"]
    http.main([*options, "--json", str(tmp_path / "http.json")])
    found = json.loads((tmp_path / "http.json").read_text())
    assert found["create ratio (enqueues / bare)"] > 0
    assert found["SSE events /s"] > 0
