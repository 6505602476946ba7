"""What a run does next, as a function of where it stands: starting, resuming and recovering are one table."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from wakeful import CostBudget, TokenBudget, Usage, WallTime
from wakeful.loop import RunView, Tree
from wakeful.loop._moves import (
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
from wakeful.types.runs import BehaviourRequested, Blocked, Cancelled, Failed, NaturalEnd, Stopped

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


def test_a_fresh_run_asks_the_model() -> None:
    assert move(between()) == Infer()


def test_a_step_that_was_begun_and_has_no_answer_asks_the_model_again() -> None:
    assert move(between(stage="inferring", steps=1)) == Infer()


def test_a_step_that_was_begun_is_finished_even_at_the_limit() -> None:
    assert move(between(stage="inferring", steps=2), steps=2) == Infer()


def test_after_a_step_the_model_is_asked_again() -> None:
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
def test_calls_start_as_far_as_slots_and_sequence_allow(
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
def test_a_running_call_is_awaited_when_nothing_more_may_start(
    states: dict[str, str], live: str, rules: dict[str, Any]
) -> None:
    assert move(acting(live=live, **states), **rules) == Await()


def test_a_deferred_call_waits_while_a_sibling_runs() -> None:
    assert move(acting(live="a", deferred="b", a="started", b="requested")) == Await()


def test_a_deferred_call_does_not_hold_back_the_calls_behind_it() -> None:
    found = move(acting(live="a", deferred="b", a="started", b="requested", c="requested"))
    assert isinstance(found, Execute)
    assert names(found) == "c"


def test_a_call_whose_deferral_is_over_is_asked_about_again() -> None:
    found = move(acting(a="done", b="requested"))
    assert isinstance(found, Execute)
    assert names(found) == "b"


def test_the_step_ends_when_every_call_is_finished() -> None:
    assert move(acting(a="done", b="done")) == EndStep()


def test_an_answer_without_calls_ends_its_step() -> None:
    assert move(acting()) == EndStep()


def test_hooks_that_are_due_come_before_the_next_call() -> None:
    found = move(acting(a="done!", b="requested"))
    assert isinstance(found, AfterCalls)
    assert names(found) == "a"


def test_hooks_of_all_calls_that_have_them_due_run_together_while_others_run() -> None:
    found = move(acting(live="c", a="done!", b="done!", c="started"))
    assert isinstance(found, AfterCalls)
    assert names(found) == "a b"


# -- suspending and resuming ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "states",
    [{"a": "suspended"}, {"a": "done", "b": "suspended"}, {"a": "suspended", "b": "done", "c": "suspended"}],
)
def test_the_run_waits_when_only_suspended_calls_are_left(states: dict[str, str]) -> None:
    waiting = tuple(f"ticket-{name}" for name, state in states.items() if state == "suspended")
    assert move(acting(**states)) == SuspendRun(waiting)


def test_a_suspended_call_does_not_stop_its_siblings() -> None:
    assert isinstance(move(acting(a="suspended", b="requested")), Execute)


def test_a_decision_is_taken_in_before_anything_else_of_the_step() -> None:
    view = acting(inbox=(decided("a"),), a="suspended", b="requested")
    found = move(view)
    assert isinstance(found, Take)
    assert names(found) == "decision-a"


def test_a_decision_is_taken_in_while_siblings_run() -> None:
    found = move(acting(live="b", inbox=(decided("a"),), a="suspended", b="started"))
    assert isinstance(found, Take)


def test_decisions_are_taken_in_together_in_their_order() -> None:
    found = move(acting(inbox=(decided("b"), decided("a")), a="suspended", b="suspended"))
    assert isinstance(found, Take)
    assert names(found) == "decision-b decision-a"


def test_an_answered_call_runs_while_its_sibling_goes_on_waiting() -> None:
    found = move(acting(a="requested", b="suspended"))
    assert isinstance(found, Execute)
    assert names(found) == "a"


def test_with_a_partial_answer_the_run_waits_again_for_the_rest() -> None:
    assert move(acting(a="done", b="suspended")) == SuspendRun(("ticket-b",))


# -- recovering ----------------------------------------------------------------------------------------------


def test_started_calls_that_nobody_runs_are_recovered() -> None:
    found = move(acting(a="started", b="requested", c="started"))
    assert isinstance(found, Recover)
    assert names(found) == "a c"


def test_only_the_calls_that_nobody_runs_are_recovered() -> None:
    found = move(acting(live="a", a="started", b="started"))
    assert isinstance(found, Recover)
    assert names(found) == "b"


def test_a_started_call_is_recovered_before_the_run_waits_for_its_sibling() -> None:
    assert isinstance(move(acting(a="suspended", b="started")), Recover)


# -- ending --------------------------------------------------------------------------------------------------

ENDINGS = [NaturalEnd(), STOPPED, BehaviourRequested("enough"), Blocked("no")]


@pytest.mark.parametrize("termination", [*ENDINGS, Failed("ValueError", "no"), Cancelled("enough")])
def test_a_run_with_an_ending_finishes_once_its_step_is_closed(termination: Any) -> None:
    assert move(between(steps=1, ending=termination)) == Finish(termination)


@pytest.mark.parametrize("termination", ENDINGS)
def test_calls_that_did_not_start_are_dropped_when_the_run_ends(termination: Any) -> None:
    found = move(ending(acting(a="done", b="requested", c="suspended"), termination))
    assert isinstance(found, Drop)
    assert names(found) == "b c"


@pytest.mark.parametrize("termination", ENDINGS)
def test_calls_that_run_are_awaited_when_the_run_ends(termination: Any) -> None:
    assert move(ending(acting(live="a", a="started", b="requested"), termination)) == Await()


@pytest.mark.parametrize("termination", ENDINGS)
def test_no_call_starts_once_the_run_has_an_ending(termination: Any) -> None:
    assert not isinstance(move(ending(acting(a="requested"), termination)), Execute)


def test_a_failed_run_stops_its_calls_then_asks_about_them_then_drops_the_rest() -> None:
    failed = Failed("HookFailed", "no")
    assert move(ending(acting(live="a", a="started", b="requested"), failed)) == Interrupt("the run failed")
    assert isinstance(move(ending(acting(a="started", b="requested"), failed)), Recover)
    assert isinstance(move(ending(acting(a="done", b="requested"), failed)), Drop)
    assert move(ending(acting(a="done", b="done"), failed)) == Finish(failed)


# -- cancelling ----------------------------------------------------------------------------------------------

WHY = "the run was cancelled"


@pytest.mark.parametrize("fields", [{}, {"steps": 1}, {"steps": 1, "stage": "inferring"}, {"next_agent": "b"}])
def test_a_cancelled_run_without_open_calls_finishes_at_once(fields: dict[str, Any]) -> None:
    assert move(cancelled(between(**fields))) == Finish(Cancelled("enough"))


def test_cancelling_reaches_calls_in_every_state() -> None:
    everything = acting(live="a", a="started", b="requested", c="suspended", d="done")
    assert move(cancelled(everything)) == Interrupt(WHY)
    stopped = acting(a="started", b="requested", c="suspended", d="done")
    assert names(move(cancelled(stopped))) == "a"
    assert isinstance(move(cancelled(stopped)), Recover)
    reported = move(cancelled(acting(a="done", b="requested", c="suspended", d="done")))
    assert isinstance(reported, Drop)
    assert names(reported) == "b c"
    assert move(cancelled(acting(a="done", b="done"))) == Finish(Cancelled("enough"))


def test_cancelling_beats_decisions_and_steering() -> None:
    assert move(cancelled(between(given("steer"), task_result()))) == Finish(Cancelled("enough"))
    assert isinstance(move(cancelled(acting(inbox=(decided("a"),), a="suspended"))), Drop)


def test_cancelling_beats_another_ending() -> None:
    assert move(cancelled(between(steps=1, ending=NaturalEnd()))) == Finish(Cancelled("enough"))
    assert move(cancelled(between(steps=1, tasks=1, ending=NaturalEnd()))) == Finish(Cancelled("enough"))


# -- input and tasks -----------------------------------------------------------------------------------------


def test_steering_is_taken_in_between_steps() -> None:
    found = move(between(given("queue", "q"), given("steer", "s"), task_result("done"), steps=1))
    assert isinstance(found, Take)
    assert names(found) == "s done"


def test_steering_waits_for_the_results_of_the_open_step() -> None:
    steer = (given("steer"),)
    assert move(acting(live="a", inbox=steer, a="started")) == Await()
    assert isinstance(move(acting(inbox=steer, a="requested")), Execute)
    assert move(acting(inbox=steer, a="suspended")) == SuspendRun(("ticket-a",))
    assert move(acting(inbox=steer, a="done")) == EndStep()


def test_steering_at_the_natural_end_is_taken_in() -> None:
    found = move(between(given("steer"), steps=1, ending=NaturalEnd()))
    assert isinstance(found, Take)


@pytest.mark.parametrize("termination", [STOPPED, BehaviourRequested(), Blocked("no"), Failed("E", "no")])
def test_steering_does_not_revive_a_run_that_was_ended(termination: Any) -> None:
    assert move(between(given("steer"), steps=1, ending=termination)) == Finish(termination)


def test_queued_input_is_left_for_the_next_run() -> None:
    assert move(between(given("queue"), steps=1)) == Infer()
    assert move(between(given("queue"), steps=1, ending=NaturalEnd())) == Finish(NaturalEnd())


def test_live_tasks_at_the_natural_end_are_waited_for() -> None:
    assert move(between(steps=1, tasks=2, ending=NaturalEnd())) == WaitForTasks()


def test_a_tasks_result_is_taken_in_before_waiting_for_the_other_tasks() -> None:
    assert isinstance(move(between(task_result(), steps=1, tasks=1, ending=NaturalEnd())), Take)


@pytest.mark.parametrize("termination", [STOPPED, BehaviourRequested(), Blocked("no"), Failed("E", "no")])
def test_tasks_do_not_hold_back_a_run_that_was_ended(termination: Any) -> None:
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
def test_no_step_begins_beyond_the_limit(steps: int, expected: str | None) -> None:
    assert stopped(move(between(steps=steps), steps=2)) == expected


@pytest.mark.parametrize(("tokens", "expected"), [(99, None), (100, None), (101, "token_budget")])
def test_exactly_at_the_token_budget_goes_on(tokens: int, expected: str | None) -> None:
    view = between(steps=1, usage=Usage(input_tokens=tokens - 40, output_tokens=40))
    assert stopped(move(view, stop=(TokenBudget(100),))) == expected


@pytest.mark.parametrize(("cost", "expected"), [(100, None), (101, "cost_budget")])
def test_exactly_at_the_cost_budget_goes_on(cost: int, expected: str | None) -> None:
    assert stopped(move(between(steps=1, usage=Usage(cost=cost)), stop=(CostBudget(100),))) == expected


@pytest.mark.parametrize(("later", "expected"), [(2000, None), (2001, "wall_time")])
def test_exactly_at_the_wall_time_goes_on(later: int, expected: str | None) -> None:
    assert stopped(move(between(steps=1), NOW + later, stop=(WallTime(2),))) == expected


@pytest.mark.parametrize(("calls", "expected"), [(5, None), (6, "tree_calls")])
def test_exactly_at_the_calls_of_the_tree_goes_on(calls: int, expected: str | None) -> None:
    view = between(steps=1)
    view.tree = Tree(calls=calls)
    assert stopped(move(view, tree_calls=5)) == expected


def test_a_tree_wide_policy_counts_the_tree_and_a_plain_one_the_run() -> None:
    view = between(steps=1, usage=Usage(input_tokens=10))
    view.tree = Tree(Usage(input_tokens=500, cost=500), started_at=NOW - 60_000)
    assert stopped(move(view, stop=(TokenBudget(100), CostBudget(100), WallTime(5)))) is None
    assert stopped(move(view, stop=(TokenBudget(100, tree=True),))) == "token_budget"
    assert stopped(move(view, stop=(CostBudget(100, tree=True),))) == "cost_budget"
    assert stopped(move(view, stop=(WallTime(5, tree=True),))) == "wall_time"


def test_the_first_policy_in_the_list_is_the_one_named() -> None:
    view = between(steps=1, usage=Usage(input_tokens=101, cost=101))
    assert stopped(move(view, stop=(CostBudget(100), TokenBudget(100)))) == "cost_budget"


def test_a_run_that_has_had_no_step_is_not_stopped() -> None:
    assert move(between(), NOW + 60_000, stop=(WallTime(1),)) == Infer()


def test_limits_stop_no_step_that_has_begun() -> None:
    over = (TokenBudget(1),)
    used = record(stage="acting", steps=1, usage=Usage(input_tokens=100))
    view = acting(a="requested")
    view.run = used
    assert isinstance(move(view, stop=over), Execute)


# -- handing over --------------------------------------------------------------------------------------------


def test_another_agent_takes_over_between_steps() -> None:
    assert move(between(steps=1, next_agent="b")) == SwitchAgent("b")


def test_a_handoff_waits_for_the_open_step() -> None:
    view = acting(live="a", a="started")
    view.run = replace(view.run, next_agent="b")
    assert move(view) == Await()


def test_a_handoff_comes_before_steering_and_limits() -> None:
    assert move(between(given("steer"), steps=2, next_agent="b"), steps=2) == SwitchAgent("b")


def test_a_run_that_ends_hands_nothing_over() -> None:
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


def test_a_ticket_is_overdue_at_its_deadline_and_not_before() -> None:
    assert isinstance(move(due(acting(a="suspended"), a=NOW + 1)), SuspendRun)
    assert late(move(due(acting(a="suspended"), a=NOW))) == ["a"]


def test_only_the_tickets_whose_time_has_come_are_overdue() -> None:
    view = acting(a="suspended", b="suspended", c="suspended", d="suspended")
    assert late(move(due(view, a=NOW - 1, b=NOW + 1, c=NOW, d=None))) == ["a", "c"]


def test_an_overdue_ticket_does_not_wait_for_running_siblings() -> None:
    assert late(move(due(acting(live="b", a="suspended", b="started"), a=NOW))) == ["a"]


def test_an_answer_that_came_before_the_deadline_was_acted_on_counts() -> None:
    assert isinstance(move(due(acting(inbox=(decided("a"),), a="suspended"), a=NOW - 1)), Take)


@pytest.mark.parametrize("how", [cancelled, lambda view: ending(view, BehaviourRequested("enough"))])
def test_a_run_that_ends_asks_nobody_for_a_default(how: Any) -> None:
    assert isinstance(move(how(due(acting(a="suspended"), a=NOW - 1))), Drop)
