"""Repeated tool calls: the children that they start must be those that they started before.

A changed prompt is still the same child: it may contain the time, or have been reworded while the run was parked.
The prompt of another child of the call is not.
"""

from __future__ import annotations

from ..errors import ToolError
from ..stores import Store
from ..tools import CallContext, ChildRequest
from ..types.events import MessageAdded, RunStart
from ..types.messages import Message
from ..types.runs import FUNCTION, TaskRecord

__all__ = ["check_agent", "check_same"]


async def check_same(store: Store, context: CallContext, task: TaskRecord, request: ChildRequest) -> None:
    """Raise unless a call starts the child that it started before at the same ordinal."""
    check_agent(context, task, request.agent_id)
    if context.is_delegation:
        return  # Its prompt is in the call's arguments, which are stored.
    content = request.message.content
    given = await _given(store, task)
    if given is None or given.content == content:
        return
    for other in await store.tasks(task.thread_id):
        if other.call_id != task.call_id or other.agent_id != task.agent_id or other.id == task.id:
            continue
        theirs = await _given(store, other)
        if theirs is not None and theirs.content == content:
            now = f"gives {_named(task.agent_id)} {_shown(request.message.text)}"
            raise _changed(context, task, f"{now}, which it gave it in place {other.place} before")


def check_agent(context: CallContext, task: TaskRecord, agent_id: str) -> None:
    """Raise unless a call starts the agent or function that it started before at the same ordinal."""
    if agent_id != task.agent_id:
        raise _changed(context, task, f"starts {_named(agent_id)}, and started {_named(task.agent_id)} before")


async def _given(store: Store, task: TaskRecord) -> Message | None:
    """The first message of a task; None if its log doesn't have it any more."""
    after, has_started = 0, False
    while page := await store.events(task.target_thread, after=after, limit=100):
        for event in page:
            if has_started:
                return event.message if isinstance(event, MessageAdded) else None
            has_started = isinstance(event, RunStart) and event.run.run_id == task.id
        after = page[-1].seq
    return None


def _changed(context: CallContext, task: TaskRecord, what: str) -> ToolError:
    return ToolError(
        f"{context.name} runs again, and in place {task.place} of what it waits for it {what}: code between waits "
        "must be repeatable, since it finds by their order what it began; let it depend on the arguments and on "
        "what it was answered, not on the time or on chance"
    )


def _named(agent_id: str) -> str:
    return f"agent {agent_id!r}" if not agent_id.startswith(FUNCTION) else f"task {agent_id[len(FUNCTION) :]!r}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
