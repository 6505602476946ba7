"""Bodies and queries of threads and of mail."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..stores import ChildPolicy, RelayStatus
from ..types.inbox import InputPolicy
from ..types.runs import PRIORITY
from .numbers import Priority, Time
from .pages import PageQuery
from .runs import InputBody

__all__ = [
    "DeleteThread",
    "DescribeThread",
    "EditInput",
    "ForkThread",
    "Forked",
    "ImportThread",
    "ListDeadLetters",
    "ListMessages",
    "ListPending",
    "ListRelays",
    "ListThreads",
    "MoveInput",
    "RelayView",
    "Removed",
    "SendMessage",
]


class ListThreads(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of threads. Operators may name a `principal`; others see their own threads.

    - `agent`: the agent of their last run; `base`: the thread they are forks of.
    """

    principal: str | None = None
    agent: str | None = None
    base: str | None = None


class DescribeThread(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A title, which is removed if it is empty, and metadata, which replace the former ones."""

    title: str | None = None
    metadata: dict[str, Any] | None = None


class ListMessages(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conversation in pages from its end, or from the entry `before`, which is left out, backwards. With `after`
    in pages from the message after that entry on, forwards. The messages of a page are oldest first."""

    before: int | None = None
    after: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.before is not None and self.after is not None:
            raise ValueError("messages are listed before an entry or after one, not both")


class SendMessage(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Input for a thread; see `runtime.send`. `at` is in milliseconds."""

    input: InputBody
    agent: str | None = None
    policy: InputPolicy | None = None
    at: Time | None = None
    priority: Priority = PRIORITY


class ForkThread(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The entry to fork at, the last one by default, and the id of the new thread, a random one by default."""

    at: int | None = None
    into: str | None = None


class Forked(Struct, frozen=True, kw_only=True):
    """The id of a thread that was made by a fork or an import."""

    thread_id: str


class DeleteThread(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The policy for the threads of delegated runs."""

    children: ChildPolicy = "reject"


class Removed(Struct, frozen=True, kw_only=True):
    """The number of threads that were deleted."""

    threads: int


class ImportThread(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The lines of an export, and the id of the new thread, that of the export by default."""

    lines: str
    into: str | None = None


class ListPending(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The thread whose pending input is listed."""

    thread: str


class EditInput(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The new text of pending input."""

    text: str


class MoveInput(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The input to move this one before or after; neither moves it to the front."""

    before: str | None = None
    after: str | None = None


class ListDeadLetters(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead letters of a thread, or all."""

    thread: str | None = None


class ListRelays(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Relays of a thread or a run, or all, in this status."""

    thread: str | None = None
    run: str | None = None
    status: RelayStatus | None = None


class RelayView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A relay without its payload, which may hold secrets."""

    id: str
    thread_id: str
    run_id: str | None = None
    kind: str
    status: str
    attempts: int = 0
    due_at: int = 0
    created_at: int = 0
    last_error: str = ""
