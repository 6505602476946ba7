"""Requests of `useChat`: a new message, an edited one, another answer, or answers to tickets."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...errors import InvalidDecision, ThreadBusy, UsageError
from ...tools import ClientTool
from ...types.inbox import Request
from ...types.tickets import Decision, Ticket
from ..follow import Followed, answer_tickets, start_of
from ..front_ends import decision_id, followed_request, input_of, last_run, open_tickets, request_of
from ..operations import Call
from ..operations.tickets import ticket_of
from .branches import branch_before, thread_of_chat
from .messages import ANSWER, ClientMessage, Part, call_parts, parts_of

__all__ = ["ChatBody", "begin"]


class ToolBody(Struct, frozen=True, kw_only=True):
    """A tool of the client."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class ChatBody(Struct, frozen=True, rename="camel", kw_only=True):
    """A request. Fields that are not listed here have no meaning for a server and are ignored."""

    id: str
    messages: list[ClientMessage]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = None
    tools: list[ToolBody] = []


async def begin(call: Call, agent: str, body: ChatBody) -> Followed:
    """Do what a request asks for; returns the run that its reader follows."""
    thread = await thread_of_chat(call, body.id)
    turn = body.messages[-1] if body.messages and body.messages[-1].role == "user" else None
    if body.trigger == "regenerate-message":
        if turn is None:
            raise UsageError("the last message of a request for another answer is the user's that is answered")
        return await _start(call, agent, body, thread, turn, again=True)
    waiting = await open_tickets(call, thread)
    decisions = await _decisions(call, body, waiting)
    if decisions:
        content = () if turn is None else parts_of(turn)
        is_new = turn is not None and await _is_new(call, thread, turn)
        return await answer_tickets(
            call, decisions, input_of(content) if content and is_new else None, thread=thread
        )
    if turn is not None and (parts_of(turn) or not _answers(turn)):
        return await _start(call, agent, body, thread, turn, waiting, again=turn.id == body.message_id)
    last = await last_run(call, thread, "threads:read") if await call.runtime.store.thread(thread) else None
    if last is None:
        raise UsageError("there is nothing to do: the last message is neither the user's nor has it new results")
    return last


async def _is_new(call: Call, thread: str, turn: ClientMessage) -> bool:
    return await followed_request(call, request_of(call, thread, turn.id, parts_of(turn))) is None


async def _start(
    call: Call,
    agent: str,
    body: ChatBody,
    thread: str,
    turn: ClientMessage,
    waiting: Sequence[Ticket] = (),
    *,
    again: bool,
) -> Followed:
    """Start the run of a user's message, on a branch if the thread has it already."""
    content = parts_of(turn)
    if not content:
        raise UsageError("the last message is empty; give it a text or a file")
    request = request_of(call, thread, turn.id, content)
    if again:
        # The chat's id and not the branch's: the same request finds its own branch.
        wanted = [call.caller.id, body.id, body.trigger, body.message_id, turn.id, content]
        digest = sha256(msgspec.json.encode(wanted)).hexdigest()
        request = Request(f"message:{digest[:32]}", digest[32:])
    if (known := await followed_request(call, request)) is not None:
        return known
    if again:
        thread = await branch_before(call, body.id, thread, turn, request)
    elif asked := [ticket for ticket in waiting if ticket.asked_by != "client"]:
        ids = ", ".join([ticket.id for ticket in asked])
        raise ThreadBusy(f"chat {body.id!r:.80} waits for answers to {ids}; answer or deny them first")
    handle = await call.runtime.start(
        agent,
        input_of(content),
        thread=thread,
        principal=call.caller.principal,
        client_tools=[ClientTool(tool.name, tool.description, tool.parameters) for tool in body.tools],
        request_id=request,
        message_id=turn.id,
    )
    return await start_of(call.runtime, handle.run_id, handle.thread_id)


# -- answers ---------------------------------------------------------------------------------------------------


def _answers(message: ClientMessage) -> list[Part]:
    """The answers to tickets that a message of the user has as data."""
    return [
        part["data"] for part in message.parts if part.get("type") == ANSWER and isinstance(part.get("data"), dict)
    ]


async def _decisions(call: Call, body: ChatBody, waiting: Sequence[Ticket]) -> list[Decision]:
    """The answers of a request to open tickets, else those that were taken before."""
    open_ids = {ticket.id for ticket in waiting}
    found: list[Decision] = []
    for message in body.messages[-2:]:
        for part in call_parts(message):
            found += await _of_part(call, part, waiting)
        for data in _answers(message):
            found.append(await _of_data(call, data))
    found = [replace(decision, id=decision_id("aisdk", decision)) for decision in found]
    # Parts stay in the client's messages: those about closed tickets are of no interest if there are others.
    fresh = [decision for decision in found if decision.ticket_id in open_ids]
    is_turn = bool(body.messages) and body.messages[-1].role == "user" and bool(parts_of(body.messages[-1]))
    return fresh or ([] if is_turn else found)


async def _of_part(call: Call, part: Part, waiting: Sequence[Ticket]) -> list[Decision]:
    match part:
        case {"state": "approval-responded", "approval": {"id": str(an_id), "approved": bool(approved), **rest}}:
            ticket = await ticket_of(call, an_id)
            reason = str(rest.get("reason") or "")
            return [_approve(ticket, reason) if approved else Decision(ticket.id, "deny", reason=reason)]
        case {"state": "output-available" | "output-error", "toolCallId": call_id} if not part.get(
            "providerExecuted"
        ):
            asked = next((t for t in waiting if t.call_id == call_id and t.asked_by == "client"), None)
            if asked is None:
                return []
            if part["state"] == "output-error":
                return [
                    Decision(asked.id, "deny", reason=str(part.get("errorText") or "the client's tool failed"))
                ]
            return [Decision(asked.id, mode="result", value=part.get("output"))]
        case _:
            return []


async def _of_data(call: Call, data: Part) -> Decision:
    match data:
        case {"ticket": str(an_id), "approved": bool(approved), **rest}:
            ticket = await ticket_of(call, an_id)
            reason = str(rest.get("reason") or "")
            return _approve(ticket, reason) if approved else Decision(ticket.id, "deny", reason=reason)
        case {"ticket": str(an_id), "value": value}:
            return Decision((await ticket_of(call, an_id)).id, value=value)
        case _:
            raise InvalidDecision(
                f"a part {ANSWER!r} has {{ticket, approved, reason?}} or {{ticket, value}}, not {data!r:.80}"
            )


def _approve(ticket: Ticket, reason: str) -> Decision:
    return Decision(ticket.id, mode="proceed", reason=reason)
