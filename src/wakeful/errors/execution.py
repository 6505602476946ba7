"""Errors of tools and backends."""

from __future__ import annotations

from .base import WakefulError

__all__ = [
    "AgentNotFound",
    "BackendError",
    "ExecutionFailed",
    "InDoubt",
    "InvalidArguments",
    "NoCredentials",
    "OutputRejected",
    "RemoteError",
    "ToolCancelled",
    "ToolDenied",
    "ToolError",
    "ToolNotFound",
    "ToolTimeout",
]


class BackendError(WakefulError):
    """A backend could not execute an agent. `detail` is the message without the kind."""

    kind: str = "backend error"

    def __init__(self, detail: str) -> None:
        super().__init__(f"{self.kind}: {detail}")
        self.detail = detail


class AgentNotFound(BackendError):
    """The backend has no such agent."""

    kind = "agent not found"


class ExecutionFailed(BackendError):
    """The execution failed, or the backend doesn't support the request."""

    kind = "execution failed"


class NoCredentials(BackendError):
    """The function that provides a backend's secret failed. Its error is hidden: it may quote the secret."""

    kind = "no credentials"


class RemoteError(BackendError):
    """The remote side of a backend failed."""

    kind = "remote error"


class OutputRejected(WakefulError):
    """Raise one in an output validator: the model is told why, and answers again."""


class ToolError(WakefulError):
    """Raise this, or a subclass, in a tool to give the model an error result labelled `kind`."""

    kind: str = "failed"


class InvalidArguments(ToolError):
    """The arguments don't fit the tool's schema; the message names the path."""

    kind = "invalid_arguments"


class InDoubt(ToolError):
    """Raise this in a tool that lost sight of a request that it sent: the tool's effect decides about the call."""

    kind = "in_doubt"


class ToolDenied(ToolError):
    """The call isn't allowed."""

    kind = "denied"


class ToolNotFound(ToolError):
    """The model is offered no tool of this name."""

    kind = "not_found"


class ToolTimeout(ToolError):
    """The tool exceeded its timeout."""

    kind = "timeout"


class ToolCancelled(ToolError):
    """The call was cancelled."""

    kind = "cancelled"
