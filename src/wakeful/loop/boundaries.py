"""Boundaries of a run: inbox items, overdue tickets, the end of a step and the switch to another agent."""

from __future__ import annotations

from collections.abc import Awaitable

from msgspec.structs import replace

from ..agents import handoff_refusal
from ..context import SummaryKey
from ..errors import Conflict
from ..plugins import Step
from ..tools import default_decision, error_reply, escalate_ticket
from ..types.events import Handoff, StepEnd
from ..types.inbox import DecisionItem, InputItem, TaskItem
from ..types.runs import Stopped
from .activation import Activation
from .calls.decisions import apply_decision, apply_decision_item, reassign_ticket
from .calls.ledger import finished
from .calls.lifecycle import apply_task_items
from .commits import flush, read_inbox
from .inference.history import history_of
from .inference.summaries import land_summary
from .moves import EndStep, Overdue, PassOn, SwitchAgent, Take
from .phases import run_phase
from .reports import tell_news

__all__ = ["close_step", "end_step", "pass_on", "resolve_overdue", "switch_agent", "take_items"]


async def resolve_overdue(act: Activation, move: Overdue) -> None:
    """Escalate tickets whose deadline has passed, or apply their default decision."""
    for ticket in move.tickets:
        if ticket.escalate:
            reassign_ticket(act, *escalate_ticket(ticket, act.now))
        else:
            apply_decision(act, default_decision(ticket, act.now))


async def take_items(act: Activation, move: Take) -> None:
    """Take inbox items: decisions and reports go to their calls, input joins the conversation."""
    inputs = [item for item in move.items if isinstance(item, InputItem)]
    for item in [item for item in move.items if not isinstance(item, InputItem)]:
        act.view.inbox.pop(item.id, None)
        act.take(item.id)
    if reports := [item for item in move.items if isinstance(item, TaskItem)]:
        apply_task_items(act, reports)
    for item in move.items:
        if isinstance(item, DecisionItem):
            apply_decision_item(act, item)
    if inputs:
        await _take_input(act, inputs)


async def _take_input(act: Activation, items: list[InputItem]) -> None:
    """Add input to the conversation. Until the commit, its sender can still edit or retract it."""
    await flush(act)
    before = act.view.run
    for item in items:
        act.view.inbox.pop(item.id, None)
        act.take(item.id, item.revision)
        act.log(item.message)
    hops = [item.message.producer.hops for item in items if item.message.producer]
    act.set_run(ending=None, hops=max([before.hops, *hops]))
    try:
        await flush(act)
    except Conflict:
        act.untake(items)
        act.set_run(ending=before.ending, hops=before.hops)
        await read_inbox(act)


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
    for call in move.calls:
        text = f"{call.name} isn't answered yet, and is asked again once the other answers are told."
        reply = error_reply(call.id, call.name, "superseded", text)
        act.change(finished(call, reply, "superseded", act.identity, act.now))
    await run_phase(act, "step_end", act.agent.hooks["step_end"], Step)
    close_step(act)


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
        act.note(refusal, "handoff")
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
    limit = new.agent.limits.history
    if limit != old.agent.limits.history:
        await flush(act)
        act.history = await history_of(act.env.store, run.thread_id, limit, act.state.snapshot()[SummaryKey])
