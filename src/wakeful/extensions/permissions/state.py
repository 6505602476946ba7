"""The state of permissions: the taint of a thread, and the grants of a run."""

from __future__ import annotations

from typing import ClassVar

from ...state import StateKey

__all__ = ["RunGrants", "Taint"]

MAX_SOURCES = 20
MAX_RUN_GRANTS = 200


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


class RunGrants(StateKey[tuple[str, ...], str]):
    """Call patterns that the run was granted by code, such as a trusted skill: they lift questions, never a deny.

    The first 200 count. They end with the run, and its children don't have them.
    """

    name: ClassVar[str] = "permissions.grants"
    merge = "commutative"
    default: ClassVar[tuple[str, ...]] = ()

    def apply(self, value: tuple[str, ...], update: str) -> tuple[str, ...]:
        """Add a pattern."""
        return value if update in value or len(value) >= MAX_RUN_GRANTS else (*value, update)
