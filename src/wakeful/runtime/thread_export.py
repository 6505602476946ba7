"""Export of a thread as lines of JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from ..errors import ThreadBusy, UnknownThread
from ..stores import Store, ThreadView
from ..types.codec import encode
from ..types.events import Event, MessageAdded
from ..types.runs import Identity, RunRecord
from .runs import shown
from .thread_file import FORMAT, FORMAT_VERSION, Digest, Header, StateLine

__all__ = ["export_lines"]


async def export_lines(store: Store, thread_id: str, key: bytes | None) -> AsyncIterator[bytes]:
    """Yield a thread as lines, signed with the `key` if there is one.

    Raises `ThreadBusy` before the last line if the thread was written meanwhile.
    """
    view = await store.load(thread_id)
    if view is None:
        raise UnknownThread(f"no thread {thread_id!r} in this store")
    _check_quiet(view)
    digest = Digest(key)
    async for value in _parts(store, view):
        line = encode(value)
        if b"\n" in line:  # Raw values keep their writer's whitespace.
            line = msgspec.json.format(line, indent=-1)
        digest.add(line)
        yield line + b"\n"
    after = await store.thread(thread_id)
    if after is None or _mark(after) != _mark(view.thread):
        raise ThreadBusy(f"thread {thread_id!r} was written to while it was exported; try again")
    yield encode({"end": digest.end()}) + b"\n"


def _check_quiet(view: ThreadView) -> None:
    thread_id, run = view.thread.id, view.run
    if view.thread.claimed or (run is not None and run.status != "waiting"):
        raise ThreadBusy(
            f"thread {thread_id!r} has a running run; a thread can be exported once its run waits or is done"
        )
    if view.tasks:
        raise ThreadBusy(f"thread {thread_id!r} has {len(view.tasks)} running tasks; export it once they are done")


def _mark(record: Any) -> tuple[int, int, int]:
    return record.version, record.inbox_head, record.epoch


async def _parts(store: Store, view: ThreadView) -> AsyncIterator[Any]:
    record = view.thread
    yield Header(FORMAT, FORMAT_VERSION, record.id, record.title, record.metadata)
    runs = await _runs(store, record.id)
    for run in runs:
        yield {"run": shown(run)}
    known, after = {run.id for run in runs}, 0
    while page := await store.events(record.id, after=after):
        after = page[-1].seq
        for event in page:
            if (kept := _own(event, record.id, known)) is not None:
                yield {"event": kept}
    for run in runs:
        for call in await store.calls(run.id):
            yield {"call": call}
    tickets = await store.tickets(thread_id=record.id)
    for ticket in tickets:
        yield {"ticket": ticket}
    for ticket in tickets:
        for decision in await store.decisions(ticket.id):
            yield {"decision": decision}
    for name, value in view.state.items():
        yield {"state": StateLine(name, Raw(value))}
    for name, value in view.run_state.items():
        yield {"state": StateLine(name, Raw(value), cast(RunRecord, view.run).id)}
    for item in view.inbox:
        yield {"item": item}


async def _runs(store: Store, thread_id: str) -> list[RunRecord]:
    found: list[RunRecord] = []
    while page := await store.runs(thread_id=thread_id, before=found[-1].id if found else None):
        found += page
    return found[::-1]


def _own(event: Event, thread_id: str, runs: set[str]) -> Event | None:
    """The event to export; of runs that aren't exported only messages are, without their run."""
    if event.run.run_id in runs:
        return event
    if not isinstance(event, MessageAdded):
        return None
    return replace(event, run=Identity("", thread_id, event.run.agent_id, ""))
