"""Random commits through `decide` alone and through every store: same outcomes, same threads, same dispatches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from typing import Any, Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from store_suite import STORES, call, identity, item, message, record, waiting

from wakeful.errors import StoreError
from wakeful.stores import About, Chunk, Commit, Committed, Fence, Relay, StateWrite, Store
from wakeful.stores.heads import Facts, Head, NeedFacts
from wakeful.stores.rules import Refusal, decide_group
from wakeful.types import Request
from wakeful.types.events import StepStart

THREADS = ("t1", "t2", "t3")
FAR = 4_000_000_000_000
LIVE, DEAD = "live", "dead"
"""Workers: one with a lease, and one whose lease is over as soon as it begins."""

Kind = Literal[
    "begin", "step", "answer", "end", "wait", "release", "fail", "deliver", "cancel", "decide", "task", "send",
    "take", "edit", "retract", "request", "relay", "state", "about", "chunks", "unowned", "follow", "idle",
]  # fmt: skip


class Move(Struct, frozen=True):
    """A commit to make of the facts: by its owner if the thread has one."""

    kind: Kind
    thread: str
    other: str
    worker: str
    is_stale: bool
    is_late: bool


MOVES = st.builds(
    Move,
    st.sampled_from(get_args(Kind)),
    st.sampled_from(THREADS),
    st.sampled_from(THREADS),
    st.sampled_from([LIVE, LIVE, DEAD]),
    st.sampled_from([False] * 7 + [True]),
    st.booleans(),
)


# -- commits -------------------------------------------------------------------------------------------------


def commit_of(facts: Facts, move: Move, n: int) -> Commit:
    """The commit of a move, the n-th one."""
    head = facts.heads[move.thread]
    make = _MAKERS[move.kind]
    commit = make(facts, move, head, n)
    if move.is_stale and commit.fence is not None:
        commit.fence = replace(commit.fence, epoch=commit.fence.epoch + 1)
    elif move.is_stale and commit.version is not None:
        commit.version += 1
    return commit


def owned(head: Head, **more: Any) -> Commit:
    """A commit by the owner; without an owner, by a writer that saw the version."""
    run_id = f"{head.id} run {head.last_run or 0}" if head.open_run is None else head.open_run.id
    commit = Commit(head.id, identity(run_id, head.id), **more)
    if head.claim is None:
        commit.version = head.version
    else:
        commit.fence = Fence(head.epoch, head.claim)
    return commit


def run_of(head: Head, **more: Any) -> list[Any]:
    if head.open_run is None:
        return []
    return [record(head.open_run.id, head.id, **({"steps": head.open_run.steps + 1} | more))]


def begin(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    run_id = f"r{n}" if head.open_run is None else head.open_run.id
    commit = Commit(head.id, identity(run_id, head.id), claim=move.worker, version=head.version, log=[message()])
    commit.lease = 3_600_000 if move.worker == LIVE else 0
    commit.runs = [record(run_id, head.id, steps=n % 3)]
    if move.is_late:
        commit.inbox_head = head.inbox_head
        commit.taken = list(head.pending or ())
    return commit


def step(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    commit = owned(head, runs=run_of(head))
    run = identity("r", head.id) if commit.identity is None else commit.identity
    commit.log = [message(f"m{n}"), StepStart(run, 0, 7, n)]
    if head.open_run is not None:
        commit.calls = [call("c1", n, run_id=head.open_run.id)]
    return commit


def answer(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    said = replace(message("answer", id=f"a{n}"), role="assistant")
    return owned(head, log=[said], runs=run_of(head, stage="acting", answer_id=said.id))


def end(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    return owned(head, log=[message()], runs=run_of(head, status="done", finished_at=9), release=True)


def wait(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    until = FAR + n if move.is_late else None
    wakes = waiting("decision", "input", until=until) if n % 2 else waiting("task", until=until)
    return owned(head, runs=run_of(head, status="waiting", waiting=wakes), log=[message()], release=True)


def release(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    return owned(head, release=True, later=FAR + n if move.is_late else None)


def fail(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    return owned(head, release=True, failed=f"failure {n}")


def arrival(kind: str) -> Callable[..., Commit]:
    def deliver(facts: Facts, move: Move, head: Head, n: int) -> Commit:
        more: dict[str, Any] = {"agent_id": f"agent {n}", "priority": n} if kind == "input" else {}
        if kind == "input" and move.is_late:
            more["at"] = FAR + n
        # Every third arrives a second time.
        return Commit(move.thread, inbox=[item(f"i{n - n % 3}", move.thread, kind, **more)])

    return deliver


def send(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    sent = [item(f"s{n}", move.other), item(f"s{n}-2", move.other, "decision"), item(f"s{n}-3", move.thread)]
    return owned(head, log=[message()], runs=run_of(head), inbox=sent[: 2 + move.is_late])


def take(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    pending = head.pending or {}
    seen = {item_id: row.revision + (move.is_stale and n % 2) for item_id, row in pending.items()}
    return owned(head, taken=list(pending), seen=seen, inbox_head=head.inbox_head - move.is_stale)


def change(status: str) -> Callable[..., Commit]:
    def edit(facts: Facts, move: Move, head: Head, n: int) -> Commit:
        pending = list((head.pending or {}).items())[:2] or [("i0", None)]
        places = [0 if row is None else row.position for _, row in pending]
        changed = [
            item(
                item_id, head.id, revision=(0 if row is None else row.revision) + 1, position=place, status=status
            )
            for (item_id, row), place in zip(pending, reversed(places), strict=True)
        ]
        return Commit(head.id, pending=changed)

    return edit


def request(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    return owned(head, request=Request(f"q{n - n % 3}"), log=[message()])


def relay(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    stored = facts.relays.get("relay") or 0
    put = Relay(id="relay", thread_id=head.id, kind="mail", revision=stored + (2 if move.is_stale else 1))
    return Commit(head.id, relays=[put])


def state(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    run_id = head.open_run.id if head.open_run is not None and move.is_late else None
    return owned(head, state=[StateWrite("key", b"%d" % n, run_id)])


def about(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    return Commit(head.id, about=About(f"title {n}", {"n": n} if move.is_late else None))


def chunks(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    return owned(head, chunks=[Chunk("m", n % 2, 0, "text", f"{n}")])


def unowned(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    return Commit(head.id, identity("r", head.id), version=head.version, log=[message()])


def idle(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    return Commit(head.id, inbox=[item(f"i{n - n % 3}", head.id)], idle=True)


def follow(facts: Facts, move: Move, head: Head, n: int) -> Commit:
    """A commit that sends input to another thread, whose first commit takes it in the same transaction."""
    commit = send(facts, replace(move, is_late=False), head, n)
    if move.other != move.thread:
        after = decide_group(filled(facts, commit), replace(commit, then=()), 1)
        if not isinstance(after, Refusal | NeedFacts):
            its_head = after.facts.heads[move.other]
            commit.then = [begin(after.facts, replace(move, is_late=True), its_head, n + 1000)]
    return commit


_MAKERS: dict[str, Callable[..., Commit]] = {
    "begin": begin, "step": step, "answer": answer, "end": end, "wait": wait, "release": release, "fail": fail,
    "deliver": arrival("input"), "cancel": arrival("cancel"), "decide": arrival("decision"),
    "task": arrival("task"),
    "send": send, "take": take, "edit": change("pending"), "retract": change("retracted"), "request": request,
    "relay": relay, "state": state, "about": about, "chunks": chunks, "unowned": unowned, "follow": follow,
    "idle": idle,
}  # fmt: skip


# -- the reference: `decide` over facts that hold everything -------------------------------------------------


def filled(facts: Facts, commit: Commit) -> Facts:
    """The facts with what a commit needs: what is not there was never written."""
    while isinstance(needs := decide_group(facts, commit, 1), NeedFacts):
        facts = replace(
            facts,
            heads={**facts.heads, **{name: Head(name) for name in needs.threads}},
            items={**facts.items, **dict.fromkeys(needs.items)},
            runs={**facts.runs, **dict.fromkeys(needs.runs)},
            relays={**facts.relays, **dict.fromkeys(needs.relays)},
            alive={**facts.alive, **{name: name == LIVE for name in needs.workers}},
        )
    return facts


Outcome = Committed | tuple[type, str]


def apply(facts: Facts, commit: Commit, now: int) -> tuple[Facts, Outcome]:
    """The result of a commit, and the facts afterwards."""
    known = filled(facts, commit)
    decided = decide_group(known, commit, now)
    assert not isinstance(decided, NeedFacts)
    if isinstance(decided, Refusal):
        return facts, (type(decided.error), str(decided.error))
    # A lease of no length is over when the next commit comes.
    return replace(decided.facts, alive={}), decided.committed


async def write(store: Store, commit: Commit) -> Outcome:
    """The result of a commit in a store."""
    try:
        return await store.commit(commit)
    except StoreError as error:
        return type(error), str(error)


# -- comparison ----------------------------------------------------------------------------------------------

Seen = dict[str, Any]


def expected(facts: Facts) -> dict[str, Seen]:
    return {head.id: _expected(head) for head in facts.heads.values() if head.no}


def _expected(head: Head) -> Seen:
    dispatch, run = head.dispatch, head.open_run
    queued: Any = None
    if dispatch is not None:
        queued = (dispatch.agent, dispatch.priority, dispatch.attempts, dispatch.dead_at is not None)
        queued = (*queued, dispatch.error or "")
    elif head.claim is not None:
        queued = ("", 128, 0, False, "") if run is None else (run.agent, run.priority, 0, False, "")
    return {
        "counters": (head.version, head.log_head, head.epoch, head.inbox_head),
        "owner": LIVE if head.claim == LIVE else None,
        "run": None if run is None else (run.id, run.status, run.steps),
        "pending": [(item_id, row.position, row.revision) for item_id, row in (head.pending or {}).items()],
        "parent": head.parent,
        "dispatch": queued,
    }


async def found(store: Store) -> dict[str, Seen]:
    queue = {one.thread_id: one for one in await store.dispatches()}
    threads: dict[str, Seen] = {}
    for name in THREADS:
        view = await store.load(name)
        if view is None:
            continue
        thread, run, one = view.thread, view.run, queue.get(name)
        threads[name] = {
            "counters": (thread.version, thread.head, thread.epoch, thread.inbox_head),
            "owner": thread.owner,
            "run": None if run is None else (run.id, run.status, run.steps),
            "pending": [(item.id, item.position, item.revision) for item in view.inbox],
            "parent": thread.parent_id,
            "dispatch": None
            if one is None
            else (one.agent_id, one.priority, one.attempts, one.dead_at is not None, one.error),
        }
    return threads


@pytest.mark.parametrize("name", sorted(STORES))
def test_store_agrees_with_decide(name: str) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        store = runner.run(stack.enter_async_context(STORES[name]()))
        tenants = count()

        async def check(moves: list[Move]) -> None:
            handle = store.tenant(f"tenant {next(tenants)}")
            facts = Facts({thread: Head(thread) for thread in THREADS}, next_thread=1, next_run=1)
            for n, move in enumerate(moves):
                after, outcome = apply(facts, commit_of(facts, move, n), 1)
                assert await write(handle, commit_of(facts, move, n)) == outcome, (n, move)
                facts = after
                assert await found(handle) == expected(facts), (n, move)

        @settings(deadline=None, max_examples=30 if name == "postgres" else 100)
        @given(st.lists(MOVES, max_size=25))
        def agree(moves: list[Move]) -> None:
            runner.run(check(moves))

        try:
            agree()
        finally:
            runner.run(stack.aclose())
