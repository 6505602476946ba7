"""Invariants of a store whose processes were killed: checked from its records and the times of model requests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ...stores import Store
from ...types.calls import Call
from ...types.events import Event, MessageAdded
from ...types.messages import Message
from ...types.runs import RunRecord
from .journal import ModelRequested

__all__ = ["find_violations", "list_all_runs"]


async def find_violations(store: Store, requests: Sequence[ModelRequested]) -> list[str]:
    """Describe every broken invariant of the store's tenant; an empty list if all hold."""
    violations: list[str] = []
    check: Any = getattr(store, "check", None)
    if check is not None:
        violations += await check()
    runs = await list_all_runs(store)
    for run in runs:
        if run.status not in ("waiting", "done"):
            violations.append(f"run {run.id} of {run.agent_id} is {run.status}; it should be done or waiting")
        for call in await store.calls(run.id):
            violations += [f"call {call.id} of {call.name}: {text}" for text in check_call(run, call)]
    threads = {run.thread_id: [r for r in runs if r.thread_id == run.thread_id] for run in runs}
    for thread_id, its_runs in threads.items():
        messages = await store.messages(thread_id)
        found = check_results(messages, is_waiting=any(run.status == "waiting" for run in its_runs))
        found += check_requests(messages, requests)
        found += await _check_sequence(store, thread_id)
        violations += [f"thread {thread_id!r}: {text}" for text in found]
    return violations


async def list_all_runs(store: Store) -> list[RunRecord]:
    """List every run of the store's tenant, newest first."""
    runs: list[RunRecord] = []
    while page := await store.runs(before=runs[-1].id if runs else None):
        runs += page
    return runs


def check_call(run: RunRecord, call: Call) -> list[str]:
    """Check a call's state against its run, its effect and its outcome."""
    violations: list[str] = []
    if call.state == "started" or (run.status == "done" and call.state != "finished"):
        violations.append(f"its run is {run.status} and it is still {call.state}")
    if call.effect == "once" and call.attempt > 1 + len(call.decisions):
        violations.append(f"it may run once and was started {call.attempt} times")
    if call.outcome == "unknown" and not call.attempt:
        violations.append("its outcome is reported as unknown, but it was never started")
    if call.outcome in ("blocked", "superseded") and call.attempt and not call.decisions:
        violations.append(f"it is reported as {call.outcome}, but it was started")
    return violations


def check_results(messages: Sequence[Message], *, is_waiting: bool) -> list[str]:
    """Check that every call has one result, before any other message."""
    violations: list[str] = []
    open_calls: set[str] = set()
    for message in messages:
        if message.reply is not None:
            call_id = message.reply.call_id
            if call_id not in open_calls:
                violations.append(f"message {message.seq} is a result of call {call_id}, which isn't open")
            open_calls.discard(call_id)
            continue
        if open_calls:
            names = ", ".join(sorted(open_calls))
            violations.append(f"message {message.seq} comes before the results of {names}")
        open_calls = {call.id for call in message.calls}
    if open_calls and not is_waiting:
        violations.append(f"it ends without the results of {', '.join(sorted(open_calls))}")
    return violations


def check_requests(messages: Sequence[Message], requests: Sequence[ModelRequested]) -> list[str]:
    """Check that no model was asked again for an answer that was already committed."""
    violations: list[str] = []
    positions = {message.id: position for position, message in enumerate(messages)}
    for request in requests:
        shown = [positions[message_id] for message_id in request.messages if message_id in positions]
        if not shown:
            continue
        answer = next((m for m in messages[max(shown) + 1 :] if m.role == "assistant"), None)
        if answer is not None and request.at > answer.created_at:
            late = request.at - answer.created_at
            violations.append(f"answer {answer.seq} was bought again, {late} ms after it was given")
    return violations


async def _check_sequence(store: Store, thread_id: str) -> list[str]:
    """Check that event numbers have no gap.

    A gap beside a run of which only messages are left is allowed: retention removes a run's other events, and a
    fork keeps only the messages of a deleted base.
    """
    head, events = await store.head(thread_id), list[Event]()
    while page := await store.events(thread_id, after=events[-1].seq if events else 0):
        events += page
    whole = {event.run.run_id for event in events if not isinstance(event, MessageAdded)}
    numbers = [(event.seq, event.run.run_id in whole) for event in events]
    for (last, last_whole), (seq, seq_whole) in pairwise([(0, True), *numbers, (head + 1, True)]):
        if seq != last + 1 and last_whole and seq_whole:
            end = f"its log ends at {head}, its events at {last}"
            return [end if seq > head else f"event {seq} follows event {last}"]
    return []
