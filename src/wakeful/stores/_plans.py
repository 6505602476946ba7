"""A commit on its way to Postgres: what its function is told as JSON, and the payloads that go beside it.

JSON and text know no NUL, so payloads travel as bytes. In the few words that are text, such as the names of tools,
a NUL is spelled with an escape in front.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import force_setattr

from ..errors import Conflict, InboxMoved, Repeated, StaleFence, StoreUnavailable
from ..types.codec import cleaned, encode
from ..types.ids import new_id
from ..types.runs import PRIORITY, RunRecord
from ._packing import Packer
from ._pending import moved
from ._protocol import Commit, Committed
from ._relays import Relay
from ._rows import call_body, entries_of, run_body
from ._rules import answers, makes_thread, no_room, not_idle, root_of, wakes_of, writes

__all__ = ["ESCAPE", "Plan", "escaped", "even", "outcome", "plan_of", "unescaped"]

# -- text ----------------------------------------------------------------------------------------------------

ESCAPE = "\x10"
_ESCAPED_JSON = re.compile(r"\\(\\|u0000|u0010)")
_SPELLED = {"\\": r"\\", "u0000": r"\u00100", "u0010": r"\u0010\u0010"}


def escaped(text: str) -> str:
    """The text without a NUL in it."""
    if "\0" in text or ESCAPE in text:
        return text.replace(ESCAPE, ESCAPE * 2).replace("\0", f"{ESCAPE}0")
    return text


def unescaped(text: str) -> str:
    """The text as it was."""
    if ESCAPE not in text:
        return text
    return re.sub(f"{ESCAPE}(.)", lambda found: "\0" if found[1] == "0" else ESCAPE, text)


def _json(value: Any) -> str:
    text = encode(value).decode()
    if r"\u00" in text:
        return _ESCAPED_JSON.sub(lambda found: _SPELLED[found[1]], text)
    return text


# -- what the function is told -------------------------------------------------------------------------------


class _Run(Struct, gc=False, omit_defaults=True):
    name: int
    id: str
    agent: str
    status: str
    step: int
    acting: int
    i: int
    wakes: str
    answer: int | None = None
    finished_at: int | None = None
    root: str | None = None
    priority: int = PRIORITY


class _Entry(Struct, gc=False, omit_defaults=True):
    n: int
    i: int
    kind: str
    run: int
    agent: str
    at: int
    ref: int | None = None
    size: int = 1
    more: int | None = None


class _Call(Struct, gc=False, omit_defaults=True):
    run: int
    step: int
    place: int
    id: str
    name: str
    i: int
    ref: int | None = None
    arguments: int | None = None


class _Control(Struct, omit_defaults=True, kw_only=True):
    """The commit as the function takes it. What isn't there is left out: the function asks for the key."""

    id: str
    tenant: str
    thread: str
    run: str | None = None
    parent: str | None = None
    fence: tuple[int, str] | None = None
    version: int | None = None
    inbox_head: int | None = None
    claim: str | None = None
    lease: int | None = None
    agent: str = ""
    release: bool = False
    idle: bool = False
    later: int | None = None
    failed: str | None = None
    changes: bool = False
    creates: bool = False
    invalid: bool = False
    plain: bool = False
    rare: bool = False
    answered: bool = False
    request: str | None = None
    names: list[str] = []
    runs: list[_Run] = []
    log: list[_Entry] = []
    entries: int = 0
    calls: list[_Call] = []
    tickets: list[dict[str, Any]] = []
    decisions: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    chunks: list[dict[str, Any]] = []
    attempt: int | UnsetType = UNSET
    taken: list[str] = []
    state: list[dict[str, Any]] = []
    open: dict[str, Any] | None = None
    title: str | None = None
    metadata: int | None = None
    inbox: list[dict[str, Any]] = []
    relays: list[dict[str, Any]] = []
    pending: list[dict[str, Any]] = []
    seen: list[dict[str, Any]] = []
    blobs: list[dict[str, Any]] = []


class Plan(Struct, eq=False):
    """One commit, ready to be sent."""

    commit: Commit
    told: _Control
    payloads: list[bytes]
    size: int
    problem: Exception | None = None
    """What is wrong with the commit in itself. It is checked all the same: one that is stale is told so first."""

    @property
    def control(self) -> str:
        """What the function is told, as JSON."""
        try:
            return _json(self.told)
        except UnicodeEncodeError:
            return _json(cleaned(self.told))

    @property
    def plain(self) -> bool:
        """Whether an owner goes on with its thread's run, and nothing else."""
        return self.told.plain


def plan_of(tenant: str, packer: Packer, commit: Commit) -> Plan:
    """What the function is told to write this commit."""
    plan = _Planner(tenant, packer, commit).plan()
    if isinstance(plan.problem, UnicodeEncodeError):
        return _Planner(tenant, packer, cleaned(commit)).plan()
    return plan


class _Planner:
    """Collects a commit's payloads while it is put into words. Indexes begin at 1, as the function's arrays do."""

    def __init__(self, tenant: str, packer: Packer, commit: Commit) -> None:
        self._tenant = tenant
        self._packer = packer
        self._commit = commit
        self._payloads: list[bytes] = []
        self._blobs: dict[str, bytes] = {}
        self._names: dict[str, int] = {}

    def plan(self) -> Plan:
        commit, control = self._commit, self._conditions()
        if control.changes:
            try:
                self._append(control)
            except ValueError as problem:
                control.invalid = True
                return Plan(commit, control, [], 0, problem)
        own = commit.claim is not None or commit.about is not None or commit.relays
        control.creates = bool(control.changes or own)
        if (about := commit.about) is not None:
            control.title = about.title
            if about.metadata is not None:
                control.metadata = self._pack(encode(about.metadata))
        control.relays = [self._relay(relay) for relay in commit.relays]
        control.pending = [
            {
                "id": item.id,
                "revision": item.revision,
                "status": item.status,
                "position": item.position,
                "i": self._pack(encode(item)),
            }
            for item in commit.pending
        ]
        control.seen = [{"id": item_id, "revision": revision} for item_id, revision in commit.seen.items()]
        if commit.inbox:
            self._deliver(control)
        control.blobs = self._stored(self._blobs)
        control.names = list(self._names)
        control.plain = _is_plain(control)
        size = sum(map(len, self._payloads))
        return Plan(commit, control, self._payloads, size)

    def _conditions(self) -> _Control:
        """What the commit depends on, and what it does to the thread's claim."""
        commit = self._commit
        control = _Control(id=new_id(), tenant=self._tenant, thread=commit.thread_id)
        control.changes, control.release, control.idle = writes(commit), commit.release, commit.idle
        control.later, control.failed = commit.later, commit.failed
        control.version, control.inbox_head, control.request = commit.version, commit.inbox_head, commit.request
        if commit.fence is not None:
            control.fence = (commit.fence.epoch, commit.fence.token)
        if (identity := commit.identity) is not None:
            control.run, control.parent = identity.run_id, identity.parent_thread_id
        if commit.claim is not None:
            control.claim, control.lease = commit.claim, commit.lease
            control.agent = commit.runs[-1].agent_id if commit.runs else ""
        return control

    def _put(self, payload: bytes) -> int:
        self._payloads.append(payload)
        return len(self._payloads)

    def _pack(self, data: bytes) -> int:
        return self._put(self._packer.pack(data, self._blobs))

    def _stored(self, blobs: dict[str, bytes]) -> list[dict[str, Any]]:
        return [{"digest": digest, "i": self._put(payload)} for digest, payload in blobs.items()]

    def _name(self, run_id: str) -> int:
        """The run's place among the runs that the commit speaks of."""
        return self._names.setdefault(run_id, len(self._names) + 1)

    def _append(self, control: _Control) -> None:
        commit = self._commit
        entries, places = entries_of(commit, self._packer, self._blobs)
        for e in entries:
            i, more = self._put(e.payload), None if e.more is None else self._put(e.more)
            control.log.append(
                _Entry(e.number, i, e.kind, self._name(e.run_id), e.agent, e.at, e.ref, e.size, more)
            )
        control.entries = len(commit.log)
        control.answered = answers(commit)
        self._put_runs(control, places)
        calls: dict[tuple[int, int, int], _Call] = {}
        for call in commit.calls:
            run, payload = self._name(call.run_id), self._pack(call_body(call))
            if (row := calls.get((run, call.step, call.index))) is not None:
                row.i = payload
                continue
            ref = places.get(call.id)
            # Once a row is there, its arguments stay as they are, wherever they lie.
            arguments = None if ref is not None else self._pack(encode(call.arguments))
            row = _Call(run, call.step, call.index, call.id, call.name, payload, ref, arguments)
            calls[run, call.step, call.index] = row
        control.calls = list(calls.values())
        for change in commit.state:
            scope = {} if change.run_id is None else {"run": self._name(change.run_id)}
            control.state.append({"name": change.name, "i": self._pack(change.value), **scope})
        if commit.tickets or commit.decisions or commit.tasks or commit.chunks or commit.taken:
            self._put_rare(control)

    def _put_runs(self, control: _Control, places: dict[str, int]) -> None:
        open_run: RunRecord | None = None
        for record in self._commit.runs:
            run_id = record.identity.run_id
            if record.status != "done":
                open_run = record
            elif open_run is not None and open_run.identity.run_id == run_id:
                open_run = None
            control.runs.append(
                _Run(
                    self._name(run_id),
                    run_id,
                    record.agent_id,
                    record.status,
                    record.steps,
                    int(record.stage == "acting"),
                    self._pack(even(run_body(record))),
                    wakes_of(record),
                    places.get(record.answer_id or ""),
                    record.finished_at,
                    root_of(record),
                    record.priority,
                )
            )
        if open_run is not None:
            control.open = {"agent": open_run.agent_id, "priority": open_run.priority}
            if open_run.waiting is not None:
                control.open |= {"waits": True, "until": open_run.waiting.until}

    def _put_rare(self, control: _Control) -> None:
        commit = self._commit
        control.rare, control.taken = True, list(commit.taken)
        tickets = {
            k.id: {
                "id": k.id,
                "run": self._name(k.run_id),
                "status": k.status,
                "assignee": k.assignee,
                "i": self._pack(encode(k)),
            }
            for k in commit.tickets
        }
        control.tickets = list(tickets.values())
        control.decisions = [
            {"id": d.id, "ticket": d.ticket_id, "at": d.at, "i": self._pack(encode(d))} for d in commit.decisions
        ]
        tasks = {
            k.id: {"id": k.id, "run": k.run_id, "status": k.status, "i": self._pack(encode(k))}
            for k in commit.tasks
        }
        control.tasks = list(tasks.values())
        kept: list[dict[str, Any]] = []
        for chunk in commit.chunks:
            # A new attempt withdraws what the ones before it said.
            kept = [one for one in kept if one["attempt"] >= chunk.attempt]
            kept.append({"message": chunk.message_id, "attempt": chunk.attempt, "i": self._pack(encode(chunk))})
        control.chunks = kept
        control.attempt = max([chunk.attempt for chunk in commit.chunks]) if commit.chunks else UNSET

    def _relay(self, relay: Relay) -> dict[str, Any]:
        return {
            "id": relay.id,
            "run": relay.run_id,
            "kind": relay.kind,
            "status": relay.status,
            "cursor": relay.cursor,
            "due_at": relay.due_at,
            "until": relay.until,
            "revision": relay.revision,
            "i": self._pack(encode(relay)),
        }

    def _deliver(self, control: _Control) -> None:
        for item in self._commit.inbox:
            control.creates |= item.thread_id == self._commit.thread_id and makes_thread(item)
            blobs: dict[str, bytes] = {}
            row: dict[str, Any] = {
                "id": item.id,
                "thread": item.thread_id,
                "kind": item.kind,
                "wake": item.wake,
                "agent": item.agent_id,
                "run": item.run_id,
                "priority": item.priority,
                "at": item.at,
                "i": self._put(self._packer.pack(encode(item), blobs)),
            }
            if item.lineage is not None:
                row["parent"] = item.lineage.parent_thread_id
            if blobs:
                row["blobs"] = self._stored(blobs)
            control.inbox.append(row)


def even(data: bytes) -> bytes:
    """The same JSON, in whole words: its end and what lies behind it stay as they are when the row is updated, and
    Postgres logs only what comes before."""
    return b" " * (-len(data) % 8) + data


def _is_plain(control: _Control) -> bool:
    """Whether an owner goes on with its thread's run, and nothing else."""
    if control.fence is None or control.release or control.claim is not None or len(control.names) != 1:
        return False
    if len(control.runs) != 1 or control.runs[0].status == "done" or not control.log:
        return False
    rare = control.rare or control.request is not None or control.title is not None or control.metadata is not None
    more = control.state or control.inbox or control.relays or control.pending or control.seen or control.blobs
    return not rare and not more


# -- what it answers -----------------------------------------------------------------------------------------


def outcome(commit: Commit, verdict: list[Any], problem: Exception | None) -> Committed:
    """What came of a commit; raises what was wrong with it."""
    name = commit.thread_id
    match verdict:
        case ["ok", version, head, epoch, inbox_head, positions]:
            for item, position in zip(commit.inbox, positions, strict=False):
                force_setattr(item, "position", position or item.position)
            return Committed(version, head, epoch, inbox_head)
        case ["stale_fence", epoch]:
            had = "" if commit.fence is None else f"epoch {commit.fence.epoch}, "
            raise StaleFence(f"thread {name!r} is no longer owned by this writer ({had}now {epoch})")
        case ["lost"]:
            raise StoreUnavailable(
                f"the last commit to thread {name!r} is gone with a crash of the server; its run will go on from "
                "the one before"
            )
        case ["owned"]:
            raise Conflict(f"thread {name!r} is owned by another writer")
        case ["conflict", version]:
            raise Conflict(f"thread {name!r} is at version {version}, not {commit.version}")
        case ["not_idle"]:
            raise not_idle(commit)
        case ["inbox_moved"]:
            raise InboxMoved(f"thread {name!r} has new items in its inbox")
        case ["relay_moved", relay_id, now, wanted]:
            raise Conflict(f"relay {unescaped(relay_id)!r} is at revision {now}, not {wanted - 1}")
        case ["pending_moved", item_id, status, revision]:
            raise moved(unescaped(item_id), status, revision)
        case ["repeated", run_id]:
            found = None if run_id is None else unescaped(run_id)
            raise Repeated(f"request {commit.request!r} was made before", found)
        case ["inbox_full", thread_id]:
            raise no_room(unescaped(thread_id))
        case _:
            raise problem or ValueError(f"a verdict of an unknown kind: {verdict!r:.80}")
