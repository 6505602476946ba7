"""How a run's outcome becomes the command's exit code."""

from __future__ import annotations

from enum import IntEnum

from ..types.events import RunFinish
from ..types.runs import BehaviourRequested, Blocked, Cancelled, NaturalEnd, Stopped

__all__ = ["ExitCode", "exit_code"]


class ExitCode(IntEnum):
    """What the command tells the shell."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    WAITING = 3
    STOPPED = 4
    BLOCKED = 5
    CANCELLED = 130


def exit_code(finish: RunFinish | None) -> ExitCode:
    """The exit code for the end of a run's activation; an error if it never came to one."""
    if finish is None:
        return ExitCode.ERROR
    if finish.status == "waiting":
        return ExitCode.WAITING
    match finish.termination:
        case NaturalEnd() | BehaviourRequested():
            return ExitCode.DONE
        case Stopped():
            return ExitCode.STOPPED
        case Blocked():
            return ExitCode.BLOCKED
        case Cancelled():
            return ExitCode.CANCELLED
        case _:
            return ExitCode.ERROR
