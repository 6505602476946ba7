"""Explanations of waiting runs: the reason, and how they continue."""

from __future__ import annotations

import shlex

from ..types.runs import RunRecord, Waiting, WaitReason
from ..types.tickets import Ticket
from .prompts import ways
from .render import Renderer
from .session import Turn
from .text import one_line, time_text

__all__ = ["WITHDRAWN", "explain_idle", "explain_queued", "explain_waiting", "outlook", "waits_for"]

WITHDRAWN = "the prompt was taken back"

_PYTHON = {"approve": "True", "answer": "VALUE"}
_REASONS: dict[WaitReason, str] = {
    "timer": "sleeps",
    "manual_pause": "is paused",
    "awaiting_tasks": "waits for its tasks",
    "rate_limit": "waits for a rate limit",
    "external_event": "waits for something outside",
    "unknown": "waits for something that its backend doesn't name",
}


def waits_for(waiting: Waiting) -> str:
    """The reason, deadline and detail of a wait: `sleeps until ...`."""
    until = "" if waiting.until is None else f" until {time_text(waiting.until)}"
    why = f": {one_line(waiting.detail)}" if waiting.detail else ""
    return f"{_REASONS.get(waiting.reason, 'waits for an answer')}{until}{why}"


def outlook(turn: Turn, waiting: Waiting) -> str:
    """The state of a waiting run, and the effect of a new prompt: it replaces only runs that wait for a person."""
    does = "goes on waiting" if turn.tickets else waits_for(waiting)
    if waiting.reason in ("timer", "manual_pause"):
        return f"the run {does}; a new prompt has its turn after it"
    return f"the run {does}; a new prompt {'joins it' if 'input' in waiting.wakes else 'takes its place'}"


def explain_queued(renderer: Renderer, behind: RunRecord) -> None:
    """Print the run that a prompt queues behind."""
    does = "is running" if behind.waiting is None else waits_for(behind.waiting)
    text = f"run {behind.id} {does}; the prompt has its turn after it, ctrl-C takes it back"
    renderer.status("waiting", text)


def explain_waiting(renderer: Renderer, turn: Turn, target: str, *, kept: bool) -> None:
    """Print why a run waits and how it continues: by an answer, or in a worker if the store is durable."""
    if turn.tickets:
        _explain_tickets(renderer, turn, target)
    elif turn.waiting is not None:
        explain_idle(renderer, turn.run_id, turn.waiting, target)
    if not kept:
        renderer.note('(its threads are in memory, and gone when this ends: give the runtime a store="app.db")')


def explain_idle(renderer: Renderer, run_id: str, waiting: Waiting, target: str) -> None:
    """Print why a run without tickets waits, and the command that continues it."""
    renderer.line(f"run {run_id} is waiting: it {waits_for(waiting)}", "bold")
    if waiting.reason == "manual_pause":
        renderer.note(f'continue it from Python: await runtime.runs.unpause("{run_id}")')
    renderer.note(f"a worker continues it: wakeful worker {shlex.quote(target)}")


def _explain_tickets(renderer: Renderer, turn: Turn, target: str) -> None:
    renderer.line(f"run {turn.run_id} is waiting", "bold")
    for ticket in turn.tickets:
        renderer.ticket(ticket)
    renderer.note(f"answer with: wakeful chat {shlex.quote(target)} --thread {shlex.quote(turn.thread_id)}")
    for ticket in _one_of_each_kind(turn.tickets):
        _explain_answering(renderer, ticket, target)


def _one_of_each_kind(tickets: tuple[Ticket, ...]) -> list[Ticket]:
    """The first ticket for each answering command."""
    return list({ways(ticket)[0]: ticket for ticket in reversed(tickets)}.values())[::-1]


def _explain_answering(renderer: Renderer, ticket: Ticket, target: str) -> None:
    verb, _, value = ways(ticket)[0].partition(" ")
    command = f"wakeful tickets {verb} {shlex.quote(target)} {ticket.id} {value}".rstrip()
    renderer.note(f"or with: {command} (or deny)")
    given = _PYTHON.get(verb) or f'Decision("{ticket.id}", mode="{ticket.accepts[0]}", value=VALUE)'
    renderer.note(f'or from Python: await runtime.tickets.answer("{ticket.id}", {given})')
