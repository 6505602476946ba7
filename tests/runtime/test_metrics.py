"""The counters of a worker, and the values that it looks up on demand."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from starlette.testclient import TestClient

from loop.helpers import Scripted, soon
from wakeful import Agent, Principal, Runtime, SqliteStore
from wakeful.bus import MemoryBus
from wakeful.dispatch import Metrics
from wakeful.dispatch.metrics import TENANTS
from wakeful.errors import Conflict, StaleFence, StoreUnavailable
from wakeful.identity import Caller, Tokens
from wakeful.server import app
from wakeful.stores import Backlog, QueueSeen, Tally


def values(text: str) -> dict[str, float]:
    """The samples of an exposition, by name and labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_worker_counts_claims_and_commits(tmp_path: Path, scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted("one", "two"))
    front = Runtime([agent], store=tmp_path / "a.db", execute=False)
    async with Runtime([agent], store=tmp_path / "a.db") as worker:
        for _ in range(2):
            await soon(front.run("agent", "go"))
        found = values(await worker.workers.metrics_text())
    await front.close()
    assert found["wakeful_claims_total"] == found["wakeful_runs_started_total"] == 2
    assert found['wakeful_runs_finished_total{status="natural_end"}'] == 2
    assert found["wakeful_dispatch_latency_seconds_count"] == 2
    assert found["wakeful_first_step_latency_seconds_count"] == 2
    assert found["wakeful_first_step_latency_seconds_sum"] > found["wakeful_dispatch_latency_seconds_sum"]
    assert found['wakeful_commits_total{status="ok"}'] == found["wakeful_commit_seconds_count"] == 4
    assert found['wakeful_lease_renewals_total{status="ok"}'] >= 1
    assert (found["wakeful_active"], found["wakeful_dead_letters"]) == (0, 0)
    assert "wakeful_bus_up" not in found


def test_commits_are_counted_by_outcome() -> None:
    metrics = Metrics()
    for error in (None, None, StaleFence("x"), Conflict("x"), StoreUnavailable("x")):
        metrics.committed(0.003, error)
    found = values(metrics.text())
    assert [found[f'wakeful_commits_total{{status="{s}"}}'] for s in ("ok", "fenced", "refused", "failed")] == [
        2,
        1,
        1,
        1,
    ]
    assert found['wakeful_commit_seconds_bucket{le="0.005"}'] == 2
    assert found['wakeful_commit_seconds_bucket{le="0.0025"}'] == 0


async def test_bus_health_is_a_gauge(tmp_path: Path, scripted: Scripted) -> None:
    agent = Agent("agent", model=scripted())
    async with Runtime([agent], store=tmp_path / "a.db", bus=MemoryBus()) as runtime:
        while values(runtime.workers.metrics.text())["wakeful_bus_up"] != 1:
            await asyncio.sleep(0)
    async with Runtime([agent], store=tmp_path / "a.db", bus="postgres://nobody@127.0.0.1:1/none") as runtime:
        assert values(runtime.workers.metrics.text())["wakeful_bus_up"] == 0


# -- queues --------------------------------------------------------------------------------------------------


async def test_backlog_is_cached_between_scrapes(tmp_path: Path, scripted: Scripted) -> None:
    store = SqliteStore(tmp_path / "a.db")
    runtime = Runtime([Agent("agent", model=scripted())], store=store, execute=False)
    for name in ("acme", "default"):
        await runtime.tenant(name).send("t", "go", agent="agent")
    found = values(await runtime.workers.metrics_text())
    assert found['wakeful_queue_depth{tenant="acme"}'] == found['wakeful_queue_depth{tenant="default"}'] == 1
    assert found["wakeful_queue_depth_others"] == 0
    await runtime.send("t2", "go", agent="agent")
    again = values(await runtime.workers.metrics_text())
    assert again['wakeful_queue_depth{tenant="default"}'] == 1  # What was read just now will do.
    await runtime.close()


def lanes(*depths: tuple[str, int]) -> Backlog:
    queues = [QueueSeen(tenant=t, agent_id="a", waiting=n, later=0, oldest_at=1000) for t, n in depths]
    return Backlog(9000, tuple(queues), Tally())


def test_tenant_labels_are_limited() -> None:
    metrics = Metrics()
    for first in range(0, 3 * TENANTS, 10):
        metrics.backlog = lanes(*[(f"t{n}", 1 + n) for n in range(first, first + 10)])
        text = metrics.text()
        assert len(re.findall("wakeful_queue_depth{", text)) <= TENANTS
    found = values(text)
    assert found['wakeful_queue_depth{tenant="t0"}'] == 0  # It is empty by now, and keeps its label.
    assert found["wakeful_queue_depth_others"] == sum(range(first + 1, first + 11))
    assert found["wakeful_queue_oldest_seconds"] == 8


def test_tenant_label_is_escaped() -> None:
    metrics = Metrics()
    metrics.backlog = lanes(('a"b\\c\nd', 1), ("x" * 500, 2))
    text = metrics.text()
    assert 'wakeful_queue_depth{tenant="a\\"b\\\\c\\nd"} 1' in text
    assert "x" * 101 not in text


# -- the server ----------------------------------------------------------------------------------------------


def test_metrics_need_authorization_but_probes_do_not(tmp_path: Path, scripted: Scripted) -> None:
    runtime = Runtime([Agent("agent", model=scripted())], store=tmp_path / "a.db")
    served = app(
        runtime,
        auth=Tokens(tokens={"secret": Caller(principal=Principal("ann"), scopes=frozenset(["cluster:read"]))}),
    )
    with TestClient(served) as client:
        assert client.get("/healthz").text == "alive\n"
        assert (client.get("/readyz").status_code, client.get("/readyz").text) == (200, "ready\n")
        assert client.get("/metrics").status_code == 401
        shown = client.get("/metrics", headers={"Authorization": "Bearer secret"})
        assert shown.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert values(shown.text)["wakeful_active"] == 0
        assert "secret" not in shown.text
