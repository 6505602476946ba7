"""The operation that shows what a ticket is about."""

from __future__ import annotations

from typing import Any, get_args

from ...api.agents import ToolView
from ...api.tickets import TicketAction, TicketContext
from ...identity.rights import is_candidate
from ...types.addressees import asks_consent
from ...types.messages import Message
from ...types.tickets import Ticket
from .call import Call
from .operation import op
from .tickets import ticket_of

__all__: list[str] = []

# The messages that are shown, and how many are read to find them.
SHOWN = 10
READ = 50

_SCOPES: dict[TicketAction, str] = {
    "edit": "tickets:edit",
    "supply": "tickets:supply",
    "reassign": "tickets:reassign",
}


@op("tickets.context", "GET", "/v1/tickets/{ticket}/context", scope="tickets:read", reply=TicketContext)
async def context(call: Call, ticket: str) -> Any:
    """The last messages before a ticket, its tool, and what the caller may do.

    Whoever sees a ticket sees these messages, also in a thread of another principal.
    """
    found = await ticket_of(call, ticket)
    store = call.runtime.store
    thread = await store.thread(found.thread_id)
    calls = await store.calls(found.run_id)
    return TicketContext(
        title="" if thread is None else thread.title or "",
        messages=await _messages(call, found),
        tool=await _tool(call, found),
        ruling=next((each.ruling for each in calls if each.id == found.call_id), None),
        may=_actions(call, found) if found.status == "open" else (),
    )


async def _messages(call: Call, ticket: Ticket) -> tuple[Message, ...]:
    newest = await call.runtime.store.messages(ticket.thread_id, newest=READ)
    # Later ones are not what the ticket is about.
    past = [each for each in newest if each.created_at <= ticket.created_at and each.visibility == "all"]
    return tuple(past[-SHOWN:])


async def _tool(call: Call, ticket: Ticket) -> ToolView | None:
    """The tool of a ticket's call; None if neither its agent nor its run has it here."""
    if any(agent.id == ticket.agent_id for agent in call.serving.agents):
        for tool in call.runtime.agents.tools(ticket.agent_id):
            if tool.name == ticket.tool:
                return ToolView(name=tool.name, description=tool.description, parameters=tool.parameters)
    run = await call.runtime.store.run(ticket.run_id)
    for tool in () if run is None or run.options is None else run.options.client_tools:
        if tool.name == ticket.tool:
            return ToolView(name=tool.name, description=tool.description, parameters=tool.parameters)
    return None


def _actions(call: Call, ticket: Ticket) -> tuple[TicketAction, ...]:
    """The actions of the caller on an open ticket; the rules of `permit` decide again on each."""
    caller = call.caller
    if caller.principal is None:
        return get_args(TicketAction)
    found: list[TicketAction] = []
    for action in get_args(TicketAction):
        is_theirs = is_candidate(ticket, caller.principal, action) or caller.may("tickets:override")
        needed = _SCOPES.get(action) if asks_consent(ticket) or action == "reassign" else None
        scope = "tickets:reassign" if action == "reassign" else "tickets:answer"
        if is_theirs and caller.may(scope, ticket.agent_id) and (needed is None or caller.may(needed)):
            found.append(action)
    return tuple(found)
