"""The draft of the next commit: what is refused is kept, what comes while a commit is written waits its turn."""

from __future__ import annotations

from wakeful.loop.draft import Draft
from wakeful.state import KeyRegistry, State, StateKey
from wakeful.types.events import StateDelta, StepEnd, StepStart
from wakeful.types.messages import user_message

from .views import ME, NOW, ledger, record


def drafted() -> Draft:
    """A draft with a message, an event, the run and a call."""
    draft = Draft(ME, State(KeyRegistry()))
    draft.log += [user_message("Hello", at=NOW), StepStart(ME, 0, NOW, 1)]
    draft.run = record(steps=1)
    draft.calls.update(ledger(a="requested", b="requested"))
    return draft


def test_written_commit_empties_draft() -> None:
    draft = drafted()
    draft.commit(NOW)
    assert not draft


def test_changes_during_commit_go_to_next_one() -> None:
    draft = drafted()
    first = draft.commit(NOW)
    end, run, calls = StepEnd(ME, 0, NOW, 1), record(steps=2), ledger(a="started")
    draft.log.append(end)
    draft.run = run
    draft.calls.update(calls)
    second = draft.commit(NOW)
    assert len(first.log) == 2
    assert [c.state for c in first.calls] == ["requested", "requested"]
    assert (list(second.log), list(second.runs), list(second.calls)) == ([end], [run], [calls["a"]])


def test_refused_commit_is_repeated_unchanged() -> None:
    draft = drafted()
    refused = draft.commit(NOW)
    draft.put_back(refused)
    assert draft.commit(NOW) == refused


def test_refused_changes_come_first_and_newer_rows_win() -> None:
    draft = drafted()
    refused = draft.commit(NOW)
    end, run, calls = StepEnd(ME, 0, NOW, 1), record(steps=2), ledger(a="started")
    draft.log.append(end)
    draft.run = run
    draft.calls.update(calls)
    draft.put_back(refused)
    again = draft.commit(NOW)
    assert list(again.log) == [*refused.log, end]
    assert list(again.runs) == [run]
    assert {c.id: c.state for c in again.calls} == {"a": "started", "b": "requested"}


def test_superseded_run_is_restored_once() -> None:
    draft = Draft(ME, State(KeyRegistry()))
    draft.put_closed(record(status="done"))
    refused = draft.commit(NOW)
    draft.put_back(refused)
    assert draft.commit(NOW) == refused


def test_repeated_commit_has_current_state() -> None:
    class Count(StateKey[int, int]):
        name = "count"

    draft = Draft(ME, State(KeyRegistry([Count])))
    draft.state.apply([(Count, 1)])
    draft.put_back(draft.commit(NOW))
    draft.state.apply([(Count, 2)])
    assert list(draft.commit(NOW).log) == [StateDelta(ME, 0, NOW, {"count": 2})]
