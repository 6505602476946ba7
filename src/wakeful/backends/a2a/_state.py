"""What is kept of a conversation with a remote agent, so that any process can go on with it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ...errors import ExecutionFailed

__all__ = ["RemoteState", "Stage", "load_state", "next_message"]

# `intent`: the message may have been sent. `sent`: the remote took it, and the task is known. `waiting`: the task
# wants an answer. `done`: nothing is under way.
Stage = Literal["intent", "sent", "waiting", "done"]

# So many tasks of a conversation are remembered, to tell a new one by.
_REMEMBERED = 64


_Id = Annotated[str, Meta(min_length=1)]


class RemoteState(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The handle: which conversation at which agent, the newest message that we meant to send, and its task."""

    url: str
    context_id: _Id
    run_id: _Id
    message_id: _Id
    stage: Stage
    task_id: _Id | None = None
    earlier: tuple[_Id, ...] = ()
    # The mark of the question that the task waits, or waited, with.
    asked: str = ""
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        if self.task_id is None and self.stage in ("sent", "waiting"):
            raise ValueError(f"no task id, though the stage is {self.stage!r}")

    @property
    def under_way(self) -> bool:
        """Whether the remote may be at work."""
        return self.stage in ("intent", "sent")

    @property
    def known(self) -> tuple[str, ...]:
        """All tasks of the conversation that we know."""
        tasks = self.earlier if self.task_id is None else (*self.earlier, self.task_id)
        return tuple(dict.fromkeys(tasks))[-_REMEMBERED:]

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        return msgspec.json.decode(msgspec.json.encode(self))


def load_state(stored: dict[str, Any] | None, agent_id: str) -> RemoteState | None:
    """The stored state. One that can't be read is an error: beginning afresh could do the work twice."""
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
    """The intent to send another message into the conversation, to the task that waits for one if there is one."""
    if state is None or state.url != url:  # A task's id means nothing to another server.
        return RemoteState(url, context_id, run_id, message_id, "intent")
    if state.stage != "waiting":  # A task that is over takes no more messages; its context does.
        return RemoteState(url, state.context_id, run_id, message_id, "intent", earlier=state.known)
    return RemoteState(
        url, state.context_id, run_id, message_id, "intent", state.task_id, state.known, asked=state.asked
    )
