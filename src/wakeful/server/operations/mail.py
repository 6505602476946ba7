"""Operations of mail: pending input, dead letters and relays."""

from __future__ import annotations

from typing import Any

from ...api.pages import Page, page_of, position_of
from ...api.threads import EditInput, ListDeadLetters, ListPending, ListRelays, MoveInput, RelayView
from ...errors import Conflict, InputRetracted, UnknownInput, UnknownMessage, UnknownThread
from ...messaging import PendingInput
from ...stores import Relay
from ...types.mail import DeadLetter
from .call import Call, Reply
from .operation import op
from .threads import thread_of

__all__: list[str] = []


@op(
    "mail.pending", "GET", "/v1/mail/pending", scope="mail:read", reply=list[PendingInput], errors=(UnknownThread,)
)
async def pending(call: Call, query: ListPending) -> Any:
    """The input that waits on a thread, in the order in which runs take it."""
    await thread_of(call, query.thread)
    return await call.runtime.mail.pending(query.thread)


@op("mail.get", "GET", "/v1/mail/pending/{input}", scope="mail:read", reply=PendingInput, errors=(UnknownInput,))
async def get(call: Call, input: str) -> Any:
    """Pending input. Its `ETag` is its revision."""
    found = await _input_of(call, input)
    return Reply(found, version=found.revision)


@op(
    "mail.edit",
    "PATCH",
    "/v1/mail/pending/{input}",
    scope="mail:write",
    reply=PendingInput,
    errors=(UnknownInput, InputRetracted),
    versioned=True,
)
async def edit(call: Call, input: str, body: EditInput) -> Any:
    """Replace the text of pending input."""
    revision = call.revision
    await _input_of(call, input)
    with call.expecting_version():
        found = await call.runtime.mail.edit(input, body.text, revision=revision)
    return Reply(found, version=found.revision)


@op(
    "mail.move",
    "POST",
    "/v1/mail/pending/{input}/move",
    scope="mail:write",
    reply=PendingInput,
    errors=(UnknownInput, InputRetracted),
    versioned=True,
)
async def move(call: Call, input: str, body: MoveInput) -> Any:
    """Move pending input before or after another one of its thread; to the front by default."""
    revision = call.revision
    await _input_of(call, input)
    with call.expecting_version():
        found = await call.runtime.mail.move(input, before=body.before, after=body.after, revision=revision)
    return Reply(found, version=found.revision)


@op(
    "mail.retract",
    "DELETE",
    "/v1/mail/pending/{input}",
    scope="mail:write",
    reply=PendingInput,
    errors=(UnknownInput, InputRetracted),
    versioned=True,
)
async def retract(call: Call, input: str) -> Any:
    """Withdraw pending input before a run takes it."""
    revision = call.revision
    await _input_of(call, input)
    with call.expecting_version():
        return await call.runtime.mail.retract(input, revision=revision)


@op("mail.dead_letters", "GET", "/v1/mail/dead-letters", scope="ops:read", reply=Page[DeadLetter])
async def dead_letters(call: Call, query: ListDeadLetters) -> Any:
    """Messages whose delivery was given up, oldest first."""
    found = await call.runtime.mail.dead_letters(
        thread=query.thread, after=position_of(query), limit=query.limit + 1
    )
    return page_of(query, found, "id")


@op(
    "mail.replay",
    "POST",
    "/v1/mail/dead-letters/{message}/replay",
    scope="ops:write",
    reply=RelayView,
    errors=(UnknownMessage, Conflict),
)
async def replay(call: Call, message: str) -> Any:
    """Deliver a dead letter or a dead push notification again, under the same id."""
    return _view(await call.runtime.mail.replay(message))


@op("mail.drop", "DELETE", "/v1/mail/dead-letters/{message}", scope="ops:write", errors=(UnknownMessage,))
async def drop(call: Call, message: str) -> Any:
    """Delete a dead letter."""
    await call.runtime.mail.drop(message)


@op("mail.relays", "GET", "/v1/mail/relays", scope="ops:read", reply=Page[RelayView])
async def relays(call: Call, query: ListRelays) -> Any:
    """Deliveries to addresses outside the store, oldest first."""
    found = await call.runtime.mail.relays(
        thread=query.thread,
        run_id=query.run,
        status=query.status,
        after=position_of(query),
        limit=query.limit + 1,
    )
    return page_of(query, [_view(each) for each in found], "id")


async def _input_of(call: Call, input: str) -> PendingInput:
    """Pending input of a thread that the caller may use."""
    item = await call.runtime.store.item(input)
    if item is not None:
        await thread_of(call, item.thread_id)
        for found in await call.runtime.mail.pending(item.thread_id):
            if found.id == input:
                return found
    raise UnknownInput(f"no input {input!r:.80} is pending for this caller; a run may have taken it")


def _view(relay: Relay) -> RelayView:
    return RelayView(
        id=relay.id,
        thread_id=relay.thread_id,
        run_id=relay.run_id,
        kind=relay.kind,
        status=relay.status,
        attempts=relay.attempts,
        due_at=relay.due_at,
        created_at=relay.created_at,
        last_error=relay.last_error,
    )
