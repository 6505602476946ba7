"""The durable state of a conversation with a remote agent, with which any process can continue it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ...errors import ExecutionFailed

__all__ = ["RemoteState", "Stage", "load_state", "next_message"]

# `intent`: the message may have been sent. `sent`: the remote accepted it, and the task is known. `waiting`: the
# task waits for an answer. `done`: no task runs.
Stage = Literal["intent", "sent", "waiting", "done"]

# The number of known tasks kept, by which a new task is recognized.
_MAX_KNOWN = 64


_Id = Annotated[str, Meta(min_length=1)]


class RemoteState(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The handle of a conversation: the remote's URL and context, the newest message, and its task.

    `asked` is the mark of the question that the task waits or waited with.
    """

    url: str
    context_id: _Id
    run_id: _Id
    message_id: _Id
    stage: Stage
    task_id: _Id | None = None
    earlier: tuple[_Id, ...] = ()
    asked: str = ""
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        if self.task_id is None and self.stage in ("sent", "waiting"):
            raise ValueError(f"no task id in stage {self.stage!r}")

    @property
    def is_active(self) -> bool:
        """Whether the remote may be working on the message."""
        return self.stage in ("intent", "sent")

    @property
    def known_tasks(self) -> tuple[str, ...]:
        """The known tasks of the conversation, the newest last."""
        tasks = self.earlier if self.task_id is None else (*self.earlier, self.task_id)
        return tuple(dict.fromkeys(tasks))[-_MAX_KNOWN:]

    def dump(self) -> dict[str, Any]:
        """The state as JSON data."""
        return msgspec.json.decode(msgspec.json.encode(self))


def load_state(stored: dict[str, Any] | None, agent_id: str) -> RemoteState | None:
    """Decode a stored state; raises `ExecutionFailed` if it can't be read, as a fresh start could repeat work."""
    if stored is None:
        return None
    try:
        return msgspec.convert(stored, RemoteState)
    except msgspec.ValidationError as error:
        raise ExecutionFailed(
            f"the stored state of remote agent '{agent_id}' can't be read ({error}), so the conversation can't "
            "go on: begin a new thread"
        ) from None


def next_message(
    state: RemoteState | None, *, url: str, run_id: str, message_id: str, context_id: str
) -> RemoteState:
    """The state with the intent to send another message, to the waiting task if there is one."""
    if state is None or state.url != url:  # Ids of another server mean nothing here.
        return RemoteState(url, context_id, run_id, message_id, "intent")
    if state.stage != "waiting":  # A finished task accepts no message, but its context does.
        return RemoteState(url, state.context_id, run_id, message_id, "intent", earlier=state.known_tasks)
    return RemoteState(
        url, state.context_id, run_id, message_id, "intent", state.task_id, state.known_tasks, asked=state.asked
    )
