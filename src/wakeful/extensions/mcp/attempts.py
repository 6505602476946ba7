"""Whether a request left this process: the fact on which a repetition depends."""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["ATTEMPT", "Attempt"]


class Attempt:
    """One request to a server: whether it may have been written, and the error of the layers below the SDK."""

    __slots__ = ("error", "has_lost_session", "is_written")

    def __init__(self) -> None:
        self.is_written = False
        # The server refused the request because it ended the session.
        self.has_lost_session = False
        self.error: Exception | None = None


# The SDK runs the work of a request in the context of its sender.
ATTEMPT: ContextVar[Attempt | None] = ContextVar("mcp_attempt", default=None)
