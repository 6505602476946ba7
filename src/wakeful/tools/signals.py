"""Control-flow signals that unwind a tool which waits.

They derive from `BaseException`, so that a tool's `except Exception` doesn't catch them.
"""

from __future__ import annotations

from .terms import Terms

__all__ = ["Asked", "Parked"]


class Asked(BaseException):
    """Unwinds a tool that asked a person."""

    def __init__(self, message: str, terms: Terms) -> None:
        super().__init__(message)
        self.message = message
        self.terms = terms


class Parked(BaseException):
    """Unwinds a tool that waits for a task, for timers, or for both.

    `timers` are pairs of a place in the tool's code and a time in milliseconds.
    """

    task_id: str | None = None
    timers: tuple[tuple[int, int], ...] = ()
