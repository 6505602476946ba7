"""Prompts for decisions on tickets."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from ..errors import UsageError
from ..types.tickets import SYSTEM, Decision, Ticket
from .render import Renderer

__all__ = ["Ask", "ask_terminal", "decide", "decider", "read_value", "ways"]

Ask = Callable[[str, str], str]
"""Asks for a line: a label, and text that the line begins with where the terminal can do that."""

_LATER = "later"
_COMMANDS = {"proceed": "approve", "result": "result VALUE", "arguments": "edit JSON"}


def decide(ticket: Ticket, ask: Ask, renderer: Renderer) -> Decision | None:
    """The person's decision, or None to leave the ticket open."""
    renderer.ticket(ticket)
    if ticket.asked_by == "tool":
        return _reply(ticket, ask, renderer)
    choices = _choices(ticket)
    renderer.note("  " + "  ".join(f"[{word[0]}]{word[1:]}" for word in choices))
    while True:
        said = ask("decision> ", "").strip().lower()
        chosen = [word for word in choices if said and word.startswith(said)]
        if len(chosen) == 1:
            return _carry_out(chosen[0], ticket, ask, renderer)
        renderer.error(f"{said!r} is not one of {', '.join(choices)}")


def _choices(ticket: Ticket) -> list[str]:
    names = {"proceed": "approve", "arguments": "edit", "result": "result"}
    return [*[names[mode] for mode in ticket.accepts], "deny", _LATER]


def _carry_out(choice: str, ticket: Ticket, ask: Ask, renderer: Renderer) -> Decision | None:
    match choice:
        case "approve" if ticket.schema is not None:
            return Decision(ticket.id, mode="proceed", value=_value("answer> ", ticket, ask, renderer))
        case "approve":
            return Decision(ticket.id, mode="proceed")
        case "deny":
            return ticket.deny(ask("reason> ", "").strip())
        case "edit":
            return ticket.edit(_arguments(ticket, ask, renderer))
        case "result":
            return ticket.result(_value("result> ", ticket, ask, renderer))
        case _:
            return None


def _reply(ticket: Ticket, ask: Ask, renderer: Renderer) -> Decision | None:
    renderer.note("  answer, or /deny REASON, or /later")
    while True:
        said = ask("answer> ", "").strip()
        if said == f"/{_LATER}":
            return None
        if said == "/deny" or said.startswith("/deny "):
            return ticket.deny(said.removeprefix("/deny").strip())
        try:
            return ticket.answer(read_value(said, ticket.schema))
        except ValueError as error:
            renderer.error(str(error))


def _value(label: str, ticket: Ticket, ask: Ask, renderer: Renderer) -> Any:
    while True:
        try:
            return read_value(ask(label, "").strip(), ticket.schema)
        except ValueError as error:
            renderer.error(str(error))


def _arguments(ticket: Ticket, ask: Ask, renderer: Renderer) -> dict[str, Any]:
    while True:
        said = ask("arguments> ", msgspec.json.encode(ticket.arguments).decode())
        try:
            return msgspec.json.decode(said, type=dict[str, Any])
        except msgspec.DecodeError as error:
            renderer.error(f"the new arguments are a JSON object, such as {{...}}: {error}")


def ways(ticket: Ticket) -> list[str]:
    """The commands of `wakeful tickets` that fit a ticket, the usual one first; `deny` always fits."""
    found = [_COMMANDS[mode] for mode in ticket.accepts]
    return ["answer VALUE", *found[1:]] if ticket.asks_value else found


def read_value(said: str, schema: dict[str, Any] | None) -> Any:
    """A typed text as a value: JSON if the schema isn't text, or for an object or a list; else the text itself."""
    if schema is not None and schema.get("type") not in (None, "string"):
        try:
            return msgspec.json.decode(said)
        except msgspec.DecodeError as error:
            raise ValueError(f"this ticket takes JSON of type {schema['type']}: {error}") from error
    if said[:1] in ("{", "["):
        try:
            return msgspec.json.decode(said)
        except msgspec.DecodeError:
            return said
    return said


def decider(who: str | None) -> str:
    """The decider: the name given, else the user of the shell."""
    try:
        who = getpass.getuser() if who is None else who
    except (KeyError, OSError) as error:  # A container's user may have no name.
        raise UsageError("nobody knows who you are here: say so with --as WHO") from error
    if not who.strip() or who == SYSTEM:
        why = "is who decides at a deadline" if who == SYSTEM else "is nobody"
        raise UsageError(f"{who!r} {why}; say who you are with --as WHO")
    return who


def ask_terminal(label: str, prefill: str = "") -> str:
    """Read a line from stdin, with editing where it is a terminal; EOFError at its end."""
    if sys.stdin.isatty():
        return _edit_line(label, prefill)
    print(label, end="", flush=True)
    line = sys.stdin.readline()
    # Echo piped input, so that the output reads as a conversation.
    print(line.rstrip("\n"), flush=True)
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _edit_line(label: str, prefill: str) -> str:
    try:
        import readline
    except ImportError:  # Not every platform has it.
        return input(label)
    readline.set_startup_hook(lambda: readline.insert_text(prefill))
    try:
        return input(label)
    except EOFError:
        print()
        raise
    finally:
        readline.set_startup_hook(None)
