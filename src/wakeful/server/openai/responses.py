"""Responses: create, read, stream again, cancel and delete. A response is a run, from one request to its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import InvalidDecision, ThreadBusy, TicketClosed, UnknownAgent, UnknownTicket, UsageError
from ...tools import ClientTool
from ...types.runs import RunRecord
from ...types.tickets import Decision
from ..follow import Followed, answer_tickets, follow, start_of
from ..operations import Call, Stream
from ..operations.threads import thread_of
from ..sse import EventStream
from .conversation import ChatMessage, Conversation, continued_thread, input_of, split
from .errors import Unsupported
from .models import agent_of
from .response_ids import followed_of
from .response_stream import Frame, ResponseEncoder
from .settings import settings_of
from .table import OPENING, openai_op

__all__ = ["ResponseBody"]


class FunctionTool(Struct, frozen=True, kw_only=True):
    """A function that the client runs."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None


class InputItem(Struct, frozen=True, kw_only=True):
    """An item of the input: a message, an answer to a call or to a request for approval, or an earlier item."""

    type: str = "message"
    role: str = ""
    content: str | list[dict[str, Any]] | None = None
    call_id: str = ""
    output: str | list[dict[str, Any]] | None = None
    approval_request_id: str = ""
    approve: bool | None = None
    reason: str | None = None


class ResponseBody(Struct, frozen=True, kw_only=True):
    """A request. Fields that are not listed here have no meaning for an agent and are ignored."""

    model: str
    input: str | list[InputItem]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool = False
    background: bool = False
    tools: list[FunctionTool] = []
    metadata: dict[str, str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None


class ReadQuery(Struct, frozen=True, kw_only=True):
    """`starting_after` is the sequence number after which a stream begins."""

    stream: bool = False
    starting_after: int = -1
    include: tuple[str, ...] = ()
    include_obfuscation: bool = False


ERRORS = (UnknownAgent, UnknownTicket, ThreadBusy, TicketClosed, InvalidDecision)


@openai_op(
    "responses.create",
    "POST",
    "/openai/v1/responses",
    scope="runs:create",
    reply=Stream,
    errors=ERRORS,
    repeatable=True,
)
async def create(call: Call, body: ResponseBody) -> Any:
    """Answer an input.

    A background response returns at once. Leaving doesn't cancel the run in any case.
    """
    if (kind := ((body.text or {}).get("format") or {"type": "text"}).get("type")) != "text":
        raise Unsupported(f"text.format of type {kind!r:.40}: an agent's output type is its own; leave it out")
    agent = agent_of(body.model)
    call.check_agent(agent)
    run = await _begin(call, body, agent)
    encoder = await _encoder(call, run, body.model, body.previous_response_id)
    if body.stream:
        return _stream(call, run, encoder)
    return await (_now(call, run, encoder) if body.background else _drain(call, run, encoder))


@openai_op("responses.get", "GET", "/openai/v1/responses/{response}", scope="runs:read", reply=Stream)
async def get(call: Call, response: str, query: ReadQuery) -> Any:
    """A response as it is now, or its stream from any place on, for as long as the thread's log is kept."""
    run = await followed_of(call, response)
    encoder = await _encoder(call, run)
    return _stream(call, run, encoder, query.starting_after) if query.stream else await _now(call, run, encoder)


@openai_op(
    "responses.cancel", "POST", "/openai/v1/responses/{response}/cancel", scope="runs:control", reply=Stream
)
async def cancel(call: Call, response: str) -> Any:
    """Cancel a response's run with everything below it."""
    run = await followed_of(call, response, "runs:control")
    await call.serving.finish(call.runtime.cancel(run.run_id, "cancelled by request"))
    return await _drain(call, run, await _encoder(call, run))


@openai_op("responses.delete", "DELETE", "/openai/v1/responses/{response}", scope="threads:delete", reply=Stream)
async def delete(call: Call, response: str) -> Any:
    """Delete a response with its whole conversation."""
    run = await followed_of(call, response, "runs:read")
    await thread_of(call, run.thread_id)
    await call.runtime.threads.delete(run.thread_id)
    return {"id": response, "object": "response", "deleted": True}


@openai_op(
    "responses.input_items",
    "GET",
    "/openai/v1/responses/{response}/input_items",
    scope="threads:read",
    reply=Stream,
)
async def input_items(call: Call, response: str) -> Any:
    """The messages before a response, newest first."""
    run = await followed_of(call, response, "runs:read")
    before = int(run.after) + 1
    found = [
        {
            "type": "message",
            "id": f"msg_{message.id}",
            "status": "completed",
            "role": message.role,
            "content": [{"type": "input_text", "text": message.text}],
        }
        for message in reversed(await call.runtime.threads.messages(run.thread_id))
        if message.role in ("user", "system") and message.visibility == "all" and message.seq <= before + 1
    ]
    ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]} if found else {}
    return {"object": "list", "data": found, "has_more": False, **ends}


# -- requests --------------------------------------------------------------------------------------------------


async def _begin(call: Call, body: ResponseBody, agent: str) -> Followed:
    items = [InputItem(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    answers = [_answer(item) for item in items if item.type in ("function_call_output", "mcp_approval_response")]
    messages = [_message(item) for item in items if item.type == "message"]
    if answers:
        new = [each for each in messages if each.role == "user"] if body.previous_response_id else []
        return await answer_tickets(call, answers, input_of(split(new).input) if new else None)
    conversation = split(messages)
    thread, history = await _thread_for(call, body, agent, conversation)
    handle = await call.runtime.start(
        agent,
        input_of(conversation.input),
        thread=thread,
        principal=call.caller.principal,
        settings=settings_of(
            call,
            agent,
            temperature=body.temperature,
            top_p=body.top_p,
            max_tokens=body.max_output_tokens,
            reasoning=(body.reasoning or {}).get("effort"),
        ),
        client_tools=[_client_tool(tool) for tool in body.tools],
        request_id=call.request_id,
        history=history,
    )
    return await start_of(call.runtime, handle.run_id, handle.thread_id)


async def _thread_for(
    call: Call, body: ResponseBody, agent: str, conversation: Conversation
) -> tuple[str | None, Sequence[Any]]:
    """The thread of a new response, and the messages that a new one begins with."""
    if body.previous_response_id is not None:
        return await _thread_after(call, body.previous_response_id), ()
    notes = [] if body.instructions is None else [ChatMessage(role="system", content=body.instructions)]
    thread, is_known = await continued_thread(call, agent, [*notes, *conversation.past])
    if is_known:
        return thread, ()
    return thread, msgspec.structs.replace(conversation, past=[*notes, *conversation.past]).history


async def _thread_after(call: Call, previous: str) -> str:
    """The thread that continues a response: its own, or a fork if that has gone on since."""
    run = await followed_of(call, previous)
    record, thread = await call.runtime.runs.get(run.run_id), await thread_of(call, run.thread_id)
    if record.status != "done" or thread.last_run_id == record.id:
        return run.thread_id
    encoder = await _encoder(call, run)
    await _now(call, run, encoder)
    return await call.runtime.threads.fork(run.thread_id, at=encoder.last_seq, request_id=call.request_id)


def _message(item: InputItem) -> ChatMessage:
    if item.role not in ("system", "developer", "user", "assistant"):
        raise UsageError(f"a message has the role user, assistant, system or developer, not {item.role!r:.40}")
    return ChatMessage(role=item.role, content=item.content)


def _answer(item: InputItem) -> Decision:
    """The answer of an item to the ticket that it names."""
    if item.type == "function_call_output":
        ticket, given = item.call_id, msgspec.json.encode(item.output).decode()
        decision = Decision(ticket, mode=None, value=item.output)
    else:
        ticket, given = item.approval_request_id, f"{item.approve}\n{item.reason or ''}"
        verdict = "approve" if item.approve else "deny"
        decision = Decision(ticket, verdict, mode="proceed" if item.approve else None, reason=item.reason or "")
    if not ticket:
        raise UsageError(f"an item of type {item.type!r} names what it answers: call_id or approval_request_id")
    digest = sha256(given.encode(errors="replace")).hexdigest()[:16]
    return msgspec.structs.replace(decision, id=f"openai:{ticket}:{digest}")


def _client_tool(tool: FunctionTool) -> ClientTool:
    if tool.type != "function":
        raise Unsupported(f"tools of type {tool.type!r:.40} can't be offered to an agent; give functions")
    return ClientTool(tool.name, tool.description or "", tool.parameters)


# -- replies ---------------------------------------------------------------------------------------------------


async def _encoder(
    call: Call, run: Followed, model: str | None = None, previous: str | None = None
) -> ResponseEncoder:
    record: RunRecord | None = await call.runtime.store.run(run.run_id)
    created = run.since or (0 if record is None else record.created_at)
    name = model or ("" if record is None else record.identity.agent_id)
    return ResponseEncoder(run, name, created_at=created, previous=previous)


async def _drain(call: Call, run: Followed, encoder: ResponseEncoder) -> dict[str, Any]:
    """The response once it has ended."""
    found: list[Frame] = []
    async with aclosing(follow(call.runtime, run)) as events:
        async for event in events:
            found = encoder.encode(event)
    return found[-1].fields["response"]


async def _now(call: Call, run: Followed, encoder: ResponseEncoder) -> dict[str, Any]:
    """The response as the log has it."""
    found: list[Frame] = []
    async with aclosing(follow(call.runtime, run, live=False)) as events:
        async for event in events:
            found = encoder.encode(event)
    return found[-1].fields["response"] if found and "response" in found[-1].fields else encoder.response()


def _stream(call: Call, run: Followed, encoder: ResponseEncoder, after: int = -1) -> EventStream:
    return EventStream(_frames(call, run, encoder, after), opening=OPENING, admit=call.stream)


async def _frames(call: Call, run: Followed, encoder: ResponseEncoder, after: int) -> AsyncGenerator[bytes]:
    for frame in encoder.begin():
        if (new := frame.after(after)) is not None:
            yield _bytes(new)
    async with aclosing(follow(call.runtime, run)) as events:
        async for event in events:
            for frame in encoder.encode(event):
                if (new := frame.after(after)) is not None:
                    yield _bytes(new)
    yield b"data: [DONE]\n\n"


def _bytes(frame: Frame) -> bytes:
    data = {"type": frame.type, "sequence_number": frame.number, **frame.fields}
    return b"event: %s\ndata: %s\n\n" % (frame.type.encode(), msgspec.json.encode(data))
