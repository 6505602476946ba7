"""What goes wrong in a tool, or in what executes an agent elsewhere."""

from __future__ import annotations

from ._base import WakefulError

__all__ = [
    "AgentNotFound",
    "BackendError",
    "ExecutionFailed",
    "InvalidArguments",
    "NoCredentials",
    "RemoteError",
    "ToolCancelled",
    "ToolDenied",
    "ToolError",
    "ToolNotFound",
    "ToolTimeout",
]


class BackendError(WakefulError):
    """A backend could not carry out what it was asked. `detail` is what went wrong, without the kind."""

    kind: str = "backend error"

    def __init__(self, detail: str) -> None:
        super().__init__(f"{self.kind}: {detail}")
        self.detail = detail


class AgentNotFound(BackendError):
    """The backend knows no such agent."""

    kind = "agent not found"


class ExecutionFailed(BackendError):
    """The backend could not carry it out, or can't do what was asked for."""

    kind = "execution failed"


class NoCredentials(BackendError):
    """The function that a backend's secret comes from failed. What it raised isn't shown: it may quote that."""

    kind = "no credentials"


class RemoteError(BackendError):
    """What the backend talks to failed."""

    kind = "remote error"


class ToolError(WakefulError):
    """Raise this, or a subclass, in a tool to give the model an error result. `kind` names it there."""

    kind: str = "failed"


class InvalidArguments(ToolError):
    """The arguments don't fit the tool's schema; the message names the path."""

    kind = "invalid_arguments"


class ToolDenied(ToolError):
    """The call isn't allowed."""

    kind = "denied"


class ToolNotFound(ToolError):
    """No tool of that name is offered to the model."""

    kind = "not_found"


class ToolTimeout(ToolError):
    """The tool took longer than it may."""

    kind = "timeout"


class ToolCancelled(ToolError):
    """The call was told to stop."""

    kind = "cancelled"
