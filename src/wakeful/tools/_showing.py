"""Checks of what a tool or a task shows while it runs: all of it can be sent to readers elsewhere."""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import UsageError

__all__ = ["check_progress", "check_shown"]


def check_progress(fraction: Any, done: Any, total: Any) -> None:
    """Refuse what says of nothing how far it has come."""
    if fraction is not None and type(fraction) not in (int, float):
        raise UsageError(f"progress is a fraction, such as 0.5, not {fraction!r:.80}; say more with message=...")
    for name, value in (("done", done), ("total", total)):
        if value is not None and type(value) is not int:
            raise UsageError(f"{name} of a progress is a whole number, not {value!r:.80}")


def check_shown(content: Any) -> None:
    """Refuse what has no JSON."""
    try:
        msgspec.json.encode(content)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise UsageError(f"an activity shows what can be JSON: {error}") from error
