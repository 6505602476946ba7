"""What must hold in a store after its processes were killed and others went on: looked at from the store alone,
and from the times at which models were asked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..stores import Store
from ..types.events import Event, MessageAdded
from ..types.messages import Message
from ..types.runs import Call, RunRecord
from ._crash_child import Asked

__all__ = ["all_runs", "broken_rules"]


async def broken_rules(store: Store, asked: Sequence[Asked]) -> list[str]:
    """What is wrong, in words; nothing, if all is well."""
    problems: list[str] = []
    check: Any = getattr(store, "check", None)
    if check is not None:
        problems += await check()
    runs = await all_runs(store)
    for run in runs:
        if run.status not in ("waiting", "done"):
            problems.append(f"run {run.id} of {run.agent_id} is {run.status}; it should be done or waiting")
        for call in await store.calls(run.id):
            problems += [f"call {call.id} of {call.name}: {what}" for what in _call_problems(run, call)]
    threads = {run.thread_id: [r for r in runs if r.thread_id == run.thread_id] for run in runs}
    for thread_id, its_runs in threads.items():
        messages = await store.messages(thread_id)
        found = _pairing(messages, waiting=any(run.status == "waiting" for run in its_runs))
        found += _bought_twice(messages, asked)
        found += await _gaps(store, thread_id)
        problems += [f"thread {thread_id!r}: {what}" for what in found]
    return problems


async def all_runs(store: Store) -> list[RunRecord]:
    """Every run of the store's tenant, newest first."""
    runs: list[RunRecord] = []
    while page := await store.runs(before=runs[-1].id if runs else None):
        runs += page
    return runs


def _call_problems(run: RunRecord, call: Call) -> list[str]:
    problems: list[str] = []
    if call.state == "started" or (run.status == "done" and call.state != "finished"):
        problems.append(f"its run is {run.status} and it is still {call.state}")
    if call.effect == "once" and call.attempt > 1 + len(call.decisions):
        problems.append(f"it may run once and was started {call.attempt} times")
    if call.outcome == "unknown" and not call.attempt:
        problems.append("its outcome is reported as unknown, but it was never started")
    if call.outcome in ("blocked", "superseded") and call.attempt and not call.decisions:
        problems.append(f"it is reported as {call.outcome}, but it was started")
    return problems


def _pairing(messages: Sequence[Message], *, waiting: bool) -> list[str]:
    """Every call has one result, before anything else is said."""
    problems: list[str] = []
    open_calls: set[str] = set()
    for message in messages:
        if message.reply is not None:
            call_id = message.reply.call_id
            if call_id not in open_calls:
                problems.append(f"message {message.seq} is a result of call {call_id}, which isn't open")
            open_calls.discard(call_id)
            continue
        if open_calls:
            problems.append(f"message {message.seq} comes before the results of {', '.join(sorted(open_calls))}")
        open_calls = {call.id for call in message.calls}
    if open_calls and not waiting:
        problems.append(f"it ends without the results of {', '.join(sorted(open_calls))}")
    return problems


def _bought_twice(messages: Sequence[Message], asked: Sequence[Asked]) -> list[str]:
    """No model was asked again for an answer that is in the log: whoever asked later should have found it."""
    problems: list[str] = []
    places = {message.id: place for place, message in enumerate(messages)}
    for ask in asked:
        shown = [places[message_id] for message_id in ask.messages if message_id in places]
        if not shown:
            continue
        answer = next((m for m in messages[max(shown) + 1 :] if m.role == "assistant"), None)
        if answer is not None and ask.at > answer.created_at:
            late = ask.at - answer.created_at
            problems.append(f"answer {answer.seq} was bought again, {late} ms after it was given")
    return problems


async def _gaps(store: Store, thread_id: str) -> list[str]:
    """The events are numbered without a gap, but beside a run that has only its messages: that is what retention
    leaves of one, and what a fork has of a base that is deleted."""
    head, events = await store.head(thread_id), list[Event]()
    while page := await store.events(thread_id, after=events[-1].seq if events else 0):
        events += page
    whole = {event.run.run_id for event in events if not isinstance(event, MessageAdded)}
    places = [(event.seq, event.run.run_id in whole) for event in events]
    for (last, one), (seq, other) in pairwise([(0, True), *places, (head + 1, True)]):
        if seq != last + 1 and one and other:
            ends = f"its log ends at {head}, its events at {last}"
            return [ends if seq > head else f"event {seq} follows event {last}"]
    return []
