"""`crash_matrix`: its coverage, its findings and its report."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import crash_samples
import pytest

from wakeful import Agent, FunctionModel, Retention, Runtime, SqliteStore, UsageError
from wakeful.errors import StoreUnavailable
from wakeful.stores import Store
from wakeful.testing import CrashFailed, CrashSite, crash_matrix
from wakeful.testing.crash import ModelRequested, find_violations
from wakeful.testing.crash.invariants import check_call, check_requests, check_results
from wakeful.types.calls import Call
from wakeful.types.content import Text, ToolCall, ToolReply
from wakeful.types.messages import Message
from wakeful.types.runs import Identity, RunRecord


def test_crash_report_lists_every_kill_of_every_commit(capsys: pytest.CaptureFixture[str]) -> None:
    report = crash_matrix(crash_samples.good)
    assert report.commits == ("run starts, input", "answer, note starts", "note: ok", "answer, run done")
    assert [(row.commit, row.point) for row in report.rows] == [
        (commit, point) for commit in (1, 2, 3, 4) for point in ("before", "inside", "after")
    ]
    assert all(row.reached for row in report.rows)
    assert report.kills == 12
    assert capsys.readouterr().out == f"{report}\n"
    assert str(report).splitlines() == [
        "crash_samples:good on sqlite: 4 commits, 12 boundaries, 12 kills: all held",
        "  commit                   before   inside   after",
        "   1  run starts, input    ok       ok       ok",
        "   2  answer, note starts  ok       ok       ok",
        "   3  note: ok             ok       ok       ok",
        "   4  answer, run done     ok       ok       ok",
    ]


def test_crash_report_lists_calls_that_ran_again() -> None:
    report = crash_matrix(crash_samples.repeated, points=["before"])
    again = "before commit 3 (note: ok): a call of note ran again (its effect is idempotent)"
    assert report.repeats == [again]
    assert str(report).splitlines()[-1] == f"  {again}"
    assert crash_matrix(crash_samples.repeated, points=["before"], check=lambda site, store: None).repeats == []


def test_crash_matrix_kills_resumed_process_when_twice() -> None:
    report = crash_matrix("crash_samples:good", points=["after"], twice=True)
    assert {row.point for row in report.rows} == {"after"}
    thens = {row.commit: [r.then for r in report.rows if r.commit == row.commit and r.then] for row in report.rows}
    assert thens[1] == [(number, "after") for number in (1, 2, 3, 4)]
    assert thens[4] == []
    assert report.kills == 4 + 2 * sum(len(each) for each in thens.values())


def noted_once(site: CrashSite, store: Store) -> None:
    assert (site.folder / "notes").read_text() == "noted\n"


def test_crash_report_names_kills_of_failed_check() -> None:
    with pytest.raises(CrashFailed, match=r"before commit 3 \(note: ok\).*your check: AssertionError") as caught:
        crash_matrix(crash_samples.careless, check=noted_once)
    broken = {(row.commit, row.point) for row in caught.value.report.rows if row.problems}
    assert broken == {(3, "before"), (3, "inside")}
    assert "BROKEN" in str(caught.value)


@pytest.mark.parametrize(
    ("scenario", "error"),
    [
        (
            crash_samples.not_repeatable,
            "its store had 1 runs, and 2 when it was run again: give each run a request_id",
        ),
        (crash_samples.elsewhere, "open the runtime on site.store"),
        (crash_samples.silent, "open the runtime on site.store"),
        (crash_samples.fails, "ValueError: the shop is closed"),
    ],
)
def test_crash_matrix_rejects_bad_scenario_before_any_kill(scenario: Any, error: str) -> None:
    with pytest.raises(CrashFailed, match=error) as caught:
        crash_matrix(scenario)
    assert caught.value.report.rows == ()


def test_crash_matrix_ends_hung_process_and_dumps_its_tasks() -> None:
    with pytest.raises(CrashFailed, match=r"did not come to its end in 10 s(.|\n)*crash_samples.py"):
        crash_matrix(crash_samples.hangs, timeout=10)


def test_crash_matrix_refuses_invalid_scenario_and_store() -> None:
    async def inner(site: CrashSite) -> None: ...

    with pytest.raises(UsageError, match="move it to the top level of a module"):
        crash_matrix(inner)
    with pytest.raises(UsageError, match="async function"):
        crash_matrix(noted_once)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="module:function"):
        crash_matrix("crash_samples")
    with pytest.raises(UsageError, match="'sqlite' or a postgres:// URL"):
        crash_matrix(crash_samples.good, store="app.db")


@pytest.mark.parametrize("points", [["aftr"], "after", [], ["between"]])
def test_crash_matrix_refuses_points_that_kill_nothing(points: Any) -> None:
    with pytest.raises(UsageError, match="before, inside"):
        crash_matrix(crash_samples.good, points=points)


@pytest.mark.parametrize("option", [{"processes": 0}, {"processes": 1.5}, {"timeout": -1}, {"timeout": "long"}])
def test_crash_matrix_refuses_invalid_option(option: Any) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(option))} is a number above 0"):
        crash_matrix(crash_samples.good, **option)


def test_crash_matrix_hides_password_of_unreachable_server() -> None:
    with pytest.raises(StoreUnavailable, match=r"postgres://ada@127\.0\.0\.1:1/x can't be reached") as caught:
        crash_matrix(crash_samples.good, store="postgres://ada:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value)


async def test_crash_matrix_runs_inside_running_loop() -> None:
    assert crash_matrix(crash_samples.good, points=["inside"]).kills == 4


# -- invariants ----------------------------------------------------------------------------------------------


def message_of(role: Any, *content: Any, at: int = 0) -> Message:
    return Message(f"m{at}", role, content, at, seq=at)


ASKS = message_of("assistant", ToolCall("c1", "look", {}), ToolCall("c2", "look", {}), at=2)


def result(call_id: str, at: int) -> Message:
    return message_of("tool", ToolReply(call_id, "look", (Text("seen"),)), at=at)


@pytest.mark.parametrize(
    ("messages", "waiting", "problems"),
    [
        ([ASKS, result("c2", 3), result("c1", 4), message_of("user", Text("and"), at=5)], False, []),
        ([ASKS, result("c1", 3)], True, []),
        ([ASKS, result("c1", 3)], False, ["it ends without the results of c2"]),
        ([ASKS, result("c1", 3), result("c1", 4)], True, ["message 4 is a result of call c1, which isn't open"]),
        (
            [ASKS, result("c1", 3), message_of("user", Text("and"), at=4)],
            True,
            ["message 4 comes before the results of c2"],
        ),
    ],
)
def test_invariant_every_call_has_one_result(messages: list[Message], waiting: bool, problems: list[str]) -> None:
    assert check_results(messages, is_waiting=waiting) == problems


async def test_invariant_allows_gaps_of_retention_and_deleted_base(tmp_path: Path) -> None:
    """Runs without their events stand before, after and between complete ones."""
    store = SqliteStore(tmp_path / "app.db")
    runtime = Runtime([Agent("a", model=FunctionModel(lambda _: "hello"))], store=store)
    for thread in ("pruned", "base"):
        await runtime.run("a", "one", thread=thread)
    while (await runtime.threads.prune(Retention(events=0))).events == 0:
        await asyncio.sleep(0.001)
    assert await find_violations(store, []) == []
    await runtime.run("a", "two", thread="pruned")
    await runtime.run("a", "two", thread="base")
    fork = await runtime.threads.fork("base")
    await runtime.threads.delete("base")
    await runtime.run("a", "three", thread=fork)
    assert await find_violations(store, []) == []
    lost = "DELETE FROM log WHERE thread = 1 AND seq = (SELECT max(seq) FROM log WHERE thread = 1)"
    await store._database.writer.write(lambda db: db.execute(lost))
    assert "its log ends at" in "".join(await find_violations(store, []))
    await runtime.close()


def test_invariant_committed_answer_is_not_requested_again() -> None:
    messages = [message_of("user", Text("go"), at=1), message_of("assistant", Text("gone"), at=10)]
    assert (
        check_requests(
            messages, [ModelRequested(5, ("m1",)), ModelRequested(8, ("m1",)), ModelRequested(20, ("m1", "m10"))]
        )
        == []
    )
    assert check_requests(messages, [ModelRequested(12, ("m1",))]) == [
        "answer 10 was bought again, 2 ms after it was given"
    ]


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({"state": "finished", "outcome": "ok", "attempt": 1}, []),
        ({"state": "finished", "outcome": "ok", "attempt": 2, "effect": "pure"}, []),
        ({"state": "finished", "outcome": "ok", "attempt": 2}, ["it may run once and was started 2 times"]),
        ({"state": "started", "attempt": 1}, ["its run is done and it is still started"]),
        ({"state": "requested"}, ["its run is done and it is still requested"]),
        (
            {"state": "finished", "outcome": "unknown"},
            ["its outcome is reported as unknown, but it was never started"],
        ),
    ],
)
def test_invariant_ledger_matches_run_and_effect(fields: dict[str, Any], problems: list[str]) -> None:
    run = RunRecord(identity=Identity("r", "t", "a", "r"), status="done", agent_id="a", created_at=1)
    assert check_call(run, Call("c", "r", 1, 0, "look", {}, **fields)) == problems
