"""What a run has done since its last commit, gathered until there is a reason to write it."""

from __future__ import annotations

from msgspec.structs import replace

from ..state import SentNotice, State
from ..stores import Commit, Committed, Fence, InboxItem, StateWrite, Store
from ..types.events import Event, StateDelta
from ..types.messages import Message
from ..types.runs import Call, Identity, RunRecord
from ..types.tickets import Decision, Ticket

__all__ = ["Draft"]


class Draft:
    """The next commit in the making. `flush` writes it; on a refusal all of it stays."""

    __slots__ = (
        "_calls",
        "_decisions",
        "_runs",
        "_taken",
        "_tickets",
        "claim",
        "fence",
        "identity",
        "inbox",
        "log",
        "notices",
        "state",
        "version",
    )

    def __init__(self, identity: Identity, state: State) -> None:
        self.identity = identity
        self.state = state
        self.log: list[Message | Event] = []
        self.notices: list[SentNotice] = []
        self.inbox: list[InboxItem] = []
        self.fence: Fence | None = None
        self.version: int | None = None
        self.claim: str | None = None
        self._runs: dict[str, RunRecord] = {}
        self._calls: dict[str, Call] = {}
        self._tickets: dict[str, Ticket] = {}
        self._decisions: list[Decision] = []
        self._taken: list[str] = []

    def put_run(self, run: RunRecord) -> None:
        """Write the run's record."""
        self._runs[run.identity.run_id] = run

    def put_call(self, call: Call) -> None:
        """Write a row of the ledger."""
        self._calls[call.id] = call

    def put_ticket(self, ticket: Ticket) -> None:
        """Write a ticket."""
        self._tickets[ticket.id] = ticket

    def put_decision(self, decision: Decision) -> None:
        """Write a decision."""
        self._decisions.append(decision)

    def take(self, item_id: str) -> None:
        """Mark an inbox item as taken in."""
        self._taken.append(item_id)

    def __bool__(self) -> bool:
        return bool(self.log or self._runs or self._calls or self._tickets or self._taken or self.state.changes)

    async def flush(
        self, store: Store, now: int, *, release: bool = False, inbox_head: int | None = None
    ) -> tuple[Committed, list[Message | Event], list[SentNotice]]:
        """Commit everything gathered; returns what was logged and the notices that may go out now."""
        commit = self._commit(now, release, inbox_head)
        committed = await store.commit(commit)
        logged, notices = self.log, self.notices
        self.log, self.notices, self.inbox = [], [], []
        self._runs, self._calls, self._tickets = {}, {}, {}
        self._decisions, self._taken = [], []
        self.state.changes.clear()
        if self.claim is not None:
            self.fence = Fence(committed.epoch, self.claim)
            self.claim = self.version = None
        return committed, logged, notices

    def _commit(self, now: int, release: bool, inbox_head: int | None) -> Commit:
        if (changes := self.state.changes) and any(key.persistent for key in changes):
            shown = {key.name: self.state.value(key.name) for key in changes if _shown(key.name, key.persistent)}
            if shown and not any(type(entry) is StateDelta for entry in self.log[-1:]):
                self.log.append(StateDelta(self.identity, 0, now, shown))
        run_id = self.identity.run_id
        return Commit(
            thread_id=self.identity.thread_id,
            fence=self.fence,
            version=self.version,
            claim=self.claim,
            release=release,
            identity=self.identity,
            log=self.log,
            runs=[replace(run, updated_at=now) for run in self._runs.values()],
            calls=tuple(self._calls.values()),
            tickets=tuple(self._tickets.values()),
            decisions=self._decisions,
            state=[
                StateWrite(key.name, value, run_id if key.scope == "run" else None)
                for key, value in changes.items()
                if value is not None
            ],
            inbox=self.inbox,
            taken=self._taken,
            inbox_head=inbox_head,
        )


def _shown(name: str, persistent: bool) -> bool:
    return persistent and not name.startswith("wakeful.")
