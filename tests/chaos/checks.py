"""Final checks, by the ledger, by the bank's own records, and by the fences of the log."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import asyncpg
from msgspec import Struct

from wakeful.stores import Store
from wakeful.testing.crash import find_violations, list_all_runs
from wakeful.types.calls import Call
from wakeful.types.messages import Message
from wakeful.types.runs import NaturalEnd, RunRecord

from .bank import Bank
from .office import EFFECTS, KINDS, READERS

__all__ = ["Answered", "Findings", "Owned", "audit", "authors", "examine"]


class Owned(Struct, frozen=True):
    """A change of a thread, recorded by a database trigger."""

    thread: str
    head: int
    epoch: int
    was: str | None
    claim: str | None

    @property
    def owner(self) -> str | None:
        """The writer: the owner after the change, or the one that released the thread with it."""
        return self.claim or self.was


class Findings(Struct):
    """The findings."""

    runs: int = 0
    takeovers: int = 0
    unknowns: int = 0
    letters: int = 0
    answers: int = 0
    problems: list[str] = []


async def examine(store: Store, database: str, bank: Bank, sent: Mapping[str, str]) -> Findings:
    """Run all checks. `sent` maps each thread started from outside to its agent."""
    found, runs = Findings(), await list_all_runs(store)
    calls = {run.id: list(await store.calls(run.id)) for run in runs}
    messages = {thread: await store.messages(thread) for thread in {run.thread_id for run in runs}}
    found.runs = len(runs)
    every = list(chain.from_iterable(calls.values()))
    found.unknowns = sum(call.outcome == "unknown" for call in every)
    letters = [call for call in every if call.name == "send_message"]
    found.letters = len(letters)
    seen = await audit(database)
    found.takeovers = sum(o.was is not None and o.claim not in (None, o.was) for o in seen)
    answers = answers_of(seen, messages)
    found.answers = len(answers)
    found.problems = [
        *await find_violations(store, ()),
        *_endings(runs, sent),
        *_effects(every, bank),
        *_replies(every, messages),
        *_letters(sent, messages),
        *await _left_over(database),
        *_epochs(seen),
        *authors(answers),
        *_fences(bank),
    ]
    return found


def _endings(runs: Sequence[RunRecord], sent: Mapping[str, str]) -> list[str]:
    """Check that each requested run and its only child ran once and ended."""
    problems = [
        f"run {run.id} of {run.agent_id} on {run.thread_id} is {run.status}: {run.outcome}"
        for run in runs
        if run.status != "done" or run.outcome is None or not isinstance(run.outcome.termination, NaturalEnd)
    ]
    of_thread = Counter(run.thread_id for run in runs if run.agent_id in KINDS)
    problems += [f"{thread} had {of_thread[thread]} runs" for thread in sent if of_thread[thread] != 1]
    children = Counter(chain.from_iterable(KINDS[agent] for agent in sent.values()))
    for agent, count in children.items():
        if (had := sum(run.agent_id == agent for run in runs)) != count:
            problems.append(f"{agent} had {had} runs instead of {count}")
    return problems


def _effects(calls: Sequence[Call], bank: Bank) -> list[str]:
    """Check each effect's guarantee by the ledger and the bank's records."""
    problems: list[str] = []
    left = Counter(bank.done)
    for call in calls:
        effect, key = EFFECTS.get(call.name), f"{call.run_id}:{call.id}"
        allowed = ("ok", "unknown") if effect == "once" else ("ok",)
        if call.outcome not in allowed:
            problems.append(f"{call.name} {key}: its outcome is {call.outcome}")
        if effect is None:
            continue
        times = left.pop((call.name, key), 0)
        if times > 1 or (times == 0 and call.outcome == "ok"):
            problems.append(f"{call.name} ({effect}) {key}: {call.outcome}, and it happened {times} times")
    problems += [
        f"{kind} {key} happened {times} times, and isn't in the ledger" for (kind, key), times in left.items()
    ]
    return problems


def _replies(calls: Sequence[Call], messages: Mapping[str, Sequence[Message]]) -> list[str]:
    """Check that the model got each call's outcome, including unknown ones."""
    told = {m.reply.call_id: m.reply for m in chain.from_iterable(messages.values()) if m.reply is not None}
    problems: list[str] = []
    for call in calls:
        reply = told.get(call.id)
        if reply is None or (reply.error == "interrupted") != (call.outcome == "unknown"):
            problems.append(f"{call.name} {call.id} is {call.outcome}, and the model was told {reply}")
    return problems


def _letters(sent: Mapping[str, str], messages: Mapping[str, Sequence[Message]]) -> list[str]:
    """Check that each message was delivered once."""
    subjects = [thread for thread, agent in sent.items() if agent == "clerk"]
    subjects += [f"{thread}-child" for thread, agent in sent.items() if KINDS[agent]]
    read = Counter[str]()
    for number in range(READERS):
        for message in messages.get(f"reader-{number}", ()):
            if message.role == "user":
                read.update(re.findall(r"letter about ([\w-]+)\.", message.text))
    wanted = Counter(subjects)
    return [
        f"the letter about {name} was read {read[name]} times instead of {wanted[name]}"
        for name in wanted | read
        if wanted[name] != read[name]
    ]


async def _left_over(database: str) -> list[str]:
    """Check that no inbox item is left.

    A watch item of a child may be left by a process that was killed when it found that the child had ended.
    """
    connection = await asyncpg.connect(database, server_settings={"search_path": "wakeful"})
    try:
        pending = await connection.fetch(
            """SELECT i.kind, i.id, t.id AS thread, convert_from(i.payload, 'UTF8') AS payload
               FROM inbox i JOIN threads t ON t.no = i.thread
               WHERE i.status = 'pending' AND NOT (i.id LIKE '%:notify:%' AND t.open_run IS NULL)"""
        )
        due = await connection.fetchval("SELECT count(*) FROM dispatches")
        claimed = await connection.fetchval("SELECT count(*) FROM threads WHERE claim IS NOT NULL")
    finally:
        await connection.close()
    counts = {"dispatches are left": due, "threads are claimed": claimed}
    left = [f"{count} {what}" for what, count in counts.items() if count]
    return left + [f"an inbox item is pending: {dict(row)}" for row in pending]


async def audit(database: str) -> list[Owned]:
    """The recorded changes, in order."""
    connection = await asyncpg.connect(database)
    try:
        rows = await connection.fetch("SELECT thread, head, epoch, was, claim FROM audit ORDER BY no")
    finally:
        await connection.close()
    return [Owned(*row) for row in rows]


def _epochs(seen: Sequence[Owned]) -> list[str]:
    """Check that a thread never had two owners: each epoch has one, and epochs only grow."""
    problems: list[str] = []
    last: dict[str, int] = {}
    owners: dict[tuple[str, int], set[str]] = {}
    for one in seen:
        if one.epoch < last.get(one.thread, 0):
            problems.append(f"{one.thread}: epoch {one.epoch} came after {last[one.thread]}")
        last[one.thread] = one.epoch
        if one.claim is not None:
            owners.setdefault((one.thread, one.epoch), set()).add(one.claim)
    return problems + [f"{t}: epoch {n} had the owners {w}" for (t, n), w in owners.items() if len(w) > 1]


class Answered(NamedTuple):
    """An answer in the log: the thread's owner at its commit, earlier owners, and the process that produced it."""

    owner: str | None
    earlier: frozenset[str]
    process: str


def answers_of(seen: Sequence[Owned], messages: Mapping[str, Sequence[Message]]) -> list[Answered]:
    """Read the answers in the log."""
    threads: dict[str, list[Owned]] = {}
    for one in seen:
        threads.setdefault(one.thread, []).append(one)
    found: list[Answered] = []
    for thread, its in threads.items():
        for message in messages.get(thread, ()):
            said = re.match(r"by ([0-9a-f]{12})", message.text)
            written = its[bisect_left(its, message.seq, key=lambda one: one.head)]
            if said and message.role == "assistant":
                before = frozenset([o.claim for o in its if o.epoch < written.epoch and o.claim is not None])
                found.append(Answered(written.owner, before, said[1]))
    return found


def authors(answers: Sequence[Answered]) -> list[str]:
    """Check that each answer was produced by the owner of its thread: owners and processes map one to one.

    Only a broken answer may be committed by the next owner. A process that was killed early may have left nothing
    else; then it must be one of the earlier owners without a process.
    """
    problems = [] if answers else ["no answer could be traced"]
    problems += [f"{a.process} wrote to a thread that nobody owned" for a in answers if a.owner is None]
    names: dict[str, str | None] = {}
    for (owner, process), _ in Counter((a.owner, a.process) for a in answers).most_common():
        if process not in names and owner not in names.values():
            names[process] = owner
    others = frozenset([owner for owner in names.values() if owner is not None])
    for answer in answers:
        name = names.get(answer.process)
        earlier = answer.earlier - others if name is None else answer.earlier & {name}
        if answer.owner != name and not earlier:
            who = f"{answer.process} is {name or 'no owner'}"
            problems.append(f"{who}, and what it said was written by {answer.owner} after {set(answer.earlier)}")
    return problems


def _fences(bank: Bank) -> list[str]:
    """Check that each fence at the bank belongs to one process."""
    return [f"{t}, fence {n}: tools of {w}" for (t, n), w in bank.fences.items() if len(w) > 1]
