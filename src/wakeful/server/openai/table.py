"""The operations of the OpenAI-compatible API."""

from __future__ import annotations

from functools import partial

from ..operations import Operation, op

__all__ = ["PREFIX", "TABLE", "openai_op"]

PREFIX = "/openai"
TABLE: dict[str, Operation] = {}

openai_op = partial(op, table=TABLE)
