"""Boundaries of a run: inbox items, overdue tickets, the end of a step and the switch to another agent."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence

from msgspec.structs import replace

from ..agents import handoff_refusal
from ..errors import Conflict
from ..plugins import Step
from ..tools import default_decision, error_reply, escalate_ticket
from ..types.calls import Call
from ..types.events import Handoff, StepEnd
from ..types.inbox import DecisionItem, InboxItem, InputItem, TaskItem
from ..types.runs import Stopped
from .activation import Activation
from .calls.decisions import apply_decision, apply_decision_item, write_change
from .calls.ledger import finished
from .calls.lifecycle import apply_task_items
from .commits import flush, read_inbox
from .disclosure import note_error
from .inference.reload import reload_history
from .inference.summaries import land_summary
from .moves import EndStep, Overdue, PassOn, Poll, SwitchAgent, Take, steering_items
from .phases import run_phase
from .reports import tell_news

__all__ = [
    "close_step",
    "end_step",
    "pass_on",
    "poll",
    "resolve_overdue",
    "supersede_calls",
    "switch_agent",
    "take_input",
    "take_items",
]


async def resolve_overdue(act: Activation, move: Overdue) -> None:
    """Escalate tickets whose deadline has passed, or apply their default decision."""
    for ticket in move.tickets:
        if ticket.escalate:
            write_change(act, *escalate_ticket(ticket, act.now))
        else:
            apply_decision(act, default_decision(ticket, act.now))


async def take(act: Activation, move: Take) -> None:
    """Take the inbox items of a move."""
    await take_items(act, move.items)


async def take_items(act: Activation, items: Sequence[InboxItem]) -> None:
    """Take inbox items: decisions and reports go to their calls, input joins the conversation."""
    inputs = [item for item in items if isinstance(item, InputItem)]
    for item in [item for item in items if not isinstance(item, InputItem)]:
        act.view.inbox.pop(item.id, None)
        act.take(item.id)
    if reports := [item for item in items if isinstance(item, TaskItem)]:
        apply_task_items(act, reports)
    for item in items:
        if isinstance(item, DecisionItem):
            apply_decision_item(act, item)
    if inputs:
        await take_input(act, inputs)


def steering_input(act: Activation) -> InputItem | None:
    """The next input that steers the run, if any is due."""
    return next((item for item in steering_items(act.view, act.now) if isinstance(item, InputItem)), None)


async def take_input(act: Activation, items: list[InputItem]) -> None:
    """Add input to the conversation. Until the commit, its sender can still edit or retract it."""
    await flush(act)
    before = act.view.run
    for item in items:
        act.view.inbox.pop(item.id, None)
        act.take(item.id, item.revision)
        act.log(item.message)
        act.link(item)
    hops = [item.message.producer.hops for item in items if item.message.producer]
    act.set_run(ending=None, hops=max([before.hops, *hops]))
    try:
        await flush(act)
    except Conflict:
        _untake(act, items)
        act.set_run(ending=before.ending, hops=before.hops)
        await read_inbox(act)


def _untake(act: Activation, items: Sequence[InputItem]) -> None:
    """Undo `take` after a conflict: one of the items was edited meanwhile."""
    ids, messages = {item.id for item in items}, [item.message for item in items]
    act.taken = tuple([item_id for item_id in act.taken if item_id not in ids])
    act.draft.untake(ids, messages)
    act.history[:] = [known for known in act.history if all(known is not m for m in messages)]


def end_step(act: Activation, move: EndStep) -> Awaitable[None] | None:
    """Close the step; returns None if no hook must run first."""
    if not act.hookless and act.has_hooks("step_end"):
        return _end_step_with_hooks(act)
    close_step(act)
    return None


async def _end_step_with_hooks(act: Activation) -> None:
    await run_phase(act, "step_end", act.agent.hooks["step_end"], Step)
    close_step(act)


def close_step(act: Activation) -> None:
    """Write the end of the step, and what waited for it: news of tasks and a finished summary."""
    view, draft, now = act.view, act.draft, act.now
    run = view.run
    view.run = draft.run = replace(run, stage="between", updated_at=now)
    if view.calls:
        view.calls.clear()
    draft.log.append(StepEnd(act.identity, 0, now, run.steps))
    if run.news:
        tell_news(act)
    if act.window is not None:
        land_summary(act)


async def pass_on(act: Activation, move: PassOn) -> None:
    """Close the step so that the backend gets the answers that exist.

    The other questions keep their tickets: the backend asks them again, or withdraws them.
    """
    await _close_questions(
        act, move.calls, "isn't answered yet, and is asked again once the other answers arrived"
    )


async def poll(act: Activation, move: Poll) -> None:
    """Look at the backend's remote; if it continued without an answer, close the step so that it is followed.

    A question that it still asks keeps its ticket.
    """
    if await act.env.poll_remote(act):
        await _close_questions(act, move.calls, "wasn't answered here: the remote agent continued without it")


async def _close_questions(act: Activation, calls: Iterable[Call], why: str) -> None:
    """Close a step whose questions have no answer, without their tickets."""
    supersede_calls(act, calls, why)
    await run_phase(act, "step_end", act.agent.hooks["step_end"], Step)
    close_step(act)


def supersede_calls(act: Activation, calls: Iterable[Call], why: str) -> None:
    """Finish calls that get no result."""
    for call in calls:
        reply = error_reply(call.id, call.name, "superseded", f"{call.name} {why}.")
        act.change(finished(call, reply, "superseded", act.identity, act.now))


async def switch_agent(act: Activation, move: SwitchAgent) -> None:
    """Hand the run off to another agent: plugins that leave are deactivated before new ones are activated."""
    run, now = act.view.run, act.now
    if run.handoffs >= act.rules.limits.handoffs:
        detail = f"more than {act.rules.limits.handoffs} handoffs"
        act.set_run(next_agent=None, ending=Stopped("max_handoffs", detail))
        return
    old, new = act.agent, act.env.registry.resolve(move.agent_id)
    if (refusal := handoff_refusal(new.id, new.backend)) is not None:
        act.set_run(next_agent=None)
        note_error(act, refusal, "handoff")
        return
    act.give_up(act.view.tickets.values())  # Those of a backend, which won't get the answers.
    leaving = [h for h in old.hooks["deactivate"] if h.plugin not in new.configs]
    await run_phase(act, "deactivate", leaving, Step)
    act.use_agent(replace(run, agent_id=move.agent_id))
    try:
        # Before the handoff is written: after a crash, `activate` runs again rather than never.
        arriving = [h for h in new.hooks["activate"] if h.plugin not in old.configs]
        await run_phase(act, "activate", arriving, Step)
    finally:
        wanted = act.view.run.next_agent
        act.set_run(
            agent_id=move.agent_id,
            next_agent=None if wanted == move.agent_id else wanted,
            handoffs=run.handoffs + 1,
        )
        act.log(Handoff(act.identity, 0, now, run.agent_id, move.agent_id))
        if act.span is not None and act.env.tracer is not None:
            act.span.end(None)
            act.span = act.env.tracer.begin_run(act)
    if new.agent.limits.history != old.agent.limits.history:
        await reload_history(act)
