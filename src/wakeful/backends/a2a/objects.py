"""A2A objects as plain data."""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import UNSET, Struct, UnsetType

__all__ = [
    "DEDUPE_EXTENSION",
    "INTERRUPTED",
    "TERMINAL",
    "ArtifactUpdate",
    "Event",
    "RemoteArtifact",
    "RemoteMessage",
    "RemotePart",
    "RemoteTask",
    "StatusUpdate",
    "TaskState",
    "TaskStatus",
    "with_whole_numbers",
]

# A server with this extension processes a message id once, however often it is sent.
DEDUPE_EXTENSION = "urn:wakeful:a2a:message-id-dedupe"

TaskState = Literal[
    "TASK_STATE_UNSPECIFIED",
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELED",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
    "TASK_STATE_AUTH_REQUIRED",
]


def with_whole_numbers(value: Any) -> Any:
    """Turn integral floats in JSON back into ints: protobuf's JSON has only floats."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {key: with_whole_numbers(each) for key, each in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [with_whole_numbers(each) for each in cast(list[Any], value)]
    return value


class RemotePart(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One part of a message or an artifact: text, bytes (as Base64), a URL, or JSON."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any | UnsetType = UNSET
    filename: str | None = None
    media_type: str | None = None
    metadata: dict[str, Any] = {}


class RemoteMessage(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One message of the conversation."""

    message_id: str = ""
    role: Literal["ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"] = "ROLE_UNSPECIFIED"
    parts: tuple[RemotePart, ...] = ()
    context_id: str = ""
    task_id: str = ""
    metadata: dict[str, Any] = {}


class TaskStatus(Struct, frozen=True, rename="camel"):
    """The state of a task, with its message."""

    state: TaskState = "TASK_STATE_UNSPECIFIED"
    message: RemoteMessage | None = None
    timestamp: str = ""

    @property
    def mark(self) -> str:
        """A mark that differs between two statuses of the same state."""
        return f"{self.timestamp} {'' if self.message is None else self.message.message_id}".strip()


class RemoteArtifact(Struct, frozen=True, rename="camel"):
    """An artifact of a task."""

    artifact_id: str = ""
    name: str | None = None
    parts: tuple[RemotePart, ...] = ()


class RemoteTask(Struct, frozen=True, rename="camel"):
    """A snapshot of a task."""

    id: str = ""
    context_id: str = ""
    status: TaskStatus = TaskStatus()
    artifacts: tuple[RemoteArtifact, ...] = ()
    history: tuple[RemoteMessage, ...] = ()
    metadata: dict[str, Any] = {}


class StatusUpdate(Struct, frozen=True, rename="camel"):
    """A change of a task's status."""

    task_id: str = ""
    context_id: str = ""
    status: TaskStatus = TaskStatus()


class ArtifactUpdate(Struct, frozen=True, rename="camel"):
    """A new artifact of a task, or more of one."""

    artifact: RemoteArtifact
    task_id: str = ""
    context_id: str = ""
    append: bool = False


Event = RemoteTask | RemoteMessage | StatusUpdate | ArtifactUpdate

TERMINAL: frozenset[TaskState] = frozenset(
    {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"}
)
INTERRUPTED: frozenset[TaskState] = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})
