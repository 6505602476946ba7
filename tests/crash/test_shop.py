"""Kills while two tools run: no effect happens twice, and unknown outcomes are reported."""

from __future__ import annotations

import pytest

from postgres_server import server
from wakeful.stores import Store
from wakeful.testing import CrashSite, crash_matrix

from . import office
from .lab import CrashLab, until
from .shop import EFFECTS, SCENARIOS, Bank

UNKNOWN = "charge: interrupted; slow: slow is done"


@pytest.mark.parametrize("effect", EFFECTS)
def test_committed_charge_is_not_repeated(lab: CrashLab, effect: str) -> None:
    lab.hold("slow")
    first = lab.start(SCENARIOS[effect])
    lab.reached("slow")
    until(lambda: lab.calls()["charge"].state == "finished")
    lab.kill(first)
    lab.let_go("slow")
    lab.finish(lab.start(SCENARIOS[effect]))
    calls = lab.calls()
    assert len(Bank(lab.folder).charges) == 1
    assert (calls["charge"].outcome, calls["charge"].attempt) == ("ok", 1)
    assert (calls["slow"].outcome, calls["slow"].attempt) == ("ok", 2)
    assert lab.answer() == "charge: charged; slow: slow is done"
    assert lab.asked == 2
    assert lab.problems() == []


@pytest.mark.parametrize(
    ("effect", "outcome", "attempts", "answer"),
    [
        ("once", "unknown", 1, UNKNOWN),
        ("idempotent", "ok", 2, "charge: charged; slow: slow is done"),
        ("reconcile", "ok", 1, "charge: charged before; slow: slow is done"),
    ],
)
def test_uncommitted_charge_follows_its_effect(
    lab: CrashLab, effect: str, outcome: str, attempts: int, answer: str
) -> None:
    lab.hold("charge-after")
    first = lab.start(SCENARIOS[effect])
    lab.reached("charge-after")
    lab.kill(first)
    lab.let_go("charge-after")
    lab.finish(lab.start(SCENARIOS[effect]))
    charge = lab.calls()["charge"]
    assert len(Bank(lab.folder).charges) == 1
    assert (charge.outcome, charge.attempt) == (outcome, attempts)
    assert lab.calls()["slow"].outcome == "ok"
    assert lab.answer() == answer
    assert lab.asked == 2
    assert lab.problems() == []


@pytest.mark.parametrize(
    ("effect", "outcome", "charges"), [("once", "unknown", 0), ("idempotent", "ok", 1), ("reconcile", "ok", 1)]
)
def test_started_charge_follows_its_effect(lab: CrashLab, effect: str, outcome: str, charges: int) -> None:
    lab.hold("charge-before")
    first = lab.start(SCENARIOS[effect])
    lab.reached("charge-before")
    lab.kill(first)
    lab.let_go("charge-before")
    lab.finish(lab.start(SCENARIOS[effect]))
    assert len(Bank(lab.folder).charges) == charges
    assert lab.calls()["charge"].outcome == outcome
    assert lab.asked == 2
    assert lab.problems() == []


# -- at every commit -----------------------------------------------------------------------------------------


async def charged_once(site: CrashSite, store: Store) -> None:
    """Check that the charge was made at most once, and exactly once unless its outcome is unknown."""
    (run,) = await store.runs()
    charge, slow = await store.calls(run.id)
    charges = Bank(site.folder).charges
    assert slow.outcome == "ok"
    if charge.outcome == "unknown":
        assert charge.effect == "once"
        assert len(charges) <= 1
        assert "charge: interrupted" in (await store.messages("t"))[-1].text
    else:
        assert charge.outcome == "ok"
        assert len(charges) == 1


@pytest.mark.parametrize("effect", EFFECTS)
def test_shop_survives_kill_at_every_commit_on_sqlite(effect: str) -> None:
    every_commit("sqlite", effect, points=3)


def test_shop_survives_kill_at_every_commit_on_postgres() -> None:
    every_commit(server().url(), "once", points=4)


@pytest.mark.long
@pytest.mark.parametrize("effect", ["idempotent", "reconcile"])
def test_shop_effects_survive_kill_at_every_commit_on_postgres(effect: str) -> None:
    every_commit(server().url(), effect, points=4)


def every_commit(store: str, effect: str, points: int) -> None:
    report = crash_matrix(SCENARIOS[effect], store=store, check=charged_once)
    assert len(report.commits) == 5
    assert len(report.rows) == 5 * points
    assert sum(row.reached for row in report.rows) >= 4 * points  # Both results may be in one commit.


@pytest.mark.long
@pytest.mark.parametrize("effect", EFFECTS)
def test_shop_survives_two_kills_on_sqlite(effect: str) -> None:
    report = crash_matrix(SCENARIOS[effect], check=charged_once, twice=True)
    assert report.kills > 100


@pytest.mark.long
def test_shop_survives_two_kills_on_postgres() -> None:
    report = crash_matrix(
        SCENARIOS["once"],
        store=server().url(),
        check=charged_once,
        points=["inside", "between"],
        twice=True,
    )
    assert report.kills > 50


# -- approvals and queued input ------------------------------------------------------------------------------


async def signed_and_read(site: CrashSite, store: Store) -> None:
    """Check that the approved call ran at most once, and that every input was delivered once."""
    runs = await store.runs()
    (sign,) = [call for run in runs for call in await store.calls(run.id) if call.name == "sign"]
    assert len(office.Books(site.folder).lines("sign")) == 1 or sign.outcome == "unknown"
    said = [message.text for message in await store.messages("mail") if message.role == "user"]
    assert said == ["one", "two", "three"]


def test_approval_survives_kill_at_every_commit_on_sqlite() -> None:
    report = crash_matrix(office.paperwork, check=signed_and_read)
    assert sum(row.reached for row in report.rows) >= 30


@pytest.mark.long
def test_approval_survives_kill_at_every_commit_on_postgres() -> None:
    crash_matrix(office.paperwork, store=server().url(), check=signed_and_read)
