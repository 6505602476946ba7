"""The resources that tasks run with."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from msgspec import Struct

from ..clock import Clock
from ..tools import ToolThreads

__all__ = ["TaskEnvironment"]


class TaskEnvironment(Struct, frozen=True, eq=False):
    """The clock and threads of a runtime, its cancel grace in seconds, and coroutines that wait for their run.

    A coroutine is kept with its name under the id of its run.
    """

    clock: Clock
    threads: ToolThreads
    grace: float
    coroutines: dict[str, tuple[str, Coroutine[Any, Any, Any]]]
