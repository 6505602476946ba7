"""Prompts for decisions on tickets."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from ..errors import UsageError
from ..types.runs import DEFAULT_RIGHTS, RIGHTS, Author, Principal
from ..types.tickets import SYSTEM, Decision, Ticket
from .render import Renderer

__all__ = ["Ask", "ask_terminal", "decide", "decider", "read_value", "votes_text", "ways"]

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
        typed = ask("decision> ", "").strip().lower()
        chosen = [word for word in choices if typed and word.startswith(typed)]
        if len(chosen) == 1:
            return _carry_out(chosen[0], ticket, ask, renderer)
        renderer.error(f"{typed!r} is not one of {', '.join(choices)}")


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
        typed = ask("answer> ", "").strip()
        if typed == f"/{_LATER}":
            return None
        if typed == "/deny" or typed.startswith("/deny "):
            return ticket.deny(typed.removeprefix("/deny").strip())
        try:
            return ticket.answer(read_value(typed, ticket.schema))
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
        typed = ask("arguments> ", msgspec.json.encode(ticket.arguments).decode())
        try:
            return msgspec.json.decode(typed, type=dict[str, Any])
        except msgspec.DecodeError as error:
            renderer.error(f"the new arguments are a JSON object, such as {{...}}: {error}")


def ways(ticket: Ticket) -> list[str]:
    """The commands of `wakeful tickets` that fit a ticket, the usual one first; `deny` always fits."""
    found = [_COMMANDS[mode] for mode in ticket.accepts]
    return ["answer VALUE", *found[1:]] if ticket.asks_value else found


def votes_text(ticket: Ticket) -> str:
    """The votes on an open ticket that needs several, and the number that is missing; empty for others."""
    if ticket.quorum <= 1 or not ticket.missing:
        return ""
    names = ", ".join([vote.principal_id for vote in ticket.approvals])
    counted = f"{len(ticket.approvals)} of {ticket.quorum} approvals" + (f" ({names})" if names else "")
    return f"{counted}; {ticket.missing} missing"


def read_value(typed: str, schema: dict[str, Any] | None) -> Any:
    """A typed text as a value: JSON if the schema isn't text, or for an object or a list; else the text itself."""
    if schema is not None and schema.get("type") not in (None, "string"):
        try:
            return msgspec.json.decode(typed)
        except msgspec.DecodeError as error:
            raise ValueError(f"this ticket takes JSON of type {schema['type']}: {error}") from error
    if typed[:1] in ("{", "["):
        try:
            return msgspec.json.decode(typed)
        except msgspec.DecodeError:
            return typed
    return typed


def decider(who: str | None) -> Author:
    """The decider: the principal given, such as `ann,group:finance,role:lead`, or the user of the shell.

    A principal that is given has the rights of one in the same process. The user of the shell reaches the store,
    and may override.
    """
    try:
        name, *others = (getpass.getuser() if who is None else who).split(",")
    except (KeyError, OSError) as error:  # A container's user may have no name.
        raise UsageError("the user is unknown here: name one with --as WHO") from error
    if not name.strip() or name == SYSTEM:
        why = "is who decides at a deadline" if name == SYSTEM else "is nobody"
        raise UsageError(f"{name!r} {why}; say who you are with --as WHO")
    parts = [other.partition(":") for other in others]
    if wrong := [":".join(part[::2]) for part in parts if part[0] not in ("group", "role") or not part[2]]:
        raise UsageError(f"--as is a name, then group:<name> and role:<name> after commas, not {wrong[0]!r}")
    groups, roles = ([part[2] for part in parts if part[0] == kind] for kind in ("group", "role"))
    principal = Principal(name, groups=tuple(groups), roles=tuple(roles))
    return Author(principal, RIGHTS if who is None else DEFAULT_RIGHTS, "shell")


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
