"""The life of tool calls in a step: checks, gates, starts, results and the hooks after them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import nullcontext
from typing import Any

from msgspec.structs import replace

from ...agents import HandoffTool
from ...errors import ConfigurationError, HookFailed, InvalidArguments, ToolError, quote
from ...plugins import AfterTool, BeforeTool, Block, Supply, Suspend
from ...state import Command
from ...tools import ChildResult, Parked, Terms, Tool, ToolContext, error_reply, reply_of
from ...types.calls import Call, CallOutcome
from ...types.content import Artifact, ToolReply
from ...types.inbox import TaskItem
from ...types.runs import Blocked, TaskOutcome, TaskRecord
from ...types.tickets import Approval, Ticket
from ..activation import Activation
from ..commits import flush
from ..disclosure import disclose
from ..moves import NO_CALLS, AfterCalls, Await, Execute, Interrupt, next_deadline
from ..phases import run_phase
from ..reports import apply_reports
from .executor import CallEnd, Executor, StartedCall
from .gates import ask_gates
from .ledger import Change, finished, not_handed_over, suspended
from .services import CallServices

__all__ = [
    "apply_task_items",
    "await_calls",
    "execute",
    "finish_call",
    "interrupt",
    "run_after_tool",
    "suspend_call",
]

CheckedCall = tuple[Call, Tool, dict[str, Any]]


# -- before a call -------------------------------------------------------------------------------------------


def execute(act: Activation, move: Execute) -> Awaitable[None] | None:
    """Start the calls that may run now; others are refused, suspended or deferred."""
    checked = [one for call in move.calls if (one := _check(act, call)) is not None]
    if act.agent.gated:
        return _execute_gated(act, checked)
    return _start(act, checked) if checked else None


async def _execute_gated(act: Activation, checked: list[CheckedCall]) -> None:
    """Start the calls that their gates allow."""
    ready: list[CheckedCall] = []
    for call, tool, arguments in checked:
        if call.name in act.agent.gated:
            answer, asked_by, ruling = await ask_gates(act, call, tool, arguments)
            row = call if ruling is call.ruling else replace(call, ruling=ruling)
            if answer is not None:
                _apply_gate(act, row, answer, asked_by, is_first=not (act.view.live or ready))
            else:
                ready.append((row, tool, arguments))
            continue
        ready.append((call, tool, arguments))
    if act.view.run.ending is None and ready:
        await _start(act, ready)


def _check(act: Activation, call: Call) -> CheckedCall | None:
    """Find the tool and bind the arguments; finishes a call that is wrong with an error, and returns None."""
    tool = act.agent.tools.get(call.name)
    if tool is None:
        known = ", ".join(sorted(act.agent.offered)) or "none"
        finish_call(act, call, _error(call, "not_found", f"no tool {call.name!r} (available: {known})"), "error")
        return None
    if call.problem is not None and call.edited is None:
        kind = "not_found" if "isn't offered" in call.problem else "invalid_arguments"
        finish_call(act, call, _error(call, kind, call.problem), "error")
        return None
    try:
        return call, tool, tool.bind(call.arguments if call.edited is None else call.edited)
    except InvalidArguments as error:
        finish_call(act, call, _error(call, error.kind, str(error)), "error")
    except Exception as error:  # A parameter type's own code may raise anything.
        finish_call(act, call, _raised(act, call, error), "error")
    return None


def _error(call: Call, kind: str, message: str) -> ToolReply:
    return error_reply(call.id, call.name, kind, message)


def _apply_gate(
    act: Activation, call: Call, answer: Block | Suspend | Supply, asked_by: str, *, is_first: bool
) -> None:
    if asked_by not in ("approval", "client") and not is_first:
        # Earlier calls may change the gate's answer: it is asked again when one of them has finished.
        act.view.deferred |= {call.id}
        return
    match answer:
        case Suspend(message):
            try:
                tool = act.agent.tools[call.name]
                terms = tool.approval_terms(answer.approval) if asked_by == "approval" else answer.terms
            except ConfigurationError as error:
                raise HookFailed(f"the gate of plugin {asked_by!r} asked what can't be asked: {error}") from error
            text = message or f"May {call.name} run?"
            suspend_call(act, call, text, asked_by, terms)
        case Supply(value):
            try:
                limit = act.agent.tools[call.name].max_result_bytes
                finish_call(act, call, reply_of(value, call.id, call.name, limit), "ok")
            except ToolError as error:
                raise quote(HookFailed, f"the gate of plugin {asked_by!r} supplied a bad result", error) from error
        case Block(reason, ends_run):
            finish_call(act, call, _error(call, "denied", f"{call.name} was refused: {reason}"), "blocked")
            if ends_run:
                act.set_run(ending=Blocked(reason))


# -- running -------------------------------------------------------------------------------------------------


async def _start(act: Activation, ready: list[CheckedCall]) -> None:
    """Commit that the calls have started, then run them."""
    if not act.hookless and act.has_hooks("before_tool") and not await _run_before_tool(act, ready):
        return
    executor = act.executor
    if executor is None:
        env, services = act.env, CallServices(act, asyncio.get_running_loop())
        executor = act.executor = Executor(env.clock, env.threads, env.abandoned, env.grace, services, env.tracer)
    starting = _write_started(act, ready, executor)
    if not starting:
        act.view.deferred = NO_CALLS  # None of them runs here: deferred gates have nothing to wait for.
        return
    is_first_commit = act.draft.fence is None
    try:
        await flush(act)
    except BaseException:
        for call, _, _ in ready:
            act.view.live.pop(call.id, None)
            act.view.calls[call.id] = act.draft.calls[call.id] = call
        raise
    if is_first_commit:  # It claimed the thread, so the fence is new.
        for started in starting:
            started.context.fence = act.epoch
    executor.start(starting)


async def _run_before_tool(act: Activation, ready: list[CheckedCall]) -> bool:
    """Run the `before_tool` hooks; False if one of them ended the run."""
    for call, _, arguments in ready:

        def prepare(ctx: BeforeTool, call: Call = call, arguments: dict[str, Any] = arguments) -> None:
            ctx.call, ctx.arguments = call, arguments

        await run_phase(act, "before_tool", act.agent.hooks["before_tool"], BeforeTool, prepare)
        if act.view.run.ending is not None or act.view.run.cancel is not None:
            return False
    return True


def _write_started(act: Activation, ready: list[CheckedCall], executor: Executor) -> list[StartedCall]:
    """Write the calls as started; returns those that run here."""
    view, draft = act.view, act.draft
    snapshot, principal, epoch = act.state.snapshot(), view.run.principal, act.epoch
    starting: list[StartedCall] = []
    for call, tool, arguments in ready:
        call_id, attempt = call.id, call.attempt
        row = replace(
            call,
            state="started",
            attempt=attempt + 1,
            effect=tool.effect,
            started_at=act.now,
            unknown=tool.unknown_policy,
            until=None,
        )
        if attempt == 0 and tool.is_delegation and _delegate(act, row, tool, arguments):
            continue
        view.calls[call_id] = draft.calls[call_id] = row
        view.live[call_id] = None
        context = ToolContext(
            act.identity,
            row,
            epoch,
            tool.can_suspend,
            tool.is_delegation,
            state=snapshot,
            principal=principal,
            _services=executor.services,
            _deps=act.env.deps.value,
        )
        starting.append(StartedCall(row, tool, arguments, context))
    return starting


def _delegate(act: Activation, row: Call, tool: Tool, arguments: dict[str, Any]) -> bool:
    """Start the child of a delegation with the commit that starts the call.

    True if the child is durable: the call then waits for its task and holds nothing in this process.
    """
    request, tracer = tool.child_request(arguments, act.now), act.env.tracer
    if request is None:
        return False
    is_parked = request.durable and not request.background  # Nothing runs here, but the child is below a span.
    with tracer.mark_call(act, row) if tracer is not None and is_parked else nullcontext():
        task = act.env.children.start_child(act, row.id, request)
    if task is None or task.background or not task.durable:
        return False
    act.change(Change(replace(row, state="suspended", task_id=task.id), ()))
    return True


async def await_calls(act: Activation, move: Await) -> None:
    """Commit, then wait until a call has ended, a timer is due or the inbox has changed."""
    await flush(act)
    if (executor := act.executor) is None:
        return
    timer = None
    if (until := next_deadline(act.view)) is not None:
        timer = act.clock.call_later(max(0, until - act.clock.now()) / 1000, executor.nudge)
    try:
        await executor.wait()
    finally:
        if timer is not None:
            timer.cancel()
    act.now = act.clock.now()
    _settle_ended(act, executor)


async def interrupt(act: Activation, move: Interrupt) -> None:
    """Stop the running calls, and wait for the end of each."""
    if (executor := act.executor) is None:
        return
    executor.interrupt()
    while act.view.live:
        await executor.wait()
        act.now = act.clock.now()
        _settle_ended(act, executor)


# -- results -------------------------------------------------------------------------------------------------


def _settle_ended(act: Activation, executor: Executor) -> None:
    """Write the results of the calls that ended."""
    ended, executor.ended = executor.ended, []
    for end in ended:
        _settle(act, end)
    act.view.deferred = NO_CALLS


def _settle(act: Activation, end: CallEnd) -> None:
    view, call_id = act.view, end.call_id
    view.live.pop(call_id, None)
    call, reply, ended = view.calls[call_id], end.reply, end.ended
    if end.error is not None:
        reply = _raised(act, call, end.error)
    if reply is not None and (ended == "ok" or ended == "error"):
        outcome: CallOutcome = ended
        if (changes := end.context.changes) is not None and ended == "ok":
            if changes.handoff is not None:
                reply, outcome = _check_handoff(act, call, changes, changes.handoff, reply)
            try:
                act.apply(changes)
            except Exception as error:  # A reducer is application code.
                why = disclose(act, error, f"a state update of tool {call.name}")
                text = f"{call.name} ran, but its state update was refused: {why}"
                reply, outcome = _error(call, "state", text), "error"
        finish_call(act, call, reply, outcome)
    elif (asked := end.asked) is not None:
        row = replace(call, kept=end.context.kept)
        suspend_call(act, row, asked.message, "tool", asked.terms, surfaces=end.context.surfaces)
    elif ended == "parked":
        act.change(Change(_parked_row(act, replace(call, kept=end.context.kept), end.parked), ()))
    else:
        # No result: the next move is `Recover`, by the tool's effect.
        act.interrupted[call.id] = ended


def _raised(act: Activation, call: Call, error: BaseException) -> ToolReply:
    """The reply for an exception of a tool: a `ToolError` speaks to the model, others to operators."""
    tool = act.agent.tools.get(call.name)
    text = disclose(act, error, f"tool {call.name}")
    kind = "failed"
    if isinstance(error, ToolError):
        kind, text = error.kind, text.partition(": ")[2]
    return error_reply(call.id, call.name, kind, text, *(() if tool is None else (tool.max_result_bytes,)))


def _check_handoff(
    act: Activation, call: Call, changes: Command, wanted: str, reply: ToolReply
) -> tuple[ToolReply, CallOutcome]:
    """Refuse a handoff to another agent than the first one that was asked for in this step."""
    winner = act.view.run.next_agent
    if winner is None or winner == wanted:
        return reply, "ok"
    changes.handoff = None
    if isinstance(act.agent.tools.get(call.name), HandoffTool):
        return _error(call, "denied", f"not handed over to {wanted}: {winner} takes over after this step"), "error"
    return not_handed_over(reply, wanted, winner), "ok"


def _parked_row(act: Activation, call: Call, parked: Parked | None) -> Call:
    """The row of a call that waits for a task or timers. It continues at once if the task has ended meanwhile."""
    row = replace(call, state="suspended")
    if parked is None:
        return row
    row = replace(row, timers=tuple({**dict(call.timers), **dict(parked.timers)}.items()))
    if parked.task_id is not None and all(task.id != parked.task_id for task in act.view.tasks):
        return replace(row, state="requested")
    until = min([time for _, time in parked.timers], default=None)
    return replace(row, task_id=parked.task_id, until=until)


def finish_call(act: Activation, call: Call, reply: ToolReply, outcome: CallOutcome) -> None:
    """Finish a call with a reply for the model."""
    answer, identity = act.view.answer, act.identity
    by = None if answer is None else answer.producer
    if by is not None and (by.step != call.step or by.agent_id != identity.agent_id):
        by = None
    change = finished(call, reply, outcome, identity, act.now, by)
    if not act.hookless and act.has_hooks("after_tool"):
        change = replace(change, call=replace(change.call, hooks_due=True))
    act.change(change)


def suspend_call(
    act: Activation,
    call: Call,
    message: str,
    asked_by: str,
    terms: Terms,
    held: Ticket | None = None,
    surfaces: tuple[Artifact, ...] = (),
) -> None:
    """Suspend a call on a ticket. The run's principal is its requester: it travels down the whole tree."""
    principal, owner = act.view.run.principal, act.view.run.owner
    if owner and asked_by in ("tool", "client") and terms.who.assignee is None:
        # The requester wrote to a thread of another principal, which it may not read.
        terms = replace(terms, who=Approval(owner))
    requester = None if principal is None else principal.id
    change = suspended(
        call,
        act.identity,
        act.now,
        message=message,
        asked_by=asked_by,
        terms=terms,
        requester=requester,
        held=held,
        surfaces=surfaces,
    )
    act.change(change)


def apply_task_items(act: Activation, items: Sequence[TaskItem]) -> None:
    """Apply reports of tasks. The answer of a delegation's child is the call's result, without another attempt."""
    tasks = {task.id: task for task in act.view.tasks}
    waiting = {call.task_id: call.id for call in act.view.calls.values() if call.task_id in tasks}
    apply_reports(act, items)
    for item in items:
        if item.outcome is not None and item.task_id in waiting:
            _finish_delegation(act, act.view.calls.get(waiting[item.task_id]), tasks[item.task_id], item.outcome)


def _finish_delegation(act: Activation, call: Call | None, task: TaskRecord, outcome: TaskOutcome) -> None:
    if call is None or call.state != "requested" or outcome.steps is None:
        return
    tool = act.agent.tools.get(call.name)
    if tool is None or not tool.is_delegation or outcome.error is not None:
        return
    child = ChildResult(task.target, task.agent_id, outcome.status, outcome.text, outcome.steps, task_id=task.id)
    try:
        reply = reply_of(tool.child_result(child), call.id, call.name, tool.max_result_bytes)
    except ToolError as error:
        finish_call(act, call, _raised(act, call, error), "error")
    else:
        finish_call(act, call, reply, "ok")
    act.view.deferred = NO_CALLS


async def run_after_tool(act: Activation, move: AfterCalls) -> None:
    """Run the `after_tool` hooks of finished calls, whose results are committed before."""
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
            ctx.call, ctx.outcome, ctx.reply = row, outcome, reply
            ctx.tool = act.agent.tools.get(row.name)

        await run_phase(act, "after_tool", act.agent.hooks["after_tool"], AfterTool, prepare)
        act.draft.calls[row.id] = row
