"""Chats: their streams, which can be resumed, their messages, and the cancellation of their answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from ...errors import InvalidDecision, ThreadBusy, TicketClosed, UnknownAgent, UnknownTicket, UsageError
from ...types.ids import now_ms
from ...types.runs import RunRecord
from ..follow import Followed, follow
from ..front_ends import last_run, open_tickets
from ..operations import Call, Reply, Stream
from ..operations.runs import run_of
from ..sse import EventStream
from .branches import thread_of_chat
from .encoder import Encoder
from .intake import ChatBody, begin
from .messages import ClientMessage, call_parts, ui_messages
from .table import HEADERS, OPENING, aisdk_op

__all__ = ["Cancelled"]

ERRORS = (UnknownAgent, UnknownTicket, ThreadBusy, TicketClosed, InvalidDecision)
VERSIONS = {"v5": 5, "v6": 6, "v7": 7}
# How long the stream of a finished answer can be resumed, in ms: its reader may have lost the end.
RESUMABLE_MS = 60_000
DONE = b"data: [DONE]\n\n"


@aisdk_op("aisdk.send", "POST", "/aisdk/{version}/{agent}", scope="runs:create", reply=Stream, errors=ERRORS)
async def send(call: Call, version: str, agent: str, body: ChatBody) -> Any:
    """Answer a chat, or continue its answer, and stream it.

    A message whose id was sent before starts nothing: its run is streamed again. Leaving doesn't cancel the run.
    """
    number = _number(version)
    call.check_agent(agent)
    run = await begin(call, agent, body)
    encoder = await _encoder(call, run, number, body.messages[-1])
    return _stream(call, run, encoder)


@aisdk_op(
    "aisdk.resume",
    "GET",
    "/aisdk/{version}/{agent}/{chat}/stream",
    scope="threads:read",
    reply=Stream,
    statuses=(200, 204),
    errors=(UnknownAgent,),
)
async def resume(call: Call, version: str, agent: str, chat: str) -> Any:
    """Stream the last answer of a chat from its beginning; 204 if there is none, or it was complete before."""
    number = _number(version)
    call.check_agent(agent)
    thread = await thread_of_chat(call, chat)
    run = await last_run(call, thread) if await call.runtime.store.thread(thread) is not None else None
    if run is None or _is_over(await call.runtime.store.run(run.run_id), number):
        return Reply(None, 204)
    return _stream(call, run, await _encoder(call, run, number))


@aisdk_op(
    "aisdk.messages",
    "GET",
    "/aisdk/{version}/{agent}/{chat}/messages",
    scope="threads:read",
    reply=list[dict[str, Any]],
    errors=(UnknownAgent,),
)
async def messages(call: Call, version: str, agent: str, chat: str) -> Any:
    """The messages of a chat, to begin `useChat` with."""
    _number(version)
    call.check_agent(agent)
    thread = await thread_of_chat(call, chat)
    if await call.runtime.store.thread(thread) is None:
        return []
    found = await call.runtime.threads.messages(thread)
    runs = {m.producer.run_id for m in found if m.producer is not None and m.producer.run_id is not None}
    tools = {run_id: _client_tools(await call.runtime.store.run(run_id)) for run_id in runs}
    return ui_messages(found, await open_tickets(call, thread), tools)


class Cancelled(Struct, frozen=True):
    """Whether an answer was cancelled; it may have been complete."""

    cancelled: bool


@aisdk_op(
    "aisdk.cancel",
    "POST",
    "/aisdk/{version}/{agent}/{chat}/cancel",
    scope="runs:control",
    reply=Cancelled,
    errors=(UnknownAgent,),
)
async def cancel(call: Call, version: str, agent: str, chat: str) -> Any:
    """Cancel the answer of a chat with everything below it. Stopping to read doesn't."""
    _number(version)
    call.check_agent(agent)
    thread = await thread_of_chat(call, chat)
    run = await last_run(call, thread, "runs:control")
    if run is None:
        return Cancelled(False)
    await run_of(call, run.run_id, "runs:control")
    return Cancelled(await call.serving.finish(call.runtime.cancel(run.run_id, "cancelled by request")))


# -- streams ---------------------------------------------------------------------------------------------------


def _number(version: str) -> int:
    if version not in VERSIONS:
        raise UsageError(
            f"{version!r:.40} is no version of the AI SDK that is served; there are {', '.join(VERSIONS)}"
        )
    return VERSIONS[version]


def _is_over(record: RunRecord | None, version: int) -> bool:
    """Whether there is nothing to resume. Version 5 would show a complete answer twice."""
    if record is None or record.status != "done":
        return False
    return version < 6 or now_ms() - record.updated_at > RESUMABLE_MS


def _client_tools(record: RunRecord | None) -> frozenset[str]:
    options = None if record is None else record.options
    return frozenset() if options is None else frozenset([tool.name for tool in options.client_tools])


async def _encoder(call: Call, run: Followed, version: int, last: ClientMessage | None = None) -> Encoder:
    """The encoder for a reader whose last message is this one.

    An answer is one message, whose id is that of the run, as long as no message of the user comes between.
    """
    tools = _client_tools(await call.runtime.store.run(run.run_id))
    if last is None or not run.since:
        return Encoder(run.run_id, version, client_tools=tools)
    if last.role != "assistant":
        return Encoder(run.run_id, version, message_id=f"{run.run_id}:{last.id}", client_tools=tools)
    parts = [*call_parts(last)]
    return Encoder(
        run.run_id,
        version,
        message_id=last.id,
        client_tools=tools,
        shown=[part["toolCallId"] for part in parts],
        results=[part["toolCallId"] for part in parts if str(part.get("state", "")).startswith("output-")],
        asked=[str(part["approval"].get("id")) for part in parts if isinstance(part.get("approval"), dict)],
    )


def _stream(call: Call, run: Followed, encoder: Encoder) -> EventStream:
    headers = {**HEADERS, "wakeful-run": run.run_id, "wakeful-thread": run.thread_id}
    return EventStream(_frames(call, run, encoder), headers=headers, opening=OPENING, admit=call.stream)


async def _frames(call: Call, run: Followed, encoder: Encoder) -> AsyncGenerator[bytes]:
    yield encoder.begin(run.thread_id)
    async with aclosing(follow(call.runtime, run, past_answers=True)) as events:
        async for event in events:
            if frames := encoder.encode(event):
                yield frames
    yield DONE
