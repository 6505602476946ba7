"""Runs over AG-UI: a request and its stream, and the stream of a thread that goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import InvalidDecision, ThreadBusy, TicketClosed, UnknownAgent, UnknownThread, UnknownTicket
from ...types.events import AnyEvent, MessageAdded
from ..follow import Followed, Settled, follow
from ..front_ends import last_run
from ..operations import Call, Reply, Stream
from ..sse import EventStream
from .encoder import Encoder, Rewritten, frame
from .intake import RunAgentInput, begin, check_version
from .messages import ClientMessage, shown_messages
from .table import OPENING, agui_op

__all__ = ["ConnectQuery"]

ERRORS = (UnknownAgent, UnknownTicket, ThreadBusy, TicketClosed, InvalidDecision)


@agui_op("agui.run", "POST", "/agui/{agent}", scope="runs:create", reply=Stream, errors=ERRORS)
async def run(call: Call, agent: str, body: RunAgentInput) -> Any:
    """Run an agent, or continue a run with answers, and stream what follows.

    A message whose id was sent before starts nothing: its run is streamed again. Leaving doesn't cancel the run.
    """
    check_version(body)
    call.check_agent(agent)
    followed = await begin(call, agent, body)
    encoder = Encoder(
        followed.thread_id, body.run_id, followed.run_id, version=body.protocol_version, known=body.messages
    )
    return _stream(call, followed, encoder, await _state(call, followed))


class ConnectQuery(Struct, frozen=True):
    """The version of the protocol that a reader speaks; none before 1.0."""

    version: str | None = None


@agui_op(
    "agui.connect",
    "GET",
    "/agui/{agent}/threads/{thread}/stream",
    scope="threads:read",
    reply=Stream,
    errors=(UnknownAgent, UnknownThread),
)
async def connect(call: Call, agent: str, thread: str, query: ConnectQuery) -> Any:
    """Stream a thread as it is now, and its open run until that is done or asks. 204 if it has had no run."""
    followed = await last_run(call, thread)
    if followed is None:
        return Reply(None, 204)
    messages = shown_messages(await call.runtime.threads.messages(thread))
    known = msgspec.convert(messages, list[ClientMessage])
    encoder = Encoder(thread, followed.run_id, followed.run_id, version=query.version, known=known)
    opening = frame({"type": "MESSAGES_SNAPSHOT", "messages": messages})
    return _stream(call, followed, encoder, await _state(call, followed), opening)


def _stream(
    call: Call, run: Followed, encoder: Encoder, state: Mapping[str, Any], opening: bytes = b""
) -> EventStream:
    first = encoder.begin(state) + opening
    headers = {"wakeful-run": run.run_id, "wakeful-thread": run.thread_id}
    return EventStream(_frames(call, run, encoder, first), headers=headers, opening=OPENING, admit=call.stream)


async def _frames(call: Call, run: Followed, encoder: Encoder, first: bytes) -> AsyncGenerator[bytes]:
    yield first
    async with aclosing(follow(call.runtime, run, past_answers=True)) as events:
        async for event in events:
            try:
                frames = encoder.encode(event)
            except Rewritten:
                frames = encoder.rewrite(await _messages_before(call, run, event)) + encoder.encode(event)
            if frames:
                yield frames


async def _messages_before(call: Call, run: Followed, event: AnyEvent | Settled) -> list[dict[str, Any]]:
    """The messages of the thread before an event."""
    last = 0 if isinstance(event, Settled) else event.seq - isinstance(event, MessageAdded)
    messages = await call.runtime.threads.messages(run.thread_id)
    return shown_messages([message for message in messages if message.seq <= last])


async def _state(call: Call, run: Followed) -> Mapping[str, Any]:
    """The state of the thread, for those who may read it."""
    return await call.runtime.threads.state(run.thread_id) if call.caller.may("threads:read") else {}
