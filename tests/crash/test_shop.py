"""Two tools run at once and their process is killed: no effect happens twice, and what nobody knows is said."""

from __future__ import annotations

import pytest

from postgres_server import server
from wakeful.stores import Store
from wakeful.testing import CrashSite, crash_matrix

from . import office
from .places import Place, until
from .shop import EFFECTS, SCENARIOS, Bank

UNKNOWN = "charge: interrupted; slow: slow is done"


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_charge_that_is_committed_is_not_made_again(place: Place, effect: str) -> None:
    place.hold("slow")
    first = place.start(SCENARIOS[effect])
    place.reached("slow")
    until(lambda: place.calls()["charge"].state == "finished")
    place.kill(first)
    place.let_go("slow")
    place.finish(place.start(SCENARIOS[effect]))
    calls = place.calls()
    assert len(Bank(place.folder).charges) == 1
    assert (calls["charge"].outcome, calls["charge"].attempt) == ("ok", 1)
    assert (calls["slow"].outcome, calls["slow"].attempt) == ("ok", 2)
    assert place.answer() == "charge: charged; slow: slow is done"
    assert place.asked == 2
    assert place.problems() == []


@pytest.mark.parametrize(
    ("effect", "outcome", "attempts", "answer"),
    [
        ("once", "unknown", 1, UNKNOWN),
        ("idempotent", "ok", 2, "charge: charged; slow: slow is done"),
        ("reconcile", "ok", 1, "charge: charged before; slow: slow is done"),
    ],
)
def test_a_charge_that_was_made_but_not_committed(
    place: Place, effect: str, outcome: str, attempts: int, answer: str
) -> None:
    place.hold("charge-after")
    first = place.start(SCENARIOS[effect])
    place.reached("charge-after")
    place.kill(first)
    place.let_go("charge-after")
    place.finish(place.start(SCENARIOS[effect]))
    charge = place.calls()["charge"]
    assert len(Bank(place.folder).charges) == 1
    assert (charge.outcome, charge.attempt) == (outcome, attempts)
    assert place.calls()["slow"].outcome == "ok"
    assert place.answer() == answer
    assert place.asked == 2
    assert place.problems() == []


@pytest.mark.parametrize(
    ("effect", "outcome", "charges"), [("once", "unknown", 0), ("idempotent", "ok", 1), ("reconcile", "ok", 1)]
)
def test_a_charge_that_was_started_and_not_made(place: Place, effect: str, outcome: str, charges: int) -> None:
    place.hold("charge-before")
    first = place.start(SCENARIOS[effect])
    place.reached("charge-before")
    place.kill(first)
    place.let_go("charge-before")
    place.finish(place.start(SCENARIOS[effect]))
    assert len(Bank(place.folder).charges) == charges
    assert place.calls()["charge"].outcome == outcome
    assert place.asked == 2
    assert place.problems() == []


# -- at every commit -----------------------------------------------------------------------------------------


async def charged_once(site: CrashSite, store: Store) -> None:
    """Never twice; and exactly once, unless the outcome is reported as unknown."""
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
def test_every_commit_on_sqlite(effect: str) -> None:
    every_commit("sqlite", effect, points=3)


def test_every_commit_on_postgres() -> None:
    every_commit(server().url(), "once", points=4)


@pytest.mark.long
@pytest.mark.parametrize("effect", ["idempotent", "reconcile"])
def test_every_commit_on_postgres_for_other_effects(effect: str) -> None:
    every_commit(server().url(), effect, points=4)


def every_commit(store: str, effect: str, points: int) -> None:
    report = crash_matrix(SCENARIOS[effect], store=store, check=charged_once)
    assert len(report.commits) == 5
    assert len(report.rows) == 5 * points
    assert sum(row.reached for row in report.rows) >= 4 * points  # Both tools may have ended in one commit.


@pytest.mark.long
@pytest.mark.parametrize("effect", EFFECTS)
def test_every_commit_and_every_one_of_the_process_that_goes_on(effect: str) -> None:
    report = crash_matrix(SCENARIOS[effect], check=charged_once, twice=True)
    assert report.kills > 100


@pytest.mark.long
def test_every_commit_and_every_one_of_the_process_that_goes_on_on_postgres() -> None:
    report = crash_matrix(
        SCENARIOS["once"],
        store=server().url(),
        check=charged_once,
        points=["inside", "between"],
        twice=True,
    )
    assert report.kills > 50


# -- other things that wait ----------------------------------------------------------------------------------


async def signed_and_read(site: CrashSite, store: Store) -> None:
    """The approved call ran at most once, and every input was taken in once."""
    runs = await store.runs()
    (sign,) = [call for run in runs for call in await store.calls(run.id) if call.name == "sign"]
    assert len(office.Books(site.folder).lines("sign")) == 1 or sign.outcome == "unknown"
    said = [message.text for message in await store.messages("mail") if message.role == "user"]
    assert said == ["one", "two", "three"]


def test_every_commit_of_an_approval_and_of_queued_input() -> None:
    report = crash_matrix(office.paperwork, check=signed_and_read)
    assert sum(row.reached for row in report.rows) >= 30


@pytest.mark.long
def test_every_commit_of_an_approval_and_of_queued_input_on_postgres() -> None:
    crash_matrix(office.paperwork, store=server().url(), check=signed_and_read)
