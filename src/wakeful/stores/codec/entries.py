"""Rows of the log, of runs and of the ledger: encoding and decoding.

Events that follow an entry in the same commit and of the same run share its row. Fields that are columns, or that
another row has, are left out of payloads: the run's identity, a message's id and content, a call. Frequent events
have compact bodies, see `compact`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast, get_args

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, astuple, replace

from ...types.calls import Call
from ...types.codec import decode, encode
from ...types.events import AnyEvent, Event, MessageAdded, ToolCallReady, UnknownEvent
from ...types.messages import Message
from ...types.runs import Identity, RunRecord, RunStatus
from ..records import Commit
from .compact import COMPACT, NUMBERS, References, expand, kind_of
from .packer import Packer

__all__ = [
    "MAX_ENTRIES",
    "Entry",
    "call_body",
    "call_of",
    "entries_of",
    "event_of",
    "followers_of",
    "message_of",
    "run_body",
    "run_of",
]

# -- the log -------------------------------------------------------------------------------------------------


class Entry(Struct, gc=False):
    """A row of the log: one entry and, in `more`, the events that follow it.

    `number` and `ref`, the message that it refers to, count from the log head before the commit.
    """

    number: int
    kind: str
    run_id: str
    agent: str
    at: int
    ref: int | None
    payload: bytearray
    size: int = 1
    more: bytearray | None = None


# An event of the same run that follows in a row: its kind or the kind's number, its time after the first entry,
# the distance to the message that it refers to, and its body.
_Follower = tuple[str | int, int, int | None, Raw]

# The most entries of a row. A reader that starts after an entry looks back this far for the row with the next one.
MAX_ENTRIES = 64
MAX_MORE_BYTES = 4096
_MAX_FOLLOWERS = MAX_ENTRIES - 1


@cache
def _body_of(kind: type[Event]) -> tuple[str, type[Struct]]:
    """The name of an event type, and a struct of its own fields."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(kind)[3:]:
        if kind is ToolCallReady and field.name == "arguments":
            fields.append((field.name, Any, None))  # Left out if the answer has them.
        elif field.default is msgspec.NODEFAULT:
            fields.append((field.name, field.type))
        else:
            fields.append((field.name, field.type, field.default))
    body = msgspec.defstruct(f"{kind.__name__}Body", fields, omit_defaults=True, gc=False)
    return cast(str, kind.__struct_config__.tag), body


_KINDS: dict[str, type[Event]] = {kind.__struct_config__.tag: kind for kind in get_args(AnyEvent)}


def entries_of(commit: Commit, packer: Packer, blobs: dict[str, bytes]) -> tuple[list[Entry], dict[str, int]]:
    """The commit's log as rows, and the numbers of its messages and of the calls in them, by id."""
    entries: list[Entry] = []
    followers: list[_Follower] = []
    known = References(places := {}, {}, {})
    first: Entry | None = None
    # The writer of the last follower. The next one mostly has the same: an identity check is enough.
    writer: Identity | None = None
    room = number = 0
    for entry in commit.log:
        number += 1
        kind = type(entry)
        event: Any = entry
        if kind is Message or kind is MessageAdded:
            message: Message = event if kind is Message else event.message
            known.add(message, number)
            run_id, agent = _writer(commit, event)
            payload = packer.pack_message(message, blobs)
            row = Entry(number, "message", run_id, agent, message.created_at, None, payload)
        else:
            run: Identity = event.run
            compact = COMPACT.get(kind)
            name, ref, body = (compact and compact(event, known)) or _event_row(event, known)
            if (
                first is not None
                and (run is writer or (first.run_id == run.run_id and first.agent == run.agent_id))
                and (size := len(body)) <= room
                and len(followers) < _MAX_FOLLOWERS
            ):
                distance = None if ref is None else ref - first.number
                followers.append((NUMBERS.get(name, name), event.at - first.at, distance, Raw(body)))
                writer = run
                room -= size
                continue
            row = Entry(number, name, run.run_id, run.agent_id, event.at, ref, packer.pack(body, blobs))
        if followers:
            _close(entries[-1], followers, packer)
            followers = []
        first, writer, room = row, None, MAX_MORE_BYTES
        entries.append(row)
    if followers:
        _close(entries[-1], followers, packer)
    return entries, places


def _event_row(event: Any, known: References) -> tuple[str, int | None, bytes]:
    """An event with a full body: its kind, the number of its message, and the body."""
    kind: Any = event.__class__
    if kind is UnknownEvent:
        return event.kind, None, encode(event.raw)
    name, body = _body_of(kind)
    if kind is ToolCallReady and (call := known.calls.get(event.call_id)) is not None:
        return name, call[0], encode(body(event.call_id, event.name, None))
    return name, None, encode(body(*astuple(event)[3:]))


def _close(row: Entry, followers: list[_Follower], packer: Packer) -> None:
    """Pack the events that follow into their row."""
    row.size += len(followers)
    row.more = packer.pack(encode(followers), {})


_followers = msgspec.json.Decoder(list[_Follower])


def followers_of(seq: int, at: int, more: bytes) -> list[tuple[int, str, int, int | None, bytes]]:
    """The events after a row's first entry: number, kind, time, number of the message, body."""
    return [
        (number, kind_of(kind), at + later, None if distance is None else seq + distance, bytes(body))
        for number, (kind, later, distance, body) in enumerate(_followers.decode(more), seq + 1)
    ]


def _writer(commit: Commit, entry: Any) -> tuple[str, str]:
    """The run and the agent that wrote a message."""
    if type(entry) is not Message:
        return entry.run.run_id, entry.run.agent_id
    if (identity := commit.identity) is None:
        raise ValueError("a commit with messages names its run")
    producer, own = entry.producer, identity.run_id
    if producer is not None and (by := producer.run_id) is not None and by != own:
        # A run that supersedes another also writes the last messages of that one.
        own = next((by for run in commit.runs if run.id == by), own)
    return own, identity.agent_id


def event_of(kind: str, run: Identity, seq: int, at: int, payload: bytes, answer: bytes | None) -> Event:
    """Decode an event. `answer` is the message that it refers to."""
    if kind == "message":
        return MessageAdded(run, seq, at, message_of(seq, at, payload))
    cls = _KINDS.get(kind)
    if cls is None:
        return UnknownEvent(run, seq, at, kind, msgspec.json.decode(payload))
    if payload[:1] != b"{":
        payload = expand(kind, payload, answer)
    values = astuple(decode(payload, _body_of(cls)[1]))
    if cls is ToolCallReady and answer is not None:
        values = (*values[:2], _arguments(values[0], decode(answer, Message)))
    return cast(Any, cls)(run, seq, at, *values)


def message_of(seq: int, at: int, payload: bytes) -> Message:
    """Decode a message."""
    message = decode(payload, Message)
    msgspec.structs.force_setattr(message, "seq", seq)
    msgspec.structs.force_setattr(message, "created_at", at)
    return message


def _arguments(call_id: str, answer: Message) -> dict[str, Any]:
    for call in answer.calls:
        if call.id == call_id:
            return call.arguments
    return {}


# -- runs ----------------------------------------------------------------------------------------------------


# Bodies of identities and runs: fields that are columns are left out.
_Lineage = msgspec.defstruct(
    "_Lineage",
    [(f.name, f.type, None if f.required else f.default) for f in msgspec.structs.fields(Identity)],
    omit_defaults=True,
    gc=False,
)
_RunBody = msgspec.defstruct(
    "_RunBody",
    [
        (f.name, _Lineage if f.name == "identity" else f.type, *([] if f.required else [f.default]))
        for f in msgspec.structs.fields(RunRecord)
    ],
    kw_only=True,
    gc=False,
)


def run_body(run: RunRecord) -> bytes:
    """The payload of a run: the fields that aren't columns."""
    own, agent_id = run.identity, run.identity.agent_id
    lineage: Any = _Lineage(
        None,
        None,
        None if agent_id == run.agent_id else agent_id,
        None if own.root_run_id == own.run_id else own.root_run_id,
        own.parent_run_id,
        own.parent_thread_id,
        own.parent_call_id,
        own.origin,
        own.depth,
    )
    return encode(replace(run, identity=lineage, status="created", steps=0))


def run_of(thread_id: str, run_id: str, status: RunStatus, steps: int, body: bytes) -> RunRecord:
    """Decode a run."""
    values: dict[str, Any] = asdict(decode(body, _RunBody))
    _, _, agent_id, root, *rest = astuple(values["identity"])
    identity = Identity(run_id, thread_id, agent_id or values["agent_id"], root or run_id, *rest)
    values |= {"identity": identity, "status": status, "steps": steps}
    return RunRecord(**values)


# -- the ledger ----------------------------------------------------------------------------------------------

_CALL_COLUMNS = ("id", "run_id", "step", "index", "name", "arguments")
_CallBody = msgspec.defstruct(
    "_CallBody",
    [
        (f.name, f.type, f.default) if f.default is not msgspec.NODEFAULT else (f.name, f.type)
        for f in msgspec.structs.fields(Call)
        if f.name not in _CALL_COLUMNS
    ],
    omit_defaults=True,
    gc=False,
)


def call_body(call: Call) -> bytes:
    """The payload of a call: the fields that aren't columns."""
    return encode(_CallBody(*astuple(call)[len(_CALL_COLUMNS) :]))


def call_of(
    run_id: str,
    step: int,
    place: int,
    call_id: str,
    name: str,
    arguments: bytes | None,
    answer: Message | None,
    body: bytes,
) -> Call:
    """Decode a call. Its arguments are in the row or in the answer that requested it."""
    given = _arguments(call_id, answer) if answer is not None else msgspec.json.decode(arguments or b"{}")
    return Call(call_id, run_id, step, place, name, given, *astuple(decode(body, _CallBody)))
