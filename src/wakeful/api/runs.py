"""Bodies and queries of runs."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from ..stores import OutcomeKind
from ..types.content import Audio, Document, Image, Text, Video
from ..types.requests import ModelSettings
from ..types.runs import PRIORITY, RunStatus, WaitReason
from ..types.tickets import Decision, Remember, ResumeMode, Verdict
from .numbers import Priority, Seconds, Time
from .pages import check_limit

__all__ = [
    "MAX_WAIT",
    "CancelRun",
    "ClientToolBody",
    "CountRuns",
    "CreateRun",
    "DecisionBody",
    "EventsQuery",
    "InputBody",
    "ListRuns",
    "ResumeRun",
    "WaitQuery",
    "Wanted",
]

MAX_WAIT = 60.0

InputBody = str | list[Text | Image | Audio | Video | Document] | dict[str, Any]
"""A text, content parts, or a value of the agent's input type."""


class ClientToolBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tool that the caller runs: the run waits for its result on a ticket."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None


class WaitQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`wait` is how many seconds to wait for the run to finish or to ask, at most 60."""

    wait: float = 0

    def __post_init__(self) -> None:
        check_wait(self.wait)


class CreateRun(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A run of an agent on a thread, a new one by default.

    With a `delay` in seconds or a time `at` in milliseconds it starts then. `message_id` is the sender's own id of
    the message. `wait` is how many seconds to wait for the result, at most 60.
    """

    agent: str
    input: InputBody
    thread: str | None = None
    client_tools: tuple[ClientToolBody, ...] = ()
    settings: ModelSettings | None = None
    delay: Seconds | None = None
    at: Time | None = None
    priority: Priority = PRIORITY
    message_id: str | None = None
    wait: float = 0

    def __post_init__(self) -> None:
        check_wait(self.wait)


class CountRuns(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of runs. Operators may name a `principal`; others see their own runs.

    - `root`: the runs below this one; `parent`: those directly below it.
    - `outcome`: why they ended, such as `error`; `waits_for`: why they wait, such as `tool_permission`.
    - `since`, `until`: they were created from this time on, and before that one, in milliseconds.
    """

    status: RunStatus | None = None
    agent: str | None = None
    thread: str | None = None
    principal: str | None = None
    root: str | None = None
    parent: str | None = None
    outcome: OutcomeKind | None = None
    waits_for: WaitReason | None = None
    since: Time | None = None
    until: Time | None = None


class ListRuns(CountRuns, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of runs as in `CountRuns`, which are listed newest first."""

    limit: int = 50
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_limit(self)


class CancelRun(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Why a run is cancelled."""

    reason: str = "cancelled by request"


class Wanted(Struct, frozen=True, kw_only=True):
    """Whether a request changed anything: False if the run, task or schedule was done or gone before."""

    changed: bool


class DecisionBody(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An answer to a ticket.

    A `value` alone answers in the ticket's default mode; a `verdict` approves or denies. `seen` is the digest of
    the ticket that its author saw: the answer is refused if the ticket changed since. `replace` replaces an answer
    that no run has taken yet. `remember` makes a grant of an approval, as the ticket's `offer` admits.
    """

    ticket_id: str = ""
    verdict: Verdict | None = None
    mode: ResumeMode | None = None
    value: Any = UNSET
    reason: str = ""
    seen: str | None = None
    replace: bool = False
    remember: Remember | None = None

    def decision(self, ticket_id: str) -> Decision:
        """The decision about a ticket."""
        has_value = not isinstance(self.value, UnsetType)
        mode = "proceed" if self.verdict == "approve" and self.mode is None and not has_value else self.mode
        value = self.value if has_value else None
        return Decision(
            ticket_id,
            self.verdict or "approve",
            mode=mode,
            value=value,
            reason=self.reason,
            seen=self.seen,
            remember=self.remember,
        )


class ResumeRun(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Answers to tickets of a run and of runs below it, and a message beside them.

    All are valid, or none is taken.
    """

    decisions: tuple[DecisionBody, ...] = ()
    message: InputBody | None = None
    message_id: str | None = None
    wait: float = 0

    def __post_init__(self) -> None:
        check_wait(self.wait)


class EventsQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Events `after` a cursor, from the beginning by default; the header `Last-Event-ID` goes before it.

    With `follow=false` the stream ends at the end of the log. `depth=0` leaves the runs below out. With
    `snapshot=true` the stream of a thread begins with its conversation and state at present.
    """

    after: str = "0"
    follow: bool = True
    depth: int | None = None
    snapshot: bool = False


def check_wait(seconds: float) -> None:
    """Raise `ValueError` for a wait that is too long."""
    if not 0 <= seconds <= MAX_WAIT:
        raise ValueError(f"wait is from 0 to {MAX_WAIT:.0f} seconds, not {seconds:g}")
