"""Calls without a result: started ones that were interrupted, and open ones of a run that ends."""

from __future__ import annotations

from msgspec.structs import replace

from ...errors import ToolError
from ...tools import Done, NotDone, Terms, Tool, error_reply, reply_of
from ...types.calls import Call
from ..activation import Activation
from ..commits import flush
from ..disclosure import disclose, note_error
from ..moves import Drop, Recover
from .ledger import Change, closed, interrupted_reply, left_reply
from .lifecycle import finish_call, suspend_call

__all__ = ["drop", "recover"]

_WHY = {
    "timeout": "it took too long",
    "interrupted": "the run was stopped",
    "lost": "its process ended",
    "in_doubt": "its connection broke",
}


async def recover(act: Activation, move: Recover) -> None:
    """Settle calls that were started and have no result, by their effect: run again, check, or report unknown."""
    for call in move.calls:
        ended = act.interrupted.pop(call.id, "lost")
        tool = act.agent.tools.get(call.name)
        is_ending = act.view.run.ending is not None or act.view.run.cancel is not None
        if call.effect == "reconcile" and tool is not None:
            await _reconcile(act, call, tool, ended, is_ending)
        elif call.effect == "once" or tool is None:
            _report_unknown(act, call, tool, ended, is_ending)
        elif ended == "timeout":
            text = f"{call.name} took longer than {tool.timeout:g} s and was stopped; it is safe to try again"
            finish_call(act, call, error_reply(call.id, call.name, "timeout", text), "error")
        elif not is_ending:
            act.change(Change(replace(call, state="requested"), ()))
        elif call.effect == "pure":
            reply = error_reply(call.id, call.name, "cancelled", f"{call.name} was stopped")
            finish_call(act, call, reply, "cancelled")
        else:
            finish_call(act, call, interrupted_reply(call, _WHY[ended]), "unknown")


async def _reconcile(act: Activation, call: Call, tool: Tool, ended: str, is_ending: bool) -> None:
    """Ask the tool's `check` for the outcome of a call."""
    await flush(act)
    try:
        found = await tool.reconcile(f"{call.run_id}:{call.id}", act.epoch, act.env.deps.value)
    except Exception as error:
        note_error(act, error, f"check of {call.name}")
        found = None
    if isinstance(found, Done):
        try:
            reply = reply_of(found.result, call.id, call.name, tool.max_result_bytes)
        except ToolError as error:
            why = disclose(act, error, f"the result of {call.name}").partition(": ")[2]
            text = f"{call.name} took effect, but its result can't be shown: {why}"
            reply = error_reply(call.id, call.name, error.kind, text)
        finish_call(act, call, reply, "ok")
    elif isinstance(found, NotDone) and not is_ending and ended != "timeout":
        act.change(Change(replace(call, state="requested"), ()))
    elif isinstance(found, NotDone):
        text = f"{call.name} was stopped ({_WHY[ended]}) and took no effect"
        kind, outcome = ("timeout", "error") if ended == "timeout" else ("cancelled", "cancelled")
        finish_call(act, call, error_reply(call.id, call.name, kind, text), outcome)
    else:
        _report_unknown(act, call, tool, ended, is_ending)


def _report_unknown(act: Activation, call: Call, tool: Tool | None, ended: str, is_ending: bool) -> None:
    """Tell the model that the outcome of a call is unknown, or ask a person."""
    if act.env.tracer is not None and ended == "lost":
        with act.env.tracer.mark_call(act, call, "unknown_outcome"):
            pass
    if call.unknown == "tell" or is_ending:
        finish_call(act, call, interrupted_reply(call, _WHY[ended]), "unknown")
        return
    text = (
        f"{call.name} was interrupted ({_WHY[ended]}), and nobody knows whether it took effect. Look, then give "
        "its result if it did, approve to run it again, or deny."
    )
    terms = Terms(("result", "proceed")) if tool is None else tool.unknown_terms
    suspend_call(act, call, text, "unknown", terms)


async def drop(act: Activation, move: Drop) -> None:
    """Close open calls without running them: every vendor wants a result for every call."""
    for call in move.calls:
        ticket = act.view.tickets.get(call.ticket_id) if call.ticket_id else None
        reply = left_reply(call, "cancelled", move.reason)
        change = closed(call, ticket, reply, "cancelled", act.identity, act.now)
        row = None if ticket is None else replace(ticket, status="cancelled")
        act.change(replace(change, ticket=row))
