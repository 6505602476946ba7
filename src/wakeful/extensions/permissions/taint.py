"""Taint: the mark of a thread whose conversation has text that strangers may have written."""

from __future__ import annotations

from typing import ClassVar

from ...state import StateKey

__all__ = ["Taint"]

MAX_SOURCES = 20


class Taint(StateKey[tuple[str, ...], str]):
    """The names of the untrusted tools whose results the conversation has, the first 20; empty if there is none.

    It belongs to the thread: later runs are shown the same text. It is never taken back.
    """

    name: ClassVar[str] = "permissions.taint"
    scope = "thread"
    merge = "commutative"
    inherited = True
    default: ClassVar[tuple[str, ...]] = ()

    def apply(self, value: tuple[str, ...], update: str) -> tuple[str, ...]:
        """Add a source."""
        return value if update in value or len(value) >= MAX_SOURCES else (*value, update)
