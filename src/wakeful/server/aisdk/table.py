"""The operations of the AI SDK's UI message stream."""

from __future__ import annotations

from functools import partial

from ..operations import Operation, op

__all__ = ["HEADERS", "OPENING", "PREFIX", "TABLE", "aisdk_op"]

PREFIX = "/aisdk"
OPENING = b": open\n\n"
HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
TABLE: dict[str, Operation] = {}

aisdk_op = partial(op, table=TABLE)
