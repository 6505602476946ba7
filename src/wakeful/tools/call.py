"""A tool call while it runs: the part of its context that the runtime works with."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..errors import UsageError
from ..state import Command
from ..types.base import Data
from ..types.calls import Call
from ..types.runs import Identity
from .signals import Asked, Parked

__all__ = ["CallContext"]


class CallContext(Struct, eq=False):
    """A running call: its row, its fence, the changes it buffered, and the signal that unwinds its tool.

    `can_suspend` says whether the tool may run again from the top; `is_delegation` that the call is one child
    agent's run and nothing else.
    """

    run: Identity
    _call: Call
    fence: int
    can_suspend: bool = False
    is_delegation: bool = False
    _kept: dict[str, Any] | None = None
    changes: Command | None = None
    # Decides the call's end even if the tool, a task group or `gather` swallowed the signal.
    unwinding: Asked | Parked | None = None
    _places: int = 0
    _cancelled: bool = False
    _ended: bool = False

    @property
    def call_id(self) -> str:
        """The call's id."""
        return self._call.id

    @property
    def name(self) -> str:
        """The tool's name."""
        return self._call.name

    @property
    def attempt(self) -> int:
        """The number of times the call was started, this time included."""
        return self._call.attempt

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled. A tool that runs in a thread should check this now and then."""
        return self._cancelled

    @property
    def command(self) -> Command:
        """The changes that are committed with the call's result."""
        self.check_open()
        if self.changes is None:
            self.changes = Command()
        return self.changes

    @property
    def kept(self) -> dict[str, Any] | None:
        """The note that the last attempt left by `keep`."""
        return self._call.kept if self._kept is None else self._kept

    def keep(self, note: dict[str, Any]) -> None:
        """Leave a note, as JSON data, that is stored with the call when it is suspended.

        The note says where the tool continues, so it may be suspended whatever its effect is, and a denied
        question is an answer for the tool too, not the end of the call.
        """
        self.check_open()
        self._kept = note
        self.can_suspend = True

    def next_place(self) -> int:
        """Number the next wait of the call: the same number in every attempt."""
        self._places += 1
        return self._places

    def park(self, task_id: str | None = None, timer: tuple[int, int] | None = None) -> Parked:
        """Return the signal to raise in a tool that waits for a task or a timer, or for several of them."""
        parked = self.unwinding if isinstance(self.unwinding, Parked) else Parked()
        parked.task_id = parked.task_id or task_id
        if timer is not None:
            parked.timers += (timer,)
        self.unwinding = self.unwinding or parked
        return parked

    def cancel(self) -> None:
        """Mark the call as cancelled; used by the loop."""
        self._cancelled = True

    def end(self) -> None:
        """Close the context: the call has ended; used by the loop."""
        self._ended = True

    def check_open(self) -> None:
        """Raise `UsageError` if the call has ended."""
        if self._ended:
            raise ended_error(self._call)


def ended_error(call: Call) -> UsageError:
    """The error for a use of a context after its call has ended."""
    return UsageError(
        f"the call {call.id} of {call.name} has ended, and its context with it: nothing can be changed, shown or "
        "begun by it any more; do so before the tool returns, or start work that outlives it with ctx.spawn(...)"
    )


class EndedServices(Data):
    """Takes the place of a call's services once the call has ended: every use raises `UsageError`."""

    _call: Call

    def __getattr__(self, name: str) -> Any:
        raise ended_error(self._call)
