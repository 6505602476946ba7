"""The next move of a run as a function of its view: start, resume and recovery are one table."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from wakeful import CostBudget, TokenBudget, Usage, WallTime
from wakeful.loop import RunView, Tree
from wakeful.loop.moves import (
    AfterCalls,
    Await,
    Drop,
    EndStep,
    Execute,
    Finish,
    Infer,
    Interrupt,
    Move,
    Overdue,
    Recover,
    SuspendRun,
    SwitchAgent,
    Take,
    WaitForTasks,
)
from wakeful.types.runs import Blocked, Cancelled, EndRequested, Failed, NaturalEnd, Stopped

from .views import NOW, acting, between, decided, given, move, record, task_result

STOPPED = Stopped("max_steps", "the run has had its 2 steps")


def names(found: Move) -> str:
    """The calls or items a move is about, by id."""
    about = getattr(found, "calls", None) or getattr(found, "items", None) or ()
    return " ".join(one.id for one in about)


def ending(view: RunView, termination: Any) -> RunView:
    """The same view of a run that is about to end."""
    view.run = replace(view.run, ending=termination)
    return view


def cancelled(view: RunView) -> RunView:
    """The same view of a run that somebody cancelled."""
    view.run = replace(view.run, cancel="enough")
    return view


# -- beginning and going on ----------------------------------------------------------------------------------


def test_fresh_run_asks_model() -> None:
    assert move(between()) == Infer()


def test_step_without_answer_asks_model_again() -> None:
    assert move(between(stage="inferring", steps=1)) == Infer()


def test_open_step_is_finished_at_limit() -> None:
    assert move(between(stage="inferring", steps=2), steps=2) == Infer()


def test_after_step_model_is_asked_again() -> None:
    assert move(between(steps=1)) == Infer()


# -- executing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "live", "rules", "expected"),
    [
        ({"a": "requested"}, "", {}, "a"),
        ({"a": "requested", "b": "requested", "c": "requested"}, "", {}, "a b c"),
        ({"a": "requested", "b": "requested", "c": "requested"}, "", {"parallel": 2}, "a b"),
        ({"a": "started", "b": "requested", "c": "requested"}, "a", {"parallel": 2}, "b"),
        ({"a": "done", "b": "started", "c": "requested", "d": "requested"}, "b", {"parallel": 2}, "c"),
        ({"a": "requested", "b": "requested"}, "", {"sequential": True}, "a"),
        ({"a": "done", "b": "requested"}, "", {"sequential": True}, "b"),
        ({"a": "requested", "b": "requested"}, "", {"alone": frozenset("a")}, "a"),
        ({"a": "requested", "b": "requested", "c": "requested"}, "", {"alone": frozenset("b")}, "a"),
        ({"a": "done", "b": "requested", "c": "requested"}, "", {"alone": frozenset("b")}, "b"),
        ({"a": "suspended", "b": "requested"}, "", {}, "b"),
        ({"a": "suspended", "b": "requested"}, "", {"sequential": True}, "b"),
    ],
)
def test_calls_start_within_slots_and_sequence(
    states: dict[str, str], live: str, rules: dict[str, Any], expected: str
) -> None:
    found = move(acting(live=live, **states), **rules)
    assert isinstance(found, Execute)
    assert names(found) == expected


@pytest.mark.parametrize(
    ("states", "live", "rules"),
    [
        ({"a": "started"}, "a", {}),
        ({"a": "started", "b": "started", "c": "requested"}, "a b", {"parallel": 2}),
        ({"a": "started", "b": "requested"}, "a", {"sequential": True}),
        ({"a": "started", "b": "requested"}, "a", {"alone": frozenset("a")}),
        ({"a": "started", "b": "requested"}, "a", {"alone": frozenset("b")}),
        ({"a": "started", "b": "suspended"}, "a", {}),
    ],
)
def test_running_call_is_awaited_when_nothing_more_may_start(
    states: dict[str, str], live: str, rules: dict[str, Any]
) -> None:
    assert move(acting(live=live, **states), **rules) == Await()


def test_deferred_call_waits_while_sibling_runs() -> None:
    assert move(acting(live="a", deferred="b", a="started", b="requested")) == Await()


def test_deferred_call_does_not_hold_back_calls_behind_it() -> None:
    found = move(acting(live="a", deferred="b", a="started", b="requested", c="requested"))
    assert isinstance(found, Execute)
    assert names(found) == "c"


def test_deferred_call_is_gated_again_when_due() -> None:
    found = move(acting(a="done", b="requested"))
    assert isinstance(found, Execute)
    assert names(found) == "b"


def test_step_ends_when_every_call_is_finished() -> None:
    assert move(acting(a="done", b="done")) == EndStep()


def test_answer_without_calls_ends_its_step() -> None:
    assert move(acting()) == EndStep()


def test_due_hooks_come_before_next_call() -> None:
    found = move(acting(a="done!", b="requested"))
    assert isinstance(found, AfterCalls)
    assert names(found) == "a"


def test_due_hooks_of_all_calls_run_together() -> None:
    found = move(acting(live="c", a="done!", b="done!", c="started"))
    assert isinstance(found, AfterCalls)
    assert names(found) == "a b"


# -- suspending and resuming ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "states",
    [{"a": "suspended"}, {"a": "done", "b": "suspended"}, {"a": "suspended", "b": "done", "c": "suspended"}],
)
def test_run_waits_when_only_suspended_calls_are_left(states: dict[str, str]) -> None:
    waiting = tuple(f"ticket-{name}" for name, state in states.items() if state == "suspended")
    assert move(acting(**states)) == SuspendRun(waiting)


def test_suspended_call_does_not_stop_its_siblings() -> None:
    assert isinstance(move(acting(a="suspended", b="requested")), Execute)


def test_decision_is_applied_first_in_step() -> None:
    view = acting(inbox=(decided("a"),), a="suspended", b="requested")
    found = move(view)
    assert isinstance(found, Take)
    assert names(found) == "decision-a"


def test_decision_is_applied_while_siblings_run() -> None:
    found = move(acting(live="b", inbox=(decided("a"),), a="suspended", b="started"))
    assert isinstance(found, Take)


def test_decisions_are_applied_together_in_order() -> None:
    found = move(acting(inbox=(decided("b"), decided("a")), a="suspended", b="suspended"))
    assert isinstance(found, Take)
    assert names(found) == "decision-b decision-a"


def test_answered_call_runs_while_sibling_waits() -> None:
    found = move(acting(a="requested", b="suspended"))
    assert isinstance(found, Execute)
    assert names(found) == "a"


def test_partly_answered_run_waits_again() -> None:
    assert move(acting(a="done", b="suspended")) == SuspendRun(("ticket-b",))


# -- recovering ----------------------------------------------------------------------------------------------


def test_orphaned_calls_are_recovered() -> None:
    found = move(acting(a="started", b="requested", c="started"))
    assert isinstance(found, Recover)
    assert names(found) == "a c"


def test_only_orphaned_calls_are_recovered() -> None:
    found = move(acting(live="a", a="started", b="started"))
    assert isinstance(found, Recover)
    assert names(found) == "b"


def test_orphaned_call_is_recovered_before_run_waits() -> None:
    assert isinstance(move(acting(a="suspended", b="started")), Recover)


# -- ending --------------------------------------------------------------------------------------------------

ENDINGS = [NaturalEnd(), STOPPED, EndRequested("enough"), Blocked("no")]


@pytest.mark.parametrize("termination", [*ENDINGS, Failed("ValueError", "no"), Cancelled("enough")])
def test_run_with_ending_finishes_once_its_step_is_closed(termination: Any) -> None:
    assert move(between(steps=1, ending=termination)) == Finish(termination)


@pytest.mark.parametrize("termination", ENDINGS)
def test_unstarted_calls_are_dropped_when_run_ends(termination: Any) -> None:
    found = move(ending(acting(a="done", b="requested", c="suspended"), termination))
    assert isinstance(found, Drop)
    assert names(found) == "b c"


@pytest.mark.parametrize("termination", ENDINGS)
def test_running_calls_are_awaited_when_run_ends(termination: Any) -> None:
    assert move(ending(acting(live="a", a="started", b="requested"), termination)) == Await()


@pytest.mark.parametrize("termination", ENDINGS)
def test_no_call_starts_when_run_is_ending(termination: Any) -> None:
    assert not isinstance(move(ending(acting(a="requested"), termination)), Execute)


def test_failed_run_stops_then_settles_then_drops_calls() -> None:
    failed = Failed("HookFailed", "no")
    assert move(ending(acting(live="a", a="started", b="requested"), failed)) == Interrupt("the run failed")
    assert isinstance(move(ending(acting(a="started", b="requested"), failed)), Recover)
    assert isinstance(move(ending(acting(a="done", b="requested"), failed)), Drop)
    assert move(ending(acting(a="done", b="done"), failed)) == Finish(failed)


# -- cancelling ----------------------------------------------------------------------------------------------

WHY = "the run was cancelled"


@pytest.mark.parametrize("fields", [{}, {"steps": 1}, {"steps": 1, "stage": "inferring"}, {"next_agent": "b"}])
def test_cancelled_run_without_open_calls_finishes_at_once(fields: dict[str, Any]) -> None:
    assert move(cancelled(between(**fields))) == Finish(Cancelled("enough"))


def test_cancel_reaches_calls_in_every_state() -> None:
    everything = acting(live="a", a="started", b="requested", c="suspended", d="done")
    assert move(cancelled(everything)) == Interrupt(WHY)
    stopped = acting(a="started", b="requested", c="suspended", d="done")
    assert names(move(cancelled(stopped))) == "a"
    assert isinstance(move(cancelled(stopped)), Recover)
    reported = move(cancelled(acting(a="done", b="requested", c="suspended", d="done")))
    assert isinstance(reported, Drop)
    assert names(reported) == "b c"
    assert move(cancelled(acting(a="done", b="done"))) == Finish(Cancelled("enough"))


def test_cancel_beats_decisions_and_steering() -> None:
    assert move(cancelled(between(given("steer"), task_result()))) == Finish(Cancelled("enough"))
    assert isinstance(move(cancelled(acting(inbox=(decided("a"),), a="suspended"))), Drop)


def test_cancel_beats_another_ending() -> None:
    assert move(cancelled(between(steps=1, ending=NaturalEnd()))) == Finish(Cancelled("enough"))
    assert move(cancelled(between(steps=1, tasks=1, ending=NaturalEnd()))) == Finish(Cancelled("enough"))


# -- input and tasks -----------------------------------------------------------------------------------------


def test_steering_is_applied_between_steps() -> None:
    found = move(between(given("queue", "q"), given("steer", "s"), task_result("done"), steps=1))
    assert isinstance(found, Take)
    assert names(found) == "s done"


def test_steering_waits_for_results_of_open_step() -> None:
    steer = (given("steer"),)
    assert move(acting(live="a", inbox=steer, a="started")) == Await()
    assert isinstance(move(acting(inbox=steer, a="requested")), Execute)
    assert move(acting(inbox=steer, a="suspended")) == SuspendRun(("ticket-a",))
    assert move(acting(inbox=steer, a="done")) == EndStep()


def test_steering_is_applied_at_natural_end() -> None:
    found = move(between(given("steer"), steps=1, ending=NaturalEnd()))
    assert isinstance(found, Take)


@pytest.mark.parametrize("termination", [STOPPED, EndRequested(), Blocked("no"), Failed("E", "no")])
def test_steering_does_not_revive_ended_run(termination: Any) -> None:
    assert move(between(given("steer"), steps=1, ending=termination)) == Finish(termination)


def test_queued_input_is_left_for_next_run() -> None:
    assert move(between(given("queue"), steps=1)) == Infer()
    assert move(between(given("queue"), steps=1, ending=NaturalEnd())) == Finish(NaturalEnd())


def test_live_tasks_at_natural_end_are_waited_for() -> None:
    assert move(between(steps=1, tasks=2, ending=NaturalEnd())) == WaitForTasks()


def test_task_result_is_applied_before_next_wait() -> None:
    assert isinstance(move(between(task_result(), steps=1, tasks=1, ending=NaturalEnd())), Take)


@pytest.mark.parametrize("termination", [STOPPED, EndRequested(), Blocked("no"), Failed("E", "no")])
def test_tasks_do_not_delay_ended_run(termination: Any) -> None:
    assert move(between(steps=1, tasks=1, ending=termination)) == Finish(termination)


def test_live_tasks_do_not_matter_between_steps() -> None:
    assert move(between(steps=1, tasks=1)) == Infer()


# -- limits --------------------------------------------------------------------------------------------------


def stopped(found: Move) -> str | None:
    """The policy that ends the run, if one does."""
    if isinstance(found, Finish) and isinstance(found.termination, Stopped):
        return found.termination.policy
    assert found == Infer()
    return None


@pytest.mark.parametrize(("steps", "expected"), [(1, None), (2, "max_steps"), (3, "max_steps")])
def test_no_step_begins_beyond_limit(steps: int, expected: str | None) -> None:
    assert stopped(move(between(steps=steps), steps=2)) == expected


@pytest.mark.parametrize(("tokens", "expected"), [(99, None), (100, None), (101, "token_budget")])
def test_run_continues_exactly_at_token_budget(tokens: int, expected: str | None) -> None:
    view = between(steps=1, usage=Usage(input_tokens=tokens - 40, output_tokens=40))
    assert stopped(move(view, stop=(TokenBudget(100),))) == expected


@pytest.mark.parametrize(("cost", "expected"), [(100, None), (101, "cost_budget")])
def test_run_continues_exactly_at_cost_budget(cost: int, expected: str | None) -> None:
    assert stopped(move(between(steps=1, usage=Usage(cost=cost)), stop=(CostBudget(100),))) == expected


@pytest.mark.parametrize(("later", "expected"), [(2000, None), (2001, "wall_time")])
def test_run_continues_exactly_at_wall_time(later: int, expected: str | None) -> None:
    assert stopped(move(between(steps=1), NOW + later, stop=(WallTime(2),))) == expected


@pytest.mark.parametrize(("calls", "expected"), [(5, None), (6, "tree_calls")])
def test_run_continues_exactly_at_tree_call_limit(calls: int, expected: str | None) -> None:
    view = between(steps=1)
    view.tree = Tree(calls=calls)
    assert stopped(move(view, tree_calls=5)) == expected


def test_tree_policy_counts_tree_and_plain_policy_run() -> None:
    view = between(steps=1, usage=Usage(input_tokens=10))
    view.tree = Tree(Usage(input_tokens=500, cost=500), started_at=NOW - 60_000)
    assert stopped(move(view, stop=(TokenBudget(100), CostBudget(100), WallTime(5)))) is None
    assert stopped(move(view, stop=(TokenBudget(100, tree=True),))) == "token_budget"
    assert stopped(move(view, stop=(CostBudget(100, tree=True),))) == "cost_budget"
    assert stopped(move(view, stop=(WallTime(5, tree=True),))) == "wall_time"


def test_first_policy_in_list_is_named() -> None:
    view = between(steps=1, usage=Usage(input_tokens=101, cost=101))
    assert stopped(move(view, stop=(CostBudget(100), TokenBudget(100)))) == "cost_budget"


def test_run_without_steps_is_not_stopped() -> None:
    assert move(between(), NOW + 60_000, stop=(WallTime(1),)) == Infer()


def test_limits_do_not_stop_open_step() -> None:
    over = (TokenBudget(1),)
    used = record(stage="acting", steps=1, usage=Usage(input_tokens=100))
    view = acting(a="requested")
    view.run = used
    assert isinstance(move(view, stop=over), Execute)


# -- handing over --------------------------------------------------------------------------------------------


def test_handoff_happens_between_steps() -> None:
    assert move(between(steps=1, next_agent="b")) == SwitchAgent("b")


def test_handoff_waits_for_open_step() -> None:
    view = acting(live="a", a="started")
    view.run = replace(view.run, next_agent="b")
    assert move(view) == Await()


def test_handoff_comes_before_steering_and_limits() -> None:
    assert move(between(given("steer"), steps=2, next_agent="b"), steps=2) == SwitchAgent("b")


def test_ending_run_ignores_handoff() -> None:
    assert move(between(steps=1, next_agent="b", ending=NaturalEnd())) == Finish(NaturalEnd())


# -- deadlines -----------------------------------------------------------------------------------------------


def due(view: RunView, **deadlines: int | None) -> RunView:
    """The same view, with tickets that have these deadlines."""
    for call_id, deadline in deadlines.items():
        view.tickets[f"ticket-{call_id}"] = replace(view.tickets[f"ticket-{call_id}"], deadline=deadline)
    return view


def late(found: Move) -> list[str]:
    """The calls whose tickets a move finds overdue."""
    assert isinstance(found, Overdue)
    return [ticket.call_id for ticket in found.tickets]


def test_ticket_is_overdue_at_its_deadline_and_not_before() -> None:
    assert isinstance(move(due(acting(a="suspended"), a=NOW + 1)), SuspendRun)
    assert late(move(due(acting(a="suspended"), a=NOW))) == ["a"]


def test_only_due_tickets_are_overdue() -> None:
    view = acting(a="suspended", b="suspended", c="suspended", d="suspended")
    assert late(move(due(view, a=NOW - 1, b=NOW + 1, c=NOW, d=None))) == ["a", "c"]


def test_overdue_ticket_does_not_wait_for_running_siblings() -> None:
    assert late(move(due(acting(live="b", a="suspended", b="started"), a=NOW))) == ["a"]


def test_answer_before_deadline_is_applied_counts() -> None:
    assert isinstance(move(due(acting(inbox=(decided("a"),), a="suspended"), a=NOW - 1)), Take)


@pytest.mark.parametrize("how", [cancelled, lambda view: ending(view, EndRequested("enough"))])
def test_ending_run_applies_no_default(how: Any) -> None:
    assert isinstance(move(how(due(acting(a="suspended"), a=NOW - 1))), Drop)
