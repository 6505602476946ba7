"""Tool calls: starting, results, and what becomes of those that were interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..agents import HandoffTool
from ..errors import ConfigurationError, HookFailed, InvalidArguments, ToolError, explain
from ..plugins import AfterTool, BeforeTool, Block, Supply, Suspend
from ..tools import (
    ChildResult,
    Done,
    NotDone,
    Parked,
    Terms,
    Tool,
    ToolContext,
    error_reply,
    reply_of,
)
from ..types.copies import own
from ..types.runs import Blocked, Call, CallOutcome, TaskOutcome, TaskRecord
from ._executor import Arrival, Starting
from ._gates import ask_gates
from ._ledger import Change, closed, finished, interrupted_reply, left_reply, not_handed_over, suspended
from ._moves import NOBODY
from ._tasks import hear_of_tasks

if TYPE_CHECKING:
    from ..state import Command
    from ..stores import InboxItem
    from ..types.content import ToolReply
    from ._activation import Activation
    from ._moves import AfterCalls, Drop, Execute, Recover

__all__ = ["after_calls", "drop", "execute", "hear_back", "recover", "settle_arrivals"]

Ready = tuple[Call, Tool, dict[str, Any]]


def execute(act: Activation, move: Execute) -> Awaitable[None] | None:
    """Start the calls that may run now; the others are refused, suspended or asked about later."""
    ready = [checked for call in move.calls if (checked := _check(act, call)) is not None]
    if act.agent.gated:
        return _gated(act, ready)
    return _start(act, ready) if ready else None


async def _gated(act: Activation, checked: list[Ready]) -> None:
    """Start those of the calls that their gates let pass."""
    ready: list[Ready] = []
    for call, tool, arguments in checked:
        if call.name in act.agent.gated:
            answer, asked_by = await ask_gates(act, call, tool, arguments)
            if answer is not None:
                _intercept(act, call, answer, asked_by, ready)
                continue
        ready.append((call, tool, arguments))
    if act.view.run.ending is None and ready:
        await _start(act, ready)


def _check(act: Activation, call: Call) -> Ready | None:
    """The call with its tool and its arguments, or None once the model was told what is wrong with it."""
    tool = act.agent.tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(act.agent.offered)) or "none"
        _finish(act, call, _error(call, "not_found", f"no tool {call.name!r} (available: {known})"), "error")
        return None
    if call.problem is not None and call.edited is None:
        kind = "not_found" if "isn't offered" in call.problem else "invalid_arguments"
        _finish(act, call, _error(call, kind, call.problem), "error")
        return None
    try:
        return call, tool, tool.bind(call.arguments if call.edited is None else call.edited)
    except InvalidArguments as error:
        _finish(act, call, _error(call, error.kind, str(error)), "error")
        return None


def _error(call: Call, kind: str, message: str) -> ToolReply:
    return error_reply(call.id, call.name, kind, message)


# -- gates ---------------------------------------------------------------------------------------------------


def _intercept(
    act: Activation, call: Call, answer: Block | Suspend | Supply, asked_by: str, ready: list[Ready]
) -> None:
    static = asked_by in ("approval", "client")
    if not static and (act.view.live or ready):
        # Calls before this one may change what its gate says: it is asked again when one has finished.
        act.view.deferred |= {call.id}
        return
    now = act.now
    match answer:
        case Suspend(message):
            try:
                terms = act.agent.tools[call.name].approval_terms if asked_by == "approval" else answer.terms
            except ConfigurationError as error:
                raise HookFailed(f"the gate of plugin {asked_by!r} asked what can't be asked: {error}") from error
            text = message or f"May {call.name} run?"
            act.change(suspended(call, act.identity, now, message=text, asked_by=asked_by, terms=terms))
        case Supply(value):
            try:
                limit = act.agent.tools[call.name].max_result_bytes
                _finish(act, call, reply_of(value, call.id, call.name, limit), "ok")
            except ToolError as error:
                raise HookFailed(f"the gate of plugin {asked_by!r} supplied a bad result: {error}") from error
        case Block(reason, ends_run):
            text = f"{call.name} was refused: {reason}"
            _finish(act, call, _error(call, "denied", text), "blocked")
            if ends_run:
                act.set_run(ending=Blocked(reason))


# -- running -------------------------------------------------------------------------------------------------


async def _start(act: Activation, ready: list[Ready]) -> None:
    if not (act.still or act.quiet("before_tool")):
        for call, _, arguments in ready:

            def prepare(ctx: BeforeTool, call: Call = call, arguments: dict[str, Any] = arguments) -> None:
                ctx.call, ctx.arguments = own(call), own(arguments)

            await act.phase("before_tool", act.agent.hooks["before_tool"], BeforeTool, prepare)
            if act.view.run.ending is not None or act.view.run.cancel is not None:
                return
    view, draft, now = act.view, act.draft, act.now
    calls, live, executor = view.calls, view.live, act.tools or act.executor
    identity, snapshot, principal = act.identity, act.state.snapshot(), view.run.principal
    fence, services = draft.fence, executor.services
    epoch = 0 if fence is None else fence.epoch
    starting: list[Starting] = []
    for call, tool, arguments in ready:
        call_id, attempt = call.id, call.attempt
        row = replace(
            call,
            state="started",
            attempt=attempt + 1,
            effect=tool.effect,
            started_at=now,
            unknown=tool.unknown,
            until=None,
        )
        if attempt == 0 and tool.one_child and _delegated(act, row, tool, arguments):
            continue
        calls[call_id] = draft.calls[call_id] = row
        live[call_id] = None
        context = ToolContext(identity, row, snapshot, principal, epoch, services, tool)
        starting.append((row, tool, arguments, context))
    if not starting:
        view.deferred = NOBODY  # None of them runs here: their gates have nothing to wait for.
        return
    try:
        await act.flush()
    except BaseException:
        for call, _, _ in ready:
            live.pop(call.id, None)
            calls[call.id] = draft.calls[call.id] = call
        raise
    if fence is None:  # The first commit took the thread.
        for _, _, _, context in starting:
            context.fence = _fence(act)
    if len(calls) == 1 and starting[0][1].is_async:
        begun = executor.begin_inline(act.task, starting[0])
        arrival = begun if isinstance(begun, Arrival) else await executor.end_inline(begun)
        act.now = act.clock.now()
        _settle(act, arrival)
    else:
        executor.start(act.task, starting)
        if executor.arrivals:
            act.now = act.clock.now()
            settle_arrivals(act)
    if executor.passed_on:
        await asyncio.sleep(0)  # If no tool has heard of the cancellation, this does.
        raise asyncio.CancelledError


def _fence(act: Activation) -> int:
    return act.draft.fence.epoch if act.draft.fence is not None else 0


def _delegated(act: Activation, row: Call, tool: Tool, arguments: dict[str, Any]) -> bool:
    """Begin the agent that a call is about, by the commit that starts the call. A durable one needs no more of
    this process: the call waits for it from the outset."""
    request = tool.request(arguments, act.now)
    task = None if request is None else act.env.children.begin(act, row.id, request)
    if task is None or task.background or not task.durable:
        return False
    act.change(Change(replace(row, state="suspended", task_id=task.id), ()))
    return True


def hear_back(act: Activation, items: Sequence[InboxItem]) -> None:
    """Tasks have something to say, or are over. Where a call is no more than the call of an agent that answered,
    that is its result: its tool need not run again for it."""
    tasks = {task.id: task for task in act.view.tasks}
    waiting = {call.task_id: call.id for call in act.view.calls.values() if call.task_id in tasks}
    hear_of_tasks(act, items)
    for item in items:
        if item.outcome is not None and item.task_id in waiting:
            _answered(act, act.view.calls.get(waiting[item.task_id]), tasks[item.task_id], item.outcome)


def _answered(act: Activation, call: Call | None, task: TaskRecord, outcome: TaskOutcome) -> None:
    if call is None or call.state != "requested" or outcome.steps is None:
        return
    tool = act.agent.tools.get(call.name)
    if tool is None or not tool.one_child or outcome.error is not None:
        return
    child = ChildResult(task.target, task.agent_id, outcome.status, outcome.text, outcome.steps, task_id=task.id)
    try:
        reply = reply_of(tool.shown(child), call.id, call.name, tool.max_result_bytes)
    except ToolError as error:
        _finish(act, call, _error(call, error.kind, explain(error).partition(": ")[2]), "error")
    else:
        _finish(act, call, reply, "ok")
    act.view.deferred = NOBODY


def settle_arrivals(act: Activation) -> None:
    """Write down how the calls that came back ended."""
    executor = act.executor
    arrivals, executor.arrivals = executor.arrivals, []
    for arrival in arrivals:
        _settle(act, arrival)
    act.view.deferred = NOBODY


def _settle(act: Activation, arrival: Arrival) -> None:
    view, call_id = act.view, arrival.call_id
    view.live.pop(call_id, None)
    call, reply, ended = view.calls[call_id], arrival.reply, arrival.ended
    if reply is not None and (ended == "ok" or ended == "error"):
        outcome: CallOutcome = ended
        if (changes := arrival.context.changes) is not None and ended == "ok":
            if changes.handoff is not None:
                reply, outcome = _handed_over(act, call, changes, changes.handoff, reply)
            try:
                act.apply(changes)
            except Exception as error:  # A reducer is the application's code.
                text = f"{call.name} ran, but its state update was refused: {error}"
                reply, outcome = _error(call, "state", text), "error"
        _finish(act, call, reply, outcome)
    elif arrival.asked is not None:
        asked = arrival.asked
        act.change(
            suspended(call, act.identity, act.now, message=asked.message, asked_by="tool", terms=asked.terms)
        )
    elif ended == "parked":
        act.change(Change(_parked(act, call, arrival.parked), ()))
    else:
        # No result: what to do is the effect's question, and `recover` answers it.
        act.interrupted[call.id] = ended


def _handed_over(
    act: Activation, call: Call, changes: Command, wanted: str, reply: ToolReply
) -> tuple[ToolReply, CallOutcome]:
    """Only one agent can take over: the first that was asked for. Whoever wants another is told so."""
    winner = act.view.run.next_agent
    if winner is None or winner == wanted:
        return reply, "ok"
    changes.handoff = None
    if isinstance(act.agent.tools.get(call.name), HandoffTool):
        return _error(call, "denied", f"not handed over to {wanted}: {winner} takes over after this step"), "error"
    return not_handed_over(reply, wanted, winner), "ok"


def _parked(act: Activation, call: Call, parked: Parked | None) -> Call:
    """A call that waits for a task, or for times, which it keeps to when it runs again: at once, if the task was
    given up meanwhile."""
    row = replace(call, state="suspended")
    if parked is None:
        return row
    row = replace(row, timers=tuple({**dict(call.timers), **dict(parked.timers)}.items()))
    if parked.task_id is not None and all(task.id != parked.task_id for task in act.view.tasks):
        return replace(row, state="requested")
    until = min([time for _, time in parked.timers], default=None)
    return replace(row, task_id=parked.task_id, until=until)


def _finish(act: Activation, call: Call, reply: ToolReply, outcome: CallOutcome) -> None:
    answer, identity = act.view.answer, act.identity
    by = None if answer is None else answer.producer
    if by is not None and (by.step != call.step or by.agent_id != identity.agent_id):
        by = None
    change = finished(call, reply, outcome, identity, act.now, by)
    if not (act.still or act.quiet("after_tool")):
        change = replace(change, call=replace(change.call, hooks_due=True))
    act.change(change)


async def after_calls(act: Activation, move: AfterCalls) -> None:
    """Run the `after_tool` hooks; the results are committed before them."""
    for call in move.calls:
        outcome = call.outcome
        message = next((m for m in reversed(act.history) if m.id == call.message_id), None)
        reply = None if message is None else message.reply
        row = replace(call, hooks_due=False)
        act.view.calls[row.id] = row
        if outcome is None or reply is None:
            act.draft.calls[row.id] = row
            continue

        def prepare(
            ctx: AfterTool, row: Call = row, outcome: CallOutcome = outcome, reply: ToolReply = reply
        ) -> None:
            ctx.call, ctx.outcome, ctx.reply = own(row), outcome, own(reply)

        await act.phase("after_tool", act.agent.hooks["after_tool"], AfterTool, prepare)
        act.draft.calls[row.id] = row


# -- interrupted ---------------------------------------------------------------------------------------------


async def recover(act: Activation, move: Recover) -> None:
    """Calls that were started and have no result: run them again, ask their tool, or say that nobody knows."""
    for call in move.calls:
        ended = act.interrupted.pop(call.id, "lost")
        tool = act.agent.tools.get(call.name)
        ending = act.view.run.ending is not None or act.view.run.cancel is not None
        if call.effect == "reconcile" and tool is not None:
            await _reconcile(act, call, tool, ended, ending)
        elif call.effect == "once" or tool is None:
            _lose(act, call, tool, ended, ending)
        elif ended == "timeout":
            text = f"{call.name} took longer than {tool.timeout:g} s and was stopped; it is safe to try again"
            _finish(act, call, _error(call, "timeout", text), "error")
        elif not ending:
            act.change(Change(replace(call, state="requested"), ()))
        elif call.effect == "pure":
            _finish(act, call, _error(call, "cancelled", f"{call.name} was stopped"), "cancelled")
        else:
            _finish(act, call, interrupted_reply(call, _WHY[ended]), "unknown")


async def _reconcile(act: Activation, call: Call, tool: Tool, ended: str, ending: bool) -> None:
    await act.flush()
    try:
        found = await tool.reconcile(f"{call.run_id}:{call.id}", _fence(act))
    except Exception as error:
        act.note(error, f"check of {call.name}")
        found = None
    if isinstance(found, Done):
        try:
            reply = reply_of(found.result, call.id, call.name, tool.max_result_bytes)
        except ToolError as error:
            reply = _error(call, error.kind, f"{call.name} took effect, but its result can't be shown: {error}")
        _finish(act, call, reply, "ok")
    elif isinstance(found, NotDone) and not ending and ended != "timeout":
        act.change(Change(replace(call, state="requested"), ()))
    elif isinstance(found, NotDone):
        text = f"{call.name} was stopped ({_WHY[ended]}) and took no effect"
        kind, outcome = ("timeout", "error") if ended == "timeout" else ("cancelled", "cancelled")
        _finish(act, call, _error(call, kind, text), outcome)
    else:
        _lose(act, call, tool, ended, ending)


def _lose(act: Activation, call: Call, tool: Tool | None, ended: str, ending: bool) -> None:
    """Nobody knows whether the call took effect: a person is asked, or the model is told."""
    if call.unknown == "tell" or ending:
        _finish(act, call, interrupted_reply(call, _WHY[ended]), "unknown")
        return
    text = (
        f"{call.name} was interrupted ({_WHY[ended]}), and nobody knows whether it took effect. Look, then give "
        "its result if it did, approve to run it again, or deny."
    )
    terms = Terms(("result", "replay")) if tool is None else tool.unknown_terms
    act.change(suspended(call, act.identity, act.now, message=text, asked_by="unknown", terms=terms))


_WHY = {
    "timeout": "it took too long",
    "interrupted": "the run was stopped",
    "lost": "its process ended",
}


async def drop(act: Activation, move: Drop) -> None:
    """Close calls that never started, so that the conversation stays one that every vendor accepts."""
    now = act.now
    for call in move.calls:
        ticket = act.view.tickets.get(call.ticket_id) if call.ticket_id else None
        change = closed(call, ticket, left_reply(call, "cancelled", move.reason), "cancelled", act.identity, now)
        row = None if ticket is None else replace(ticket, status="cancelled")
        act.change(replace(change, ticket=row))
