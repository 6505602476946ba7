"""The operations of AG-UI."""

from __future__ import annotations

from functools import partial

from ..operations import Operation, op

__all__ = ["OPENING", "PREFIX", "TABLE", "VERSION", "agui_op"]

PREFIX = "/agui"
VERSION = "1.0"
# The first bytes of a stream, before any event.
OPENING = b": open\n\n"
TABLE: dict[str, Operation] = {}

agui_op = partial(op, table=TABLE)
