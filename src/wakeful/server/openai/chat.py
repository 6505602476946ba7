"""Chat Completions: a request becomes a run, or answers the client tools that a run waits for."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException

from ...errors import ThreadBusy, TicketClosed, UnknownAgent, UnknownTicket, UsageError
from ...tools import ClientTool
from ...types.tickets import Decision
from ..follow import Followed, answer_tickets, follow, start_of
from ..operations import Call, Reply, Stream
from ..operations.threads import check_thread
from ..sse import EventStream
from .chat_stream import ChatEncoder, ChatFailed, completion_of
from .content import plain_text
from .conversation import ChatMessage, continued_thread, input_of, split
from .errors import Unsupported, stream_error
from .models import agent_of
from .settings import settings_of
from .table import OPENING, openai_op

__all__ = ["ChatBody", "ToolBody"]

THREAD_HEADER = "wakeful-thread"


class FunctionBody(Struct, frozen=True, kw_only=True):
    """A function that the client runs."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class ToolBody(Struct, frozen=True, kw_only=True):
    """A tool of the client."""

    type: str
    function: FunctionBody | None = None


class StreamOptions(Struct, frozen=True, kw_only=True):
    """Whether the last chunk of a stream has the usage."""

    include_usage: bool = False


class ChatBody(Struct, frozen=True, kw_only=True):
    """A request. Fields that are not listed here have no meaning for an agent and are ignored."""

    model: str
    messages: list[ChatMessage]
    stream: bool = False
    stream_options: StreamOptions | None = None
    tools: list[ToolBody] = []
    metadata: dict[str, str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    n: int | None = None
    logprobs: bool | None = None
    functions: list[Any] | None = None
    modalities: list[str] | None = None
    response_format: dict[str, Any] | None = None


@openai_op(
    "chat.completions.create",
    "POST",
    "/openai/v1/chat/completions",
    scope="runs:create",
    reply=Stream,
    errors=(UnknownAgent, UnknownTicket, ThreadBusy, TicketClosed),
    repeatable=True,
)
async def create(call: Call, body: ChatBody) -> Any:
    """Answer a conversation.

    The answer is that of a run on the thread which has the conversation so far. Leaving doesn't cancel the run.
    """
    _refuse_unsupported(body)
    agent = agent_of(body.model)
    call.check_agent(agent)
    run = await _begin(call, body, agent)
    headers = {THREAD_HEADER: run.thread_id}
    encoder = ChatEncoder(run.run_id, body.model)
    if not body.stream:
        return Reply(await _drain(call, run, encoder), 200, **headers)
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    frames = _frames(call, run, encoder, with_usage=with_usage)
    return EventStream(frames, headers=headers, opening=OPENING, admit=call.stream)


async def _begin(call: Call, body: ChatBody, agent: str) -> Followed:
    conversation = split(body.messages)
    message = input_of(conversation.input) if conversation.input else None
    if conversation.replies:
        return await answer_tickets(call, [_result(reply) for reply in conversation.replies], message)
    thread = call.http.headers.get(THREAD_HEADER) or (body.metadata or {}).get("thread")
    is_known = thread is not None
    if thread is not None:
        await check_thread(call, thread)
    else:
        thread, is_known = await continued_thread(call, agent, conversation.past)
    handle = await call.runtime.start(
        agent,
        message,
        thread=thread,
        principal=call.caller.principal,
        settings=settings_of(
            call,
            agent,
            temperature=body.temperature,
            top_p=body.top_p,
            max_tokens=body.max_completion_tokens or body.max_tokens,
            reasoning=body.reasoning_effort,
            stop=(body.stop,) if isinstance(body.stop, str) else body.stop and tuple(body.stop),
            seed=body.seed,
        ),
        client_tools=[_client_tool(tool) for tool in body.tools],
        request_id=call.request_id,
        history=() if is_known else conversation.history,
    )
    return await start_of(call.runtime, handle.run_id, handle.thread_id)


def _result(reply: ChatMessage) -> Decision:
    """The result of a client's tool as the answer to its ticket, whose id is that of the call."""
    if reply.tool_call_id is None:
        raise UsageError("a message of the role 'tool' has the id of its call: tool_call_id")
    text = plain_text(reply.content)
    digest = sha256(text.encode(errors="replace")).hexdigest()[:16]
    return Decision(reply.tool_call_id, mode="result", value=text, id=f"openai:{reply.tool_call_id}:{digest}")


def _client_tool(tool: ToolBody) -> ClientTool:
    if tool.type != "function" or tool.function is None:
        raise Unsupported(f"tools of type {tool.type!r:.40} can't be offered to an agent; give functions")
    return ClientTool(tool.function.name, tool.function.description, tool.function.parameters)


def _refuse_unsupported(body: ChatBody) -> None:
    found = {
        "n": body.n not in (None, 1),
        "logprobs": bool(body.logprobs),
        "functions": bool(body.functions),
        "modalities": body.modalities not in (None, ["text"]),
        "response_format": (body.response_format or {"type": "text"}).get("type") != "text",
    }
    if named := [name for name, is_given in found.items() if is_given]:
        raise Unsupported(f"{', '.join(named)}: agents don't have that; leave it out")


async def _drain(call: Call, run: Followed, encoder: ChatEncoder) -> Any:
    try:
        async with aclosing(follow(call.runtime, run)) as events:
            async for event in events:
                encoder.encode(event)
    except ChatFailed as error:
        raise HTTPException(500, str(error)) from error
    return completion_of(encoder)


async def _frames(call: Call, run: Followed, encoder: ChatEncoder, *, with_usage: bool) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(follow(call.runtime, run)) as events:
            async for event in events:
                for chunk in encoder.encode(event):
                    yield data_frame(chunk)
        if with_usage:
            yield data_frame(encoder.usage_chunk())
    except ChatFailed as error:
        yield data_frame(stream_error(str(error), error.code))
    yield b"data: [DONE]\n\n"


def data_frame(value: Any) -> bytes:
    """A frame without a name."""
    return b"data: %s\n\n" % msgspec.json.encode(value)
