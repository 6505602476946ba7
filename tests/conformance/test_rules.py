"""`decide` alone: the rules of a commit over facts, without a store."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from store_suite import identity, item, message, record, waiting

from wakeful.errors import (
    Conflict,
    DuplicateRequest,
    InboxFull,
    InboxMoved,
    StaleFence,
    WakefulError,
)
from wakeful.stores import About, Chunk, Commit, Fence, Relay, StateWrite
from wakeful.stores.dispatches import backoff
from wakeful.stores.facts import advance
from wakeful.stores.heads import DispatchRow, Facts, Head, ItemRow, NeedFacts, RunRow
from wakeful.stores.rules import Refusal, decide, decide_group
from wakeful.stores.writes import Guard, LeaseWrite, Writes
from wakeful.types import Request
from wakeful.types.messages import Message

NOW = 1_000_000
RUN = RunRow(5, "r1", "agent", 128, 1, "running")
OWNED = Head("t1", 1, 3, 10, 2, "w1", 2, 0, "", RUN, 5, "agent")
IDLE = Head("t1", 1, 3, 10, 2, last_run=5, last_agent="agent")
FENCE = Fence(2, "w1")
INPUT = ItemRow("t1", "pending", 0, 1, None, "queue")


def facts(*heads: Head, **more: Any) -> Facts:
    return Facts({head.id: head for head in heads}, **{"next_thread": 50, "next_run": 70, **more})


def accept(found: Facts, commit: Commit) -> Writes:
    decided = decide(found, commit, NOW)
    assert isinstance(decided, Writes), decided
    return decided


def refuse(found: Facts, commit: Commit) -> WakefulError:
    decided = decide(found, commit, NOW)
    assert isinstance(decided, Refusal), decided
    return decided.error


def step(**more: Any) -> Commit:
    return Commit("t1", identity(), FENCE, **{"log": [message()], "runs": [record(steps=2)], **more})


# -- facts that are needed -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "commit", "needs"),
    [
        (facts(), Commit("t1", inbox=[item("i", "t2")]), NeedFacts(("t1", "t2"), ("i",))),
        (facts(OWNED), step(request=Request("q")), NeedFacts(items=("q",))),
        (facts(OWNED), step(runs=[record("r9")]), NeedFacts(runs=("r9",))),
        (facts(OWNED), step(state=[StateWrite("k", b"1", "r9")]), NeedFacts(runs=("r9",))),
        (facts(OWNED), step(relays=[Relay(id="x", thread_id="t1", kind="mail")]), NeedFacts(relays=("x",))),
        (facts(OWNED), Commit("t1", claim="w2", version=3), NeedFacts(workers=("w1",))),
        (facts(replace(IDLE, pending=None)), Commit("t1", version=3, taken=["i"]), NeedFacts(("t1",))),
        (facts(IDLE), Commit("t1", version=3, taken=["i"], seen={"i": 0}), NeedFacts(items=("i",))),
    ],
)
def test_decision_asks_for_missing_facts(found: Facts, commit: Commit, needs: NeedFacts) -> None:
    assert decide(found, commit, NOW) == needs


def test_step_needs_no_pending_items() -> None:
    accept(facts(replace(OWNED, pending=None)), step())


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "commit", "kind", "text"),
    [
        (facts(OWNED), replace(step(), fence=Fence(1, "w1")), StaleFence, "no longer owned"),
        (facts(OWNED), replace(step(), fence=Fence(2, "w2")), StaleFence, "no longer owned"),
        (facts(Head("t1")), step(), StaleFence, "now 0"),
        (facts(OWNED), Commit("t1", log=[message()], identity=identity()), Conflict, "another writer"),
        (facts(OWNED, alive={"w1": True}), Commit("t1", claim="w2", version=3), Conflict, "another writer"),
        (facts(OWNED, alive={"w1": False}), Commit("t1", claim="w2", version=2), Conflict, "version 3, not 2"),
        (facts(IDLE), Commit("t1", release=True), Conflict, "version 3, not None"),
        (facts(replace(OWNED, inbox_head=4)), step(inbox_head=3), InboxMoved, "new items"),
        (facts(OWNED), Commit("t1", idle=True), Conflict, "owner or an open run"),
        (
            facts(IDLE, items={"i": INPUT}),
            Commit("t1", idle=True, inbox=[item("i")]),
            Conflict,
            "given this before",
        ),
        (
            facts(OWNED, items={"q": ItemRow("t1", "taken")}),
            step(request=Request("q")),
            DuplicateRequest,
            "made before",
        ),
        (
            facts(OWNED, relays={"x": 2}),
            Commit("t1", relays=[Relay(id="x", thread_id="t1", kind="mail", revision=2)]),
            Conflict,
            "revision 2, not 1",
        ),
        (facts(IDLE, items={"i": None}), Commit("t1", seen={"i": 0}), Conflict, "isn't in this thread"),
        (
            facts(IDLE, items={"i": replace(INPUT, thread_id="t2")}),
            Commit("t1", seen={"i": 0}),
            Conflict,
            "isn't in this thread",
        ),
        (
            facts(IDLE, items={"i": replace(INPUT, status="taken")}),
            Commit("t1", seen={"i": 0}),
            Conflict,
            "was taken",
        ),
        (
            facts(replace(IDLE, pending={"i": replace(INPUT, revision=2)})),
            Commit("t1", pending=[item("i", revision=2)]),
            Conflict,
            "at revision 2",
        ),
    ],
)
def test_decision_refuses(found: Facts, commit: Commit, kind: type[WakefulError], text: str) -> None:
    error = refuse(found, commit)
    assert type(error) is kind
    assert text in str(error)


def test_full_inbox_refuses_input_and_takes_cancellation() -> None:
    full = replace(IDLE, pending={f"i{n}": INPUT for n in range(1000)})
    found = facts(full, items={"new": None, "stop": None})
    assert type(refuse(found, Commit("t1", inbox=[item("new")]))) is InboxFull
    accept(found, Commit("t1", inbox=[item("stop", kind="cancel")]))
    accept(found, Commit("t1", version=3, inbox=[item("new")], taken=["i0"]))


# -- the thread of a commit ----------------------------------------------------------------------------------


def test_step_moves_version_and_log_head() -> None:
    writes = accept(facts(OWNED), step(log=[message(), message()]))
    assert writes.committed.version == 4
    assert writes.committed.head == 12
    assert writes.base == 10
    assert writes.guards == {"t1": Guard(version=True, inbox_head=False)}
    assert writes.run_numbers == {"r1": 5}
    assert writes.runs[0].is_step
    head = writes.heads["t1"]
    assert head.open_run == RunRow(5, "r1", "agent", 128, 2, "running")
    assert (head.dispatch, head.claim, head.inbox_head) == (None, "w1", 0)


def test_first_commit_makes_thread_and_run() -> None:
    writes = accept(
        facts(Head("t1")),
        Commit("t1", identity(), log=[message()], runs=[record()], version=0, claim="w1", lease=30_000),
    )
    head = writes.heads["t1"]
    assert (head.no, head.version, head.epoch, head.claim, head.handed) == (50, 1, 1, "w1", 0)
    assert head.open_run is not None
    assert head.open_run.no == head.last_run == 70
    assert (writes.next_thread, writes.next_run) == (51, 71)
    assert writes.lease == LeaseWrite("w1", NOW + 30_000)
    assert writes.guards == {}
    assert head.dispatch is None


def test_lease_is_written_only_when_half_of_it_is_over() -> None:
    commit = Commit("t1", claim="w1", version=3, lease=30_000)
    assert accept(facts(IDLE, leases={"w1": NOW + 20_000}), commit).lease is None
    assert accept(facts(IDLE, leases={"w1": NOW + 10_000}), commit).lease is not None


def test_takeover_counts_attempt_and_notes_version() -> None:
    lost = replace(OWNED, dispatch=DispatchRow("agent", 128, 5, attempts=1, held=True, mark=1))
    writes = accept(
        facts(lost, alive={"w1": False}),
        Commit("t1", identity(), runs=[record(steps=1)], claim="w2", version=3),
    )
    head = writes.heads["t1"]
    assert (head.claim, head.epoch, head.handed) == ("w2", 3, 3)
    assert head.dispatch == DispatchRow("agent", 128, NOW, attempts=2, held=True, mark=1)
    assert writes.guards["t1"].inbox_head


def test_end_of_run_drops_chunks_and_dispatch() -> None:
    held = replace(OWNED, dispatch=DispatchRow("agent", 128, 5, held=True))
    writes = accept(facts(held), step(runs=[record(status="done")], release=True))
    head = writes.heads["t1"]
    assert (head.open_run, head.wakes, head.claim, head.dispatch) == (None, "queue steer", None, None)
    assert writes.drops_chunks
    assert not head.has_chunks
    assert writes.guards["t1"] == Guard(version=True, inbox_head=True)


def test_answer_drops_chunks_and_chunks_bring_them_back() -> None:
    answer = Message("m", "assistant", (), 7)
    assert accept(facts(OWNED), step(log=[answer])).drops_chunks
    without = facts(replace(OWNED, has_chunks=False))
    assert not accept(without, step(log=[answer])).drops_chunks
    assert accept(without, step(chunks=[Chunk("m", 1, 0, "text", "a")])).heads["t1"].has_chunks


def test_description_needs_no_claim() -> None:
    writes = accept(facts(OWNED), Commit("t1", about=About("title")))
    assert writes.heads["t1"] == OWNED
    assert writes.guards["t1"] == Guard(version=True, inbox_head=False)
    assert not writes.has_changes


# -- inboxes -------------------------------------------------------------------------------------------------


def test_delivery_makes_thread_and_dispatch() -> None:
    found = facts(OWNED, Head("t2"), items={"i": None})
    writes = accept(found, step(inbox=[item("i", "t2", agent_id="other", priority=3)]))
    head = writes.heads["t2"]
    assert (head.no, head.inbox_head, list(head.pending or ())) == (50, 1, ["i"])
    assert head.dispatch == DispatchRow("other", 3, NOW)
    assert [(delivery.item.id, delivery.position) for delivery in writes.deliveries] == [("i", 1)]
    assert "t2" not in writes.guards


def test_repeated_delivery_is_ignored() -> None:
    writes = accept(facts(IDLE, items={"i": INPUT}), Commit("t1", inbox=[item("i")]))
    assert writes.deliveries == []
    assert writes.heads == {"t1": IDLE}


def test_item_sent_twice_in_commit_arrives_once() -> None:
    writes = accept(facts(IDLE, items={"i": None}), Commit("t1", inbox=[item("i"), item("i")]))
    assert len(writes.deliveries) == 1


def test_task_result_for_missing_thread_is_dropped() -> None:
    found = facts(Head("t1"), items={"i": None})
    writes = accept(found, Commit("t1", inbox=[item("i", kind="task", task_id="k")]))
    assert writes.heads == {}
    assert writes.committed.version == 0


def test_delivery_to_owned_thread_makes_no_dispatch() -> None:
    writes = accept(facts(OWNED, items={"i": None}), Commit("t1", inbox=[item("i")]))
    assert writes.heads["t1"].dispatch is None
    assert writes.guards["t1"] == Guard(version=False, inbox_head=True)


def test_delivery_keeps_earlier_time_and_first_agent() -> None:
    due = replace(IDLE, dispatch=DispatchRow("first", 7, NOW - 5, attempts=2))
    writes = accept(facts(due, items={"i": None}), Commit("t1", inbox=[item("i", agent_id="second")]))
    assert writes.heads["t1"].dispatch == DispatchRow("first", 7, NOW - 5, attempts=2)


def test_cancellation_revives_dead_letter() -> None:
    dead = replace(
        OWNED, claim=None, wakes="task", dispatch=DispatchRow("agent", 128, 5, 5, dead_at=4, error="why")
    )
    cancel = item("i", kind="cancel")
    writes = accept(facts(dead, items={"i": None}), Commit("t1", inbox=[cancel]))
    assert writes.heads["t1"].dispatch == DispatchRow("agent", 128, NOW)


def test_edited_and_retracted_items_move_inbox_head() -> None:
    first, second = replace(INPUT, position=1), replace(INPUT, position=2)
    found = facts(replace(IDLE, inbox_head=2, pending={"a": first, "b": second}))
    moved = accept(
        found,
        Commit("t1", pending=[item("a", revision=1, position=2), item("b", revision=1, position=1)]),
    ).heads["t1"]
    assert list(moved.pending or ()) == ["b", "a"]
    assert moved.inbox_head == 3
    gone = accept(found, Commit("t1", pending=[item("a", revision=1, status="retracted", position=1)]))
    assert list(gone.heads["t1"].pending or ()) == ["b"]


# -- settling the dispatch of a thread that is given back ----------------------------------------------------


def release(**more: Any) -> Commit:
    return Commit("t1", identity(), FENCE, release=True, **more)


@pytest.mark.parametrize(
    ("head", "commit", "dispatch"),
    [
        # A run that was left in the middle is due at once; one that waits is due at its time, or not at all.
        (OWNED, release(runs=[record(steps=2)]), DispatchRow("agent", 128, NOW)),
        (
            OWNED,
            release(runs=[record(status="waiting", waiting=waiting(until=NOW + 9))]),
            DispatchRow("agent", 128, NOW + 9),
        ),
        (OWNED, release(runs=[record(status="waiting", waiting=waiting())]), None),
        # Without the run's record it is due as it was, or at the given time.
        (OWNED, release(), DispatchRow("agent", 128, NOW, mark=1)),
        (OWNED, release(later=NOW + 7), DispatchRow("agent", 128, NOW + 7, mark=1)),
        (
            replace(OWNED, dispatch=DispatchRow("agent", 9, 4, 2, held=True)),
            release(),
            DispatchRow("agent", 9, 4, 2),
        ),
        # What wakes it in its inbox counts; a failure counts as an attempt.
        (
            replace(OWNED, pending={"i": replace(INPUT, at=NOW + 3, agent="next", priority=2)}),
            release(runs=[record(status="done")]),
            DispatchRow("next", 2, NOW + 3),
        ),
        (
            replace(OWNED, pending={"i": INPUT}),
            release(runs=[record(status="done")]),
            DispatchRow("agent", 128, NOW),
        ),
        (
            OWNED,
            release(failed="why"),
            DispatchRow("agent", 128, NOW + backoff(1), 1, mark=1, error="why"),
        ),
        (
            replace(OWNED, dispatch=DispatchRow("agent", 128, 4, 4, held=True)),
            release(failed="why"),
            DispatchRow("agent", 128, NOW + backoff(5), 5, dead_at=NOW, error="why"),
        ),
    ],
)
def test_released_thread_is_due(head: Head, commit: Commit, dispatch: DispatchRow | None) -> None:
    assert accept(facts(head), commit).heads["t1"].dispatch == dispatch


# -- groups --------------------------------------------------------------------------------------------------


def test_follower_is_decided_by_what_first_commit_leaves() -> None:
    child = Commit(
        "t2",
        identity("r2", "t2"),
        runs=[record("r2", "t2")],
        log=[message()],
        claim="w1",
        version=0,
        inbox_head=1,
        taken=["i"],
        seen={"i": 0},
    )
    found = facts(OWNED, Head("t2"), items={"i": None})
    group = decide_group(found, step(inbox=[item("i", "t2")], then=[child, child]), NOW)
    assert not isinstance(group, Refusal | NeedFacts)
    assert len(group.writes) == 2
    began, refused = group.committed.then
    assert began is not None
    assert (began.version, refused) == (1, None)
    head = group.facts.heads["t2"]
    assert (head.no, head.claim, dict(head.pending or {})) == (50, "w1", {})
    taken = group.facts.items["i"]
    assert taken is not None
    assert (taken.status, taken.taken_by) == ("taken", "r2")


def test_group_asks_for_facts_of_all_its_commits() -> None:
    child = Commit("t2", version=0, claim="w1", request=Request("q"))
    found = decide_group(facts(), step(inbox=[item("i", "t2")], then=[child]), NOW)
    assert found == NeedFacts(("t1", "t2"), ("i", "q"), ("r1",))


def test_facts_after_commit_know_its_rows() -> None:
    found = facts(OWNED, items={"q": None}, relays={"x": None})
    commit = step(request=Request("q"), relays=[Relay(id="x", thread_id="t1", kind="mail")])
    after = advance(found, accept(found, commit))
    assert after.heads["t1"].version == 4
    assert after.relays["x"] == 1
    assert type(decide(after, commit, NOW)) is Refusal
