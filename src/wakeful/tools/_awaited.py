"""Noticing that a call is awaited which mustn't be, before it returns."""

from __future__ import annotations

import dis
from inspect import currentframe

__all__ = ["is_awaited"]


def is_awaited() -> bool:
    """Whether whoever called the caller awaits what that will return; only the next instruction there tells."""
    here = currentframe()
    frame = here and here.f_back and here.f_back.f_back
    if frame is None:
        return False
    rest = (each.opname for each in dis.get_instructions(frame.f_code) if each.offset > frame.f_lasti)
    return next(rest, "") == "GET_AWAITABLE"
