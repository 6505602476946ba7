"""The signals by which a tool that waits is unwound."""

from __future__ import annotations

from ._terms import Terms

__all__ = ["Asked", "Parked"]


class Asked(BaseException):
    """The signal that unwinds a tool which asked a question; not an error, so `except Exception` lets it by."""

    def __init__(self, message: str, terms: Terms) -> None:
        super().__init__(message)
        self.message = message
        self.terms = terms


class Parked(BaseException):
    """The signal that unwinds a tool which waits for a task, for times, or for both; not an error, so `except
    Exception` lets it by. `timers` are places in the tool's code, each with its time."""

    task_id: str | None = None
    timers: tuple[tuple[int, int], ...] = ()
