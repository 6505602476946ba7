"""Exit codes of commands, from outcomes of runs and from errors."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum

import typer

from ..dispatch import RunResult
from ..errors import ConfigurationError, UsageError, WakefulError
from ..types.events import RunFinish
from ..types.runs import Blocked, Cancelled, EndRequested, NaturalEnd, Stopped
from .render import Renderer

__all__ = ["ExitCode", "exit_code", "reported"]


class ExitCode(IntEnum):
    """The exit codes of `wakeful`."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    WAITING = 3
    STOPPED = 4
    BLOCKED = 5
    CANCELLED = 130


def exit_code(finish: RunFinish | RunResult | None) -> ExitCode:
    """The exit code for the end of an activation; an error if it has no end."""
    if finish is None:
        return ExitCode.ERROR
    if finish.status == "waiting":
        return ExitCode.WAITING
    match finish.termination:
        case NaturalEnd() | EndRequested():
            return ExitCode.DONE
        case Stopped():
            return ExitCode.STOPPED
        case Blocked():
            return ExitCode.BLOCKED
        case Cancelled():
            return ExitCode.CANCELLED
        case _:
            return ExitCode.ERROR


@contextmanager
def reported(renderer: Renderer) -> Generator[None, None, None]:
    """Print errors of wakeful and exit with their code; other exceptions are bugs and keep their traceback."""
    try:
        yield
    except (UsageError, ConfigurationError) as error:
        renderer.error(str(error))
        raise typer.Exit(ExitCode.USAGE) from error
    except WakefulError as error:
        renderer.error(str(error))
        raise typer.Exit(ExitCode.ERROR) from error
