"""Import of an exported thread, in one commit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterable, Iterable
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr, replace

from ..dispatch import first_item
from ..errors import Conflict, DuplicateRequest, InboxMoved, InvalidExport, ThreadExists, UsageError
from ..stores import About, Commit, StateWrite, Store
from ..types.calls import Call
from ..types.codec import decode, decode_event, decode_item
from ..types.content import ToolCall
from ..types.events import Event, MessageAdded
from ..types.ids import new_id
from ..types.inbox import InboxItem, Request
from ..types.runs import Identity, RunRecord
from ..types.tickets import Decision, Ticket
from .arguments import check_thread_id
from .thread_file import FORMAT, FORMAT_VERSION, Digest, End, Header, StateLine

__all__ = ["Lines", "import_lines"]

Lines = Iterable[str | bytes] | AsyncIterable[str | bytes]

T = TypeVar("T")


class _Thread:
    """The parts of a thread that were read so far."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.runs: list[RunRecord] = []
        self.events: list[Event] = []
        self.calls: list[Call] = []
        self.tickets: list[Ticket] = []
        self.decisions: list[Decision] = []
        self.state: list[StateWrite] = []
        self.items: list[InboxItem] = []
        self._run_ids: set[str] = set()
        self._ticket_ids: set[str] = set()

    def add(self, kind: str, data: bytes) -> None:
        """Add one line; raises ValueError for a value that can't be part of a thread."""
        match kind:
            case "run":
                self._add_run(decode(data, RunRecord))
            case "event":
                self._add_event(decode_event(data))
            case "call":
                self.calls.append(call := decode(data, Call))
                self._expect_run(call.run_id, "a call")
            case "ticket":
                self.tickets.append(ticket := decode(data, Ticket))
                self._expect_run(ticket.run_id, "a ticket")
                self._ticket_ids.add(ticket.id)
            case "decision":
                self.decisions.append(decision := decode(data, Decision))
                if decision.ticket_id not in self._ticket_ids:
                    raise ValueError(f"a decision is about ticket {decision.ticket_id!r}, which isn't in the file")
            case "state":
                state = decode(data, StateLine)
                if state.run_id is not None:
                    self._expect_run(state.run_id, "a state value")
                self.state.append(StateWrite(state.name, bytes(state.value), state.run_id))
            case "item":
                self.items.append(decode_item(data))
            case _:
                raise ValueError(f"it holds {kind!r:.40}, which this version doesn't know")

    def _add_run(self, run: RunRecord) -> None:
        if run.status not in ("waiting", "done") or (run.status == "waiting") != (run.waiting is not None):
            raise ValueError(f"run {run.id} is {run.status}; only runs that wait or are done can be imported")
        if run.thread_id != self.header.thread or run.id in self._run_ids:
            raise ValueError(f"run {run.id} is there twice, or of another thread")
        if run.status == "waiting" and any(other.status == "waiting" for other in self.runs):
            raise ValueError(f"run {run.id} is a second one that waits; a thread has one open run")
        self.runs.append(run)
        self._run_ids.add(run.id)

    def _add_event(self, event: Event) -> None:
        if not event.durable or event.seq <= (self.events[-1].seq if self.events else 0):
            raise ValueError(f"the event {event.type!r} isn't one of a log, or not in its place there")
        if event.run.run_id or not isinstance(event, MessageAdded):
            self._expect_run(event.run.run_id, "an event")
        self.events.append(event)

    def _expect_run(self, run_id: str, what: str) -> None:
        if run_id not in self._run_ids:
            raise ValueError(f"{what} is of run {run_id!r}, which isn't in the file")


async def import_lines(
    store: Store, lines: Lines, into: str | None, key: bytes | None, request: Request | None
) -> str:
    """Write an exported thread in one commit; with `into` as a copy of that id. With a `key`, lines that it didn't
    sign are refused. A repeated request writes nothing."""
    thread = _read(await _lines_of(lines), key)
    target = check_thread_id(thread.header.thread if into is None else into)
    if await first_item(store, request) is not None:
        return target
    if await store.thread(target) is not None:
        raise ThreadExists(f"thread {target!r} is in this store already; import it as a copy under another id")
    if into is None:
        await _check_ids(store, thread)
    else:
        _rename(thread, into)
    commit = _commit(thread, target)
    commit.request = request
    try:
        await store.commit(commit)
    except DuplicateRequest:
        return target
    except (Conflict, InboxMoved) as error:
        raise ThreadExists(f"thread {target!r} came into being meanwhile; nothing was written") from error
    return target


async def _lines_of(given: Any) -> Iterable[Any]:
    if isinstance(given, AsyncIterable):
        return [line async for line in cast(AsyncIterable[Any], given)]
    if isinstance(given, str | bytes | bytearray) or not isinstance(given, Iterable):
        raise UsageError(
            "threads.import_ takes the lines of an exported thread one by one: from threads.export, an open "
            f"file, or data.split(b'\\n'); not {given!r:.80}"
        )
    return cast(Iterable[Any], given)


def _read(lines: Iterable[Any], key: bytes | None) -> _Thread:
    thread: _Thread | None = None
    digest, end, number = Digest(key), cast("End | None", None), 0
    for number, given in enumerate(lines, 1):
        try:
            line = _stripped(given)
            if not line:
                continue
            if end is not None:
                raise ValueError("something follows the last line of the thread")
            if thread is None:
                thread = _Thread(_header(line))
            else:
                kind, data = _part(line)
                if kind == "end":
                    end = _decoded(data, End)
                    continue
                thread.add(kind, data)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors.
            raise InvalidExport(f"line {number}: {error}; nothing was imported") from error
        digest.add(line)
    if thread is None or end is None:
        raise InvalidExport(f"line {number + 1}: the file ends before the thread does; nothing was imported")
    digest.check(end, number)
    return thread


def _stripped(line: Any) -> bytes:
    if not isinstance(line, str | bytes | bytearray):
        raise ValueError(f"a line is a text or bytes, not {line!r:.80}")
    return bytes(line.encode(errors="replace") if isinstance(line, str) else line).strip()


def _part(line: bytes) -> tuple[str, bytes]:
    """The kind of a line and its value."""
    parts = list(_decoded(line, dict[str, Raw]).items())
    if len(parts) != 1:
        raise ValueError(f"it isn't a line of an exported thread: it holds {len(parts)} things, not one")
    return parts[0][0], bytes(parts[0][1])


def _decoded(line: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(f"it isn't a line of an exported thread ({error})") from error


def _header(line: bytes) -> Header:
    header = _decoded(line, Header)
    if header.format != FORMAT:
        raise ValueError(f"it isn't an exported thread, but {header.format!r:.40}")
    if header.version > FORMAT_VERSION:
        raise ValueError(
            f"a newer version of wakeful exported it (format {header.version}, this one knows {FORMAT_VERSION}): "
            "upgrade wakeful"
        )
    return header


async def _check_ids(store: Store, thread: _Thread) -> None:
    """Refuse ids of runs, tickets, decisions and items that the store has."""
    found = [f"run {run.id}" for run in thread.runs if await store.run(run.id) is not None]
    found += [f"ticket {ticket.id}" for ticket in thread.tickets if await store.ticket(ticket.id) is not None]
    found += [f"decision {made.id}" for made in thread.decisions if await store.has_id(made.id)]
    found += [f"inbox item {item.id}" for item in thread.items if await store.has_id(item.id)]
    if found:
        raise ThreadExists(
            f"{found[0]} of thread {thread.header.thread!r} is in this store already, on another thread; "
            "import it as a copy under another id"
        )


def _commit(thread: _Thread, target: str) -> Commit:
    numbers = [event.seq for event in thread.events]
    thread.events = [_renumbered(event, numbers) for event in thread.events]
    runs = [replace(run, first_seq=bisect_left(numbers, run.first_seq) + 1) for run in thread.runs]
    for item in thread.items:
        force_setattr(item, "position", 0)
    return Commit(
        target,
        version=0,
        inbox_head=0,
        log=thread.events,
        runs=runs,
        calls=thread.calls,
        tickets=thread.tickets,
        decisions=thread.decisions,
        state=thread.state,
        inbox=thread.items,
        about=About(thread.header.title, thread.header.metadata or None),
    )


def _renumbered(event: Event, numbers: list[int]) -> Event:
    """The event with the entries that its message refers to in their new numbers."""
    if not isinstance(event, MessageAdded):
        return event
    covers, rewrites = event.message.covers, event.message.rewrites
    if covers is None and rewrites is None:
        return event
    if covers is not None:
        covers = (bisect_left(numbers, covers[0]) + 1, bisect_right(numbers, covers[1]))
    if rewrites is not None:
        place = bisect_left(numbers, rewrites)
        is_here = place < len(numbers) and numbers[place] == rewrites
        rewrites = place + 1 if is_here else -1  # The entry may have been pruned.
    return replace(event, message=replace(event.message, covers=covers, rewrites=rewrites))


def _rename(thread: _Thread, target: str) -> None:
    """Give a copy new ids for the thread, runs, calls, tickets, decisions and items, in the same order."""
    old = [
        *[run.id for run in thread.runs],
        *[call.id for call in thread.calls],
        *sorted(ticket.id for ticket in thread.tickets),
        *[decision.id for decision in thread.decisions],
        *[one for item in thread.items for one in (item.id, item.run_id) if one is not None],
    ]
    ids = {one: new_id() for one in dict.fromkeys(old)}
    threads = {thread.header.thread: target}
    for name in ("runs", "events", "calls", "tickets", "decisions", "state", "items"):
        setattr(thread, name, [_renamed(part, ids, threads) for part in getattr(thread, name)])


_HAVE_IDS = (Call, Ticket, Decision, InboxItem, ToolCall)
_REFER = ("run_id", "root_run_id", "parent_run_id", "call_id", "parent_call_id", "ticket_id")


def _renamed(value: Any, ids: dict[str, str], threads: dict[str, str]) -> Any:
    """The value with new ids in place of old ones; texts of users and models stay. The copy of a run that was
    started as a task has no owner: its parent waits for the original."""
    if isinstance(value, tuple):
        return tuple([_renamed(part, ids, threads) for part in cast("tuple[Any, ...]", value)])
    if not isinstance(value, Struct):
        return value
    changes: dict[str, Any] = {}
    for name in value.__struct_fields__:
        before = after = getattr(value, name)
        if name.endswith("thread_id"):
            after = threads.get(before, before)
        elif name in _REFER or (name == "id" and isinstance(value, _HAVE_IDS)):
            after = ids.get(before, before)
        elif name == "tickets":
            after = tuple([ids.get(one, one) for one in before])
        elif name == "task":
            after = None
        elif not isinstance(before, str):
            after = _renamed(before, ids, threads)
        if after is not before:
            changes[name] = after
    renamed: Struct = replace(value, **changes) if changes else value
    if isinstance(renamed, Identity) and renamed.parent_thread_id is not None:
        return Identity(renamed.run_id, renamed.thread_id, renamed.agent_id, renamed.run_id)
    return renamed
