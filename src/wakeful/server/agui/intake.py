"""Requests of AG-UI: a new message, answers to interrupts, results of client tools, or none of these."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from ...errors import InvalidDecision, ThreadBusy, UsageError
from ...tools import ClientTool
from ...types.content import Content
from ...types.tickets import Decision, Ticket
from ..follow import Followed, answer_tickets, start_of
from ..front_ends import decision_id, followed_request, input_of, last_run, open_tickets, request_of
from ..operations import Call
from ..operations.threads import check_thread
from ..operations.tickets import ticket_of
from .messages import ClientMessage, parts_of, plain_text

__all__ = ["RunAgentInput", "begin", "check_version"]


class ToolBody(Struct, frozen=True):
    """A tool of the client."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class ResumeEntry(Struct, frozen=True, rename="camel"):
    """An answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunAgentInput(Struct, frozen=True, rename="camel", kw_only=True):
    """A request. Fields that are not listed here have no meaning for a server and are ignored."""

    thread_id: str
    run_id: str
    messages: list[ClientMessage]
    protocol_version: str | None = None
    state: Any = None
    tools: list[ToolBody] = []
    context: list[dict[str, Any]] = []
    resume: list[ResumeEntry] = []


def check_version(body: RunAgentInput) -> None:
    """Refuse a version of the protocol that this server doesn't speak."""
    version = body.protocol_version
    if version is not None and not re.fullmatch(r"1\.\d+", version):
        raise UsageError(
            f"protocolVersion {version!r:.40} isn't spoken here; send 1.0, or leave it out for versions before 1.0"
        )


async def begin(call: Call, agent: str, body: RunAgentInput) -> Followed:
    """Do what a request asks for; returns the run that its reader follows."""
    thread = body.thread_id
    await check_thread(call, thread)
    waiting = await open_tickets(call, thread)
    decisions = [*await _resumed(call, body.resume), *_results(body.messages, waiting)]
    if decisions:
        message = await _new_input(call, thread, _after_answers(body.messages))
        return await answer_tickets(call, decisions, None if message is None else input_of(message), thread=thread)
    group = _last_turn(body.messages)
    if not group:
        raise UsageError("there is nothing to do: the messages have none of the user, and resume has no answers")
    request = request_of(call, thread, group[-1].id, parts_of(group[-1]))
    known = await followed_request(call, request)
    if known is not None:
        return known
    if (
        group[-1] is not _newest(body.messages)
        and (last := await last_run(call, thread, "threads:read")) is not None
    ):
        return last
    if asked := [ticket for ticket in waiting if ticket.asked_by != "client"]:
        ids = ", ".join([ticket.id for ticket in asked])
        raise ThreadBusy(f"thread {thread!r:.80} waits for answers: send resume with the interrupts {ids}")
    new = await _new_input(call, thread, group)
    handle = await call.runtime.start(
        agent,
        input_of(() if new is None else new),
        thread=thread,
        principal=call.caller.principal,
        client_tools=[ClientTool(tool.name, tool.description, tool.parameters) for tool in body.tools],
        request_id=request,
        message_id=group[-1].id,
    )
    return await start_of(call.runtime, handle.run_id, handle.thread_id)


# -- messages --------------------------------------------------------------------------------------------------


def _turns(messages: Sequence[ClientMessage]) -> list[ClientMessage]:
    return [message for message in messages if message.role in ("user", "assistant", "tool")]


def _newest(messages: Sequence[ClientMessage]) -> ClientMessage | None:
    turns = _turns(messages)
    return turns[-1] if turns else None


def _last_turn(messages: Sequence[ClientMessage]) -> list[ClientMessage]:
    """The user's last messages, with nothing between them."""
    found: list[ClientMessage] = []
    for message in reversed(_turns(messages)):
        if message.role == "user":
            found.insert(0, message)
        elif found:
            break
    return found


def _after_answers(messages: Sequence[ClientMessage]) -> list[ClientMessage]:
    """The user's messages after the last answer or result."""
    found = _last_turn(messages)
    return found if found and found[-1] is _newest(messages) else []


async def _new_input(call: Call, thread: str, group: Sequence[ClientMessage]) -> tuple[Content, ...] | None:
    """The content of messages, without those that were sent before; None if all were."""
    parts: list[Content] = []
    for message in group:
        content = parts_of(message)
        if await followed_request(call, request_of(call, thread, message.id, content)) is None:
            parts += content
    return tuple(parts) or None


# -- answers ---------------------------------------------------------------------------------------------------


async def _resumed(call: Call, entries: Sequence[ResumeEntry]) -> list[Decision]:
    """The decisions of a resume. An entry about a ticket that is closed by now is left out, unless all are."""
    found = [(await ticket_of(call, entry.interrupt_id), entry) for entry in entries]
    decisions = [(ticket, _decision(ticket, entry)) for ticket, entry in found]
    fresh = [decision for ticket, decision in decisions if ticket.status == "open"]
    return fresh or [decision for _, decision in decisions]


def _decision(ticket: Ticket, entry: ResumeEntry) -> Decision:
    decision = (
        _denied(ticket, "cancelled by the client")
        if entry.status == "cancelled"
        else _answer(ticket, entry.payload)
    )
    return replace(decision, id=decision_id("agui", decision))


def _denied(ticket: Ticket, reason: str) -> Decision:
    return Decision(ticket.id, "deny", reason=reason)


def _answer(ticket: Ticket, payload: Any) -> Decision:
    """The decision that a payload stands for."""
    if ticket.asks_value:
        return Decision(ticket.id, value=payload)
    match payload:
        case None | True:
            return Decision(ticket.id, mode="proceed")
        case False:
            return _denied(ticket, "")
        case {"approved": bool(approved), **rest}:
            reason = str(rest.get("reason") or "")
            if not approved:
                return _denied(ticket, reason)
            arguments: Any = rest.get("arguments")
            if arguments is None:
                return Decision(ticket.id, mode="proceed", reason=reason)
            return Decision(ticket.id, mode="arguments", value=arguments, reason=reason)
        case {"arguments": _}:
            return Decision(ticket.id, mode="arguments", value=payload["arguments"])
        case _:
            raise InvalidDecision(
                f"the payload for interrupt {ticket.id!r} is {payload!r:.80}; send true, false or "
                '{"approved": true}, with a reason or other arguments if you like'
            )


def _results(messages: Sequence[ClientMessage], waiting: Sequence[Ticket]) -> list[Decision]:
    """The results of client tools that the thread waits for."""
    asked = {ticket.call_id: ticket for ticket in waiting if ticket.asked_by == "client"}
    return [
        _result(asked[message.tool_call_id], message)
        for message in messages
        if message.role == "tool" and message.tool_call_id in asked
    ]


def _result(ticket: Ticket, message: ClientMessage) -> Decision:
    text = plain_text(message)
    decision = Decision(ticket.id, mode="result", value=text)
    if message.error is not None:
        decision = _denied(ticket, message.error or text)
    return replace(decision, id=decision_id("agui", decision))
