"""The operations of the OpenAI-compatible API."""

from __future__ import annotations

from functools import partial

from ..operations import Operation, op

__all__ = ["OPENING", "PREFIX", "TABLE", "openai_op"]

PREFIX = "/openai"
# A comment alone begins a stream: OpenAI's SDKs take a frame with other fields for an event.
OPENING = b": open\n\n"
TABLE: dict[str, Operation] = {}

openai_op = partial(op, table=TABLE)
