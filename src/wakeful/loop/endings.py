"""The end of an activation: the run waits for tickets, tasks or timers, is paused, or is done."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Literal

from msgspec import UNSET
from msgspec.structs import replace

from ..errors import InboxMoved, WakefulError
from ..plugins import RunEnd
from ..types.events import RunFinish
from ..types.inbox import DecisionItem
from ..types.runs import NaturalEnd, Outcome, RunRecord, Termination, Waiting, WaitReason
from .activation import Activation
from .boundaries import close_step
from .commits import flush, read_inbox
from .disclosure import note_error
from .inference.summaries import drop_summary, wait_for_summary
from .moves import CLOSING, Finish, Pause, SuspendRun, Take, WaitForTasks, next_deadline, next_move
from .needs import needs_of
from .phases import run_phase
from .reports import end_tasks_with_run
from .stop_policies import output_of

__all__ = ["finish", "pause", "suspend", "wait_for_tasks"]


async def suspend(act: Activation, move: SuspendRun) -> None:
    """Wait for tickets, for the tasks of calls, and for timers."""
    await drop_summary(act)
    tasks = tuple([c.task_id for c in act.view.calls.values() if c.state == "suspended" and c.task_id])
    wakes = (*(("decision",) if move.tickets else ()), *(("task",) if tasks else ()))
    kinds = {act.view.tickets[t].asked_by for t in move.tickets}
    asks = "user_input" if kinds <= {"tool", "client", "unknown"} else "tool_permission"
    reason: WaitReason = asks if move.tickets else "awaiting_tasks" if tasks else "timer"
    detail = ""
    if "remote" in kinds and (end := act.view.run.backend) is not None and end.wait is not None:
        reason, detail = end.wait, end.reason
    waiting = Waiting(reason, act.now, wakes, move.tickets, detail, next_deadline(act.view), tasks)
    await _leave(act, "waiting", None, waiting)


async def wait_for_tasks(act: Activation, move: WaitForTasks) -> None:
    """Wait for background tasks after a final answer."""
    await wait_for_summary(act)
    tasks = tuple([task.id for task in act.view.tasks])
    waiting = Waiting("awaiting_tasks", act.now, ("task", "event", "input"), tasks=tasks)
    await _leave(act, "waiting", NaturalEnd(), waiting)


async def pause(act: Activation, move: Pause) -> None:
    """Wait until the run is unpaused."""
    await _leave(act, "waiting", None, Waiting("manual_pause", act.now, ("unpause",)))


def finish(act: Activation, move: Finish) -> Awaitable[None]:
    """End the run."""
    if act.agent.backend is not None or act.window is not None:
        return _finish_elsewhere(act, move.termination)
    _close_open(act, move.termination)
    return _leave(act, "done", move.termination, None)


async def _finish_elsewhere(act: Activation, termination: Termination) -> None:
    """End the run after its backend was told of a cancellation, and after its pending summary."""
    if act.agent.backend is not None and act.view.run.cancel is not None and not act.backend_aborted:
        act.backend_aborted = True
        await act.env.abort_remote(act)
    if act.view.run.stage != "between":
        close_step(act)
    if act.window is not None:
        await (drop_summary if type(termination) in CLOSING else wait_for_summary)(act)
    _close_open(act, termination)
    await _leave(act, "done", termination, None)


def _close_open(act: Activation, termination: Termination) -> None:
    """Close the open step and tickets of a run that ends, and determine its output."""
    view, shape = act.view, act.agent.shape
    if view.run.stage != "between":
        close_step(act)
    if view.tickets:
        act.give_up(view.tickets.values())
    if view.inbox:
        # Decisions that came too late: their tickets are cancelled.
        for item in [item for item in view.inbox.values() if isinstance(item, DecisionItem)]:
            del view.inbox[item.id]
            act.take(item.id)
    if shape is not None and act.output is UNSET and type(termination) is NaturalEnd:
        # An earlier activation judged the answer.
        act.output = output_of(view.answer, shape) if view.answer else UNSET


async def _leave(
    act: Activation, status: Literal["waiting", "done"], termination: Termination | None, waiting: Waiting | None
) -> None:
    """End the activation, unless something arrives that changes the next move."""
    was = act.view.run
    if act.run_end_due and not act.hookless and act.has_hooks("run_end"):
        seen = act.inbox_head
        await _run_end_hooks(act, status, termination, waiting)
        if act.inbox_head != seen and isinstance(next_move(act.view, act.rules, act.now), Take):
            return  # Input for this run arrived meanwhile.
    if act.draft.notices:
        await flush(act)  # A notice that fails is logged while the log is still open.
    if waiting is not None and not _still_waits(was, act.view.run):
        return
    before, tasks, extras = act.view.run, act.view.tasks, act.draft.extras
    run = act.view.run = act.draft.run = _closed_record(act, status, termination, waiting)
    finish = RunFinish(act.identity, 0, act.now, status, termination, waiting, run.usage, run.steps, run.backend)
    act.draft.log.append(finish)
    try:
        await flush(act, release=True, inbox_head=act.inbox_head)
    except BaseException as error:
        act.draft.log.remove(finish)
        act.draft.restore(extras)
        act.view.tasks = tasks
        # A cancel or pause that arrived during the commit counts.
        new = act.view.run
        act.put_run(replace(before, cancel=new.cancel, leaves_tasks=new.leaves_tasks, paused=new.paused))
        if not isinstance(error, InboxMoved):
            raise
        await read_inbox(act)
        return
    act.left = True


async def _run_end_hooks(
    act: Activation, status: Literal["waiting", "done"], termination: Termination | None, waiting: Waiting | None
) -> None:
    def prepare(ctx: RunEnd) -> None:
        ctx.status, ctx.termination, ctx.waiting = status, termination, waiting

    try:
        await run_phase(act, "run_end", act.agent.hooks["run_end"], RunEnd, prepare)
    except WakefulError as error:
        note_error(act, error, "run_end")
    except BaseException:
        # The error ends the run; running the hook again would raise it for ever.
        act.run_end_due = act.cancellation.is_pending
        raise


def _still_waits(was: RunRecord, run: RunRecord) -> bool:
    """Whether a run still waits: hooks and notices may have ended, cancelled or unpaused it."""
    return run.cancel is None and run.ending is was.ending and not (was.paused and not run.paused)


def _closed_record(
    act: Activation, status: Literal["waiting", "done"], termination: Termination | None, waiting: Waiting | None
) -> RunRecord:
    run, now = act.view.run, act.now
    if status == "done" and termination is not None:
        outcome = Outcome(termination, act.output)
        run = replace(run, status=status, outcome=outcome, finished_at=now, ending=None, updated_at=now)
        if act.view.tasks or run.task is not None:
            return end_tasks_with_run(act, run)
        return run
    needs = needs_of(act.agent, act.view.calls.values(), act.state.export())
    return replace(run, status=status, waiting=waiting, needs=needs, updated_at=now)
