"""What a run waits for, as a person is told, and how it goes on from there."""

from __future__ import annotations

import shlex

from ..types.tickets import Ticket
from ._decide import ways
from ._render import Renderer
from ._session import Turn

__all__ = ["explain_waiting"]

_PYTHON = {"approve": "True", "answer": "VALUE"}


def explain_waiting(renderer: Renderer, turn: Turn, target: str) -> None:
    """What the run waits for, and how to answer from a shell or a program."""
    renderer.line(f"run {turn.run_id} is waiting", "bold")
    for ticket in turn.tickets:
        renderer.ticket(ticket)
    if turn.tickets:
        renderer.note(f"answer with: wakeful chat {shlex.quote(target)} --thread {shlex.quote(turn.thread_id)}")
        for ticket in _one_of_each_kind(turn.tickets):
            _explain_answering(renderer, ticket, target)
        renderer.note("(a runtime that keeps its threads in memory has forgotten the run by then)")


def _one_of_each_kind(tickets: tuple[Ticket, ...]) -> list[Ticket]:
    """The first of those that are answered by the same command."""
    return list({ways(ticket)[0]: ticket for ticket in reversed(tickets)}.values())[::-1]


def _explain_answering(renderer: Renderer, ticket: Ticket, target: str) -> None:
    verb, _, value = ways(ticket)[0].partition(" ")
    command = f"wakeful tickets {verb} {shlex.quote(target)} {ticket.id} {value}".rstrip()
    renderer.note(f"or with: {command} (or deny)")
    given = _PYTHON.get(verb) or f'Decision("{ticket.id}", mode="{ticket.accepts[0]}", value=VALUE)'
    renderer.note(f'or from Python: await runtime.answer("{ticket.id}", {given})')
