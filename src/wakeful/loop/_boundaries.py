"""The boundaries: between calls, between steps, between agents, and the end of an activation."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET
from msgspec.structs import replace

from ..agents import handoff_refusal
from ..context import Folded
from ..errors import Conflict, InboxMoved, WakefulError
from ..plugins import RunEnd, Step
from ..tools import default_decision, error_reply, escalated
from ..types.events import Handoff, RunFinish, StepEnd
from ..types.runs import NaturalEnd, Outcome, Stopped, Termination, Waiting, WaitReason
from ._calls import hear_back, settle_arrivals
from ._history import history_of
from ._ledger import finished
from ._moves import CLOSING, Take, next_move
from ._needs import needs_of
from ._policies import output_of
from ._summaries import drop_summary, land_summary, wait_for_summary
from ._tasks import end_with_run, tell_news

if TYPE_CHECKING:
    from ..stores import InboxItem
    from ._activation import Activation
    from ._moves import (
        Await,
        EndStep,
        Finish,
        Interrupt,
        Overdue,
        PassOn,
        Pause,
        SuspendRun,
        SwitchAgent,
        WaitForTasks,
    )

__all__ = [
    "await_calls",
    "end_step",
    "finish",
    "interrupt",
    "overdue",
    "pass_on",
    "pause",
    "suspend",
    "switch_agent",
    "take",
    "wait_for_tasks",
]


async def await_calls(act: Activation, move: Await) -> None:
    """Wait for a running call; what is done so far is committed first."""
    await act.flush()
    timer = None
    if (until := _until(act)) is not None:
        timer = act.clock.call_later(max(0, until - act.clock.now()) / 1000, act.executor.nudge)
    try:
        await act.executor.wait()
    finally:
        if timer is not None:
            timer.cancel()
    act.now = act.clock.now()
    settle_arrivals(act)


def _until(act: Activation) -> int | None:
    """The first time that something waits for: an open ticket's deadline, or what a call sleeps until."""
    view = act.view
    if len(view.live) == len(view.calls) and not view.tickets:
        return None  # Every call runs, and so none sleeps.
    times = [t.deadline for t in view.tickets.values() if t.deadline is not None]
    times += [c.until for c in view.calls.values() if c.state == "suspended" and c.until is not None]
    return min(times, default=None)


async def overdue(act: Activation, move: Overdue) -> None:
    """Nobody answered in time: the next one in line gets the ticket, or the default decides."""
    for ticket in move.tickets:
        if ticket.escalate:
            act.reassign(*escalated(ticket, act.now))
        else:
            act.decide(default_decision(ticket, act.now))


async def interrupt(act: Activation, move: Interrupt) -> None:
    """Stop the running calls and hear from all of them."""
    act.executor.interrupt()
    while act.view.live:
        await act.executor.wait()
        act.now = act.clock.now()
        settle_arrivals(act)


async def take(act: Activation, move: Take) -> None:
    """Take inbox items in: decisions go to their calls, messages join the conversation."""
    inputs = [item for item in move.items if item.kind == "input"]
    for item in [item for item in move.items if item.kind != "input"]:
        act.view.inbox.pop(item.id, None)
        act.take(item.id)
    if told := [item for item in move.items if item.kind == "task"]:
        hear_back(act, told)
    for item in move.items:
        if item.decision is not None:
            act.answer(item)
    if inputs:
        await _take_input(act, inputs)


async def _take_input(act: Activation, items: list[InboxItem]) -> None:
    """Let input join the conversation. Until that is committed it can be changed and retracted."""
    await act.flush()
    before = act.view.run
    for item in items:
        act.view.inbox.pop(item.id, None)
        act.take(item.id, item.revision)
        if item.message is not None:
            act.log(item.message)
    hops = [item.message.producer.hops for item in items if item.message and item.message.producer]
    act.set_run(ending=None, hops=max([before.hops, *hops]))
    try:
        await act.flush()
    except Conflict:
        act.leave(items)
        act.set_run(ending=before.ending, hops=before.hops)
        await act.catch_up()


def end_step(act: Activation, move: EndStep) -> Awaitable[None] | None:
    """Close the step: at once where no hook is asked first."""
    if not (act.still or act.quiet("step_end")):
        return _end_step(act)
    _close_step(act)
    return None


async def _end_step(act: Activation) -> None:
    await act.phase("step_end", act.agent.hooks["step_end"], Step)
    _close_step(act)


def _close_step(act: Activation) -> None:
    view, draft, now = act.view, act.draft, act.now
    run = view.run
    view.run = draft.run = replace(run, stage="between", updated_at=now)
    if view.calls:
        view.calls.clear()
    draft.log.append(StepEnd(act.identity, 0, now, run.steps))
    if run.news:
        tell_news(act)
    if act.fitting is not None:
        land_summary(act)


async def pass_on(act: Activation, move: PassOn) -> None:
    """Close the step, so that the backend hears the answers that there are. The other questions keep their
    tickets: it will come back with them, or no longer ask."""
    for call in move.calls:
        text = f"{call.name} isn't answered yet, and is asked again once the other answers are told."
        reply = error_reply(call.id, call.name, "superseded", text)
        act.change(finished(call, reply, "superseded", act.identity, act.now))
    await _end_step(act)


async def switch_agent(act: Activation, move: SwitchAgent) -> None:
    """Let another agent take over: plugins that leave are told before those that come."""
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
    act.give_up(act.view.tickets.values())  # Of a backend, which isn't told any more.
    await act.phase("deactivate", [h for h in old.hooks["deactivate"] if h.plugin not in new.configs], Step)
    act.use_agent(replace(run, agent_id=move.agent_id))
    try:
        # Before it is written down: else whoever goes on after a crash would take them for told.
        await act.phase("activate", [h for h in new.hooks["activate"] if h.plugin not in old.configs], Step)
    finally:
        wanted = act.view.run.next_agent
        act.set_run(
            agent_id=move.agent_id,
            next_agent=None if wanted == move.agent_id else wanted,
            handoffs=run.handoffs + 1,
        )
        act.log(Handoff(act.identity, 0, now, run.agent_id, move.agent_id))
    shows = new.agent.limits.history
    if shows != old.agent.limits.history:
        await act.flush()
        act.history = await history_of(act.env.store, run.thread_id, shows, act.state.snapshot()[Folded])


async def suspend(act: Activation, move: SuspendRun) -> None:
    """Wait for answers, and for the tasks that calls wait for."""
    await drop_summary(act)
    tasks = tuple([c.task_id for c in act.view.calls.values() if c.state == "suspended" and c.task_id])
    wakes = (*(("decision",) if move.tickets else ()), *(("task",) if tasks else ()))
    kinds = {act.view.tickets[t].asked_by for t in move.tickets}
    asks = "user_input" if kinds <= {"tool", "client", "unknown"} else "tool_permission"
    reason: WaitReason = asks if move.tickets else "awaiting_tasks" if tasks else "timer"
    detail = ""
    if "remote" in kinds and (end := act.view.run.backend) is not None and end.wait is not None:
        reason, detail = end.wait, end.reason
    waiting = Waiting(reason, act.now, wakes, move.tickets, detail, _until(act), tasks)
    await _leave(act, "waiting", None, waiting)


async def wait_for_tasks(act: Activation, move: WaitForTasks) -> None:
    """Wait for tasks."""
    await wait_for_summary(act)
    tasks = tuple([task.id for task in act.view.tasks])
    waiting = Waiting("awaiting_tasks", act.now, ("task", "event", "input"), tasks=tasks)
    await _leave(act, "waiting", NaturalEnd(), waiting)


async def pause(act: Activation, move: Pause) -> None:
    """Stand still until somebody lets the run go on."""
    await _leave(act, "waiting", None, Waiting("manual_pause", act.now, ("unpause",)))


def finish(act: Activation, move: Finish) -> Awaitable[None]:
    """The run is over."""
    if act.agent.backend is not None or act.fitting is not None:
        return _wind_up(act, move.termination)
    _settle(act, move.termination)
    return _leave(act, "done", move.termination, None)


async def _wind_up(act: Activation, termination: Termination) -> None:
    """End what goes on elsewhere for the run first."""
    if act.agent.backend is not None and act.view.run.cancel is not None and not act.aborted:
        act.aborted = True
        await act.env.abort_remote(act)
    if act.view.run.stage != "between":
        _close_step(act)
    if act.fitting is not None:
        await (drop_summary if type(termination) in CLOSING else wait_for_summary)(act)
    _settle(act, termination)
    await _leave(act, "done", termination, None)


def _settle(act: Activation, termination: Termination) -> None:
    """Close what is open of a run that ends, and see to its output."""
    view, shape = act.view, act.agent.shape
    if view.run.stage != "between":
        _close_step(act)
    if view.tickets:
        act.give_up(view.tickets.values())
    if view.inbox:
        for item in [item for item in view.inbox.values() if item.kind == "decision"]:
            del view.inbox[item.id]  # It came too late: what it answers is given up.
            act.take(item.id)
    if shape is not None and act.output is UNSET and type(termination) is NaturalEnd:
        # An activation before this one judged the answer.
        act.output = output_of(view.answer, shape) if view.answer else UNSET


async def _leave(
    act: Activation, status: Literal["waiting", "done"], termination: Termination | None, waiting: Waiting | None
) -> None:
    """End the activation, unless something came in that changes what to do."""
    view, draft, was = act.view, act.draft, act.view.run
    if act.run_end_due and not (act.still or act.quiet("run_end")):
        hooks, seen = act.agent.hooks["run_end"], act.inbox_head
        try:
            await act.phase("run_end", hooks, RunEnd, lambda c: _ending(c, status, termination, waiting))
        except WakefulError as error:
            act.note(error, "run_end")
        except BaseException:
            # What it raised ends the run; asking it again would do so for ever.
            act.run_end_due = act.being_cancelled()
            raise
        if act.inbox_head != seen and isinstance(next_move(act.view, act.rules, act.now), Take):
            return  # What came in meanwhile is for this run: it doesn't end yet.
    if draft.notices:
        await act.flush()  # So that one which fails is noted while the log is still open.
    if waiting is not None:
        if view.run.cancel is not None or view.run.ending is not was.ending:
            return  # It was told to stop, or a hook ended it: then it waits for nothing.
        if was.paused and not view.run.paused:
            return  # It was let go on.
    before, tasks, more, now = view.run, view.tasks, draft.more, act.now
    if status == "done" and termination is not None:
        outcome = Outcome(termination, act.output)
        run = replace(before, status=status, outcome=outcome, finished_at=now, ending=None, updated_at=now)
        if tasks or run.task is not None:
            end_with_run(act, run)
    else:
        needs = needs_of(act.agent, view.calls.values(), act.state.export())
        run = replace(before, status=status, waiting=waiting, needs=needs, updated_at=now)
    view.run = draft.run = run
    finish = RunFinish(act.identity, 0, now, status, termination, waiting, run.usage, run.steps, run.backend)
    draft.log.append(finish)
    try:
        await act.flush(release=True, inbox_head=act.inbox_head)
    except BaseException as error:
        draft.log.remove(finish)
        draft.go_back(more)
        view.tasks = tasks
        # What it was told while that was being written counts.
        told = view.run
        act.put_run(replace(before, cancel=told.cancel, leaves_tasks=told.leaves_tasks, paused=told.paused))
        if not isinstance(error, InboxMoved):
            raise
        await act.catch_up()
        return
    act.left = True


def _ending(
    ctx: RunEnd,
    status: Literal["waiting", "done"],
    termination: Termination | None,
    waiting: Waiting | None,
) -> None:
    ctx.status = status
    ctx.termination = termination
    ctx.waiting = waiting
