"""Statuses of backend results, and the run status and reason that each stands for."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..types.runs import Cancelled, Failed, NaturalEnd, RunStatus, Termination

__all__ = [
    "BackendStatus",
    "CancelledStatus",
    "Completed",
    "FailedStatus",
    "Suspended",
    "TimedOut",
    "WaitingAuth",
    "WaitingInput",
    "durable_reason",
    "durable_status",
    "label",
    "natural_termination",
    "wait_reason",
]


class Completed(Struct, frozen=True, tag="completed"):
    """The backend completed; the run ends with the result's termination."""

    def __str__(self) -> str:
        return "completed"


class WaitingInput(Struct, frozen=True, omit_defaults=True, tag="waiting_input"):
    """The backend asks for input."""

    message: str | None = None

    def __str__(self) -> str:
        return _join("waiting_input", self.message)


class WaitingAuth(Struct, frozen=True, omit_defaults=True, tag="waiting_auth"):
    """The backend asks for authorization."""

    message: str | None = None

    def __str__(self) -> str:
        return _join("waiting_auth", self.message)


class Suspended(Struct, frozen=True, omit_defaults=True, tag="suspended"):
    """The backend waits for another kind of decision."""

    message: str | None = None

    def __str__(self) -> str:
        return _join("suspended", self.message)


class FailedStatus(Struct, frozen=True, tag="failed"):
    """The backend failed."""

    message: str

    def __str__(self) -> str:
        return f"failed: {self.message}"


class CancelledStatus(Struct, frozen=True, tag="cancelled"):
    """The backend's work was cancelled."""

    def __str__(self) -> str:
        return "cancelled"


class TimedOut(Struct, frozen=True, tag="timeout"):
    """The backend took longer than its timeout."""

    def __str__(self) -> str:
        return "timeout"


BackendStatus = Completed | WaitingInput | WaitingAuth | Suspended | FailedStatus | CancelledStatus | TimedOut


def _join(word: str, message: str | None) -> str:
    return word if message is None else f"{word}: {message}"


def natural_termination(status: BackendStatus) -> Termination | None:
    """The default termination for a status; None for a waiting run."""
    match status:
        case Completed():
            return NaturalEnd()
        case FailedStatus(message):
            return Failed("ExecutionFailed", message)
        case CancelledStatus():
            return Cancelled()
        case TimedOut():
            return Failed("TimedOut", "timeout")
        case _:
            return None


def durable_status(status: BackendStatus, termination: Termination | None) -> RunStatus:
    """The run status for a result; the backend status wins over the termination."""
    match status:
        case WaitingInput() | WaitingAuth() | Suspended():
            return "waiting"
        case Completed():
            return "waiting" if termination is None else "done"
        case _:
            return "done"


_REASONS: dict[type, str] = {
    WaitingInput: "input_required",
    WaitingAuth: "auth_required",
    Suspended: "suspended",
    TimedOut: "timeout",
    FailedStatus: "error",
    CancelledStatus: "cancelled",
}


def durable_reason(status: BackendStatus, termination: Termination | None) -> str:
    """The reason of the run status."""
    if (reason := _REASONS.get(type(status))) is not None:
        return reason
    return "suspended" if termination is None else str(termination.__struct_config__.tag)


def label(status: BackendStatus, termination: Termination | None) -> str:
    """The status as results show it: the backend's own, or the run status if it completed."""
    if isinstance(status, Completed):
        return durable_status(status, termination)
    return str(status.__struct_config__.tag)


WaitFor = Literal[
    "user_input", "tool_permission", "awaiting_tasks", "rate_limit", "manual_pause", "external_event"
]

_WAITS: dict[str, WaitFor] = {
    "input_required": "user_input",
    "user_input_required": "user_input",
    "auth_required": "tool_permission",
    "suspended": "tool_permission",
    "awaiting_tasks": "awaiting_tasks",
    "rate_limit": "rate_limit",
    "manual_pause": "manual_pause",
}


def wait_reason(reason: str | None) -> WaitFor:
    """The kind of wait for a backend's status reason."""
    return _WAITS.get(reason or "", "external_event")
