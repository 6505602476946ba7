"""The client's file system and terminal as tools."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Protocol

from ...tools import ClientTool
from ...types.tickets import Decision, Ticket
from .questions import chosen

__all__ = ["CLIENT_KINDS", "ClientRefused", "Requests", "client_tools", "run_client_tool"]

# The most bytes of a command's output that are kept, from its end.
OUTPUT_BYTES = 64_000

CLIENT_KINDS = {"read_text_file": "read", "write_text_file": "edit", "run_command": "execute"}


class ClientRefused(Exception):
    """The client answered a request with an error."""


class Requests(Protocol):
    """The client's side of the connection."""

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and wait for its result; raises `ClientRefused`."""
        ...

    async def update(self, session: str, update: dict[str, Any]) -> None:
        """Send a session update."""
        ...


def client_tools(capabilities: dict[str, Any], cwd: str, taken: Collection[str]) -> list[ClientTool]:
    """The tools that a client's capabilities admit; those whose names the agent has itself are left out."""
    files: dict[str, Any] = capabilities.get("fs") or {}
    offered = [
        _tool(
            "read_text_file",
            f"Read a text file of the user's project in {cwd}, with unsaved changes.",
            {"path": _text("The absolute path."), "line": _count("The first line."), "limit": _count("Lines.")},
            ["path"],
        )
        if files.get("readTextFile")
        else None,
        _tool(
            "write_text_file",
            f"Write a text file of the user's project in {cwd}. The user is asked first.",
            {"path": _text("The absolute path."), "content": _text("The whole new content.")},
            ["path", "content"],
        )
        if files.get("writeTextFile")
        else None,
        _tool(
            "run_command",
            f"Run a command in a terminal of the user, in {cwd} by default. The user is asked first.",
            {
                "command": _text("The program."),
                "args": {"type": "array", "items": {"type": "string"}, "description": "Its arguments."},
                "cwd": _text("The absolute path of another directory."),
            },
            ["command"],
        )
        if capabilities.get("terminal")
        else None,
    ]
    return [each for each in offered if each is not None and each.name not in taken]


def _tool(name: str, description: str, properties: dict[str, Any], required: list[str]) -> ClientTool:
    return ClientTool(name, description, {"type": "object", "properties": properties, "required": required})


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _count(description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "description": description}


async def run_client_tool(client: Requests, ticket: Ticket, session: str, cwd: str) -> Decision | None:
    """Carry out the call of a ticket at the client; None if the client left the question open.

    The client's user is asked before a file is written and before a command runs, also when the call is repeated
    because the process ended in the middle of it.
    """
    if ticket.tool == "read_text_file":
        names = ("path", "line", "limit")
        wanted = {name: ticket.arguments[name] for name in names if ticket.arguments.get(name) is not None}
        found = await client.request("fs/read_text_file", {"sessionId": session, **wanted})
        return ticket.result(found.get("content", ""))
    is_allowed = await _ask(client, ticket, session)
    if not is_allowed:
        return None if is_allowed is None else ticket.deny("rejected by the user")
    if ticket.tool == "write_text_file":
        given = {"path": ticket.arguments["path"], "content": ticket.arguments["content"]}
        await client.request("fs/write_text_file", {"sessionId": session, **given})
        return ticket.result(f"wrote {len(given['content'])} characters to {given['path']}")
    return ticket.result(await _run_command(client, ticket, session, cwd))


async def _ask(client: Requests, ticket: Ticket, session: str) -> bool | None:
    given, kind = ticket.arguments, CLIENT_KINDS[ticket.tool]
    call: dict[str, Any] = {"toolCallId": ticket.call_id, "kind": kind, "status": "pending", "rawInput": given}
    if ticket.tool == "write_text_file":
        call |= {
            "title": f"Write {given['path']}",
            "content": [{"type": "diff", "path": given["path"], "newText": given["content"]}],
        }
    else:
        call["title"] = " ".join(["Run", given["command"], *_arguments(given)])
    options = [
        {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
        {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
    ]
    reply = await client.request(
        "session/request_permission", {"sessionId": session, "toolCall": call, "options": options}
    )
    option = chosen(reply)
    return None if option is None else option == "allow"


async def _run_command(client: Requests, ticket: Ticket, session: str, cwd: str) -> str:
    given = ticket.arguments
    made = await client.request(
        "terminal/create",
        {
            "sessionId": session,
            "command": given["command"],
            "args": _arguments(given),
            "cwd": given.get("cwd") or cwd,
            "outputByteLimit": OUTPUT_BYTES,
        },
    )
    terminal = {"sessionId": session, "terminalId": made["terminalId"]}
    shown = [{"type": "terminal", "terminalId": made["terminalId"]}]
    await client.update(
        session, {"sessionUpdate": "tool_call_update", "toolCallId": ticket.call_id, "content": shown}
    )
    try:
        end = await client.request("terminal/wait_for_exit", terminal)
        found = await client.request("terminal/output", terminal)
    except asyncio.CancelledError:
        await asyncio.shield(client.request("terminal/kill", terminal))
        raise
    finally:
        await asyncio.shield(client.request("terminal/release", terminal))
    how = f"signal {end['signal']}" if end.get("signal") else f"exit code {end.get('exitCode')}"
    return f"{found.get('output', '')}\n[{how}]"


def _arguments(given: dict[str, Any]) -> list[str]:
    return list(given.get("args") or ())
