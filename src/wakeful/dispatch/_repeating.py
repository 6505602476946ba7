"""Tools that run again: what they begin must be what they began before, or they would get another's result.

A prompt that says something else is no other child: it may have the time in it, or have been reworded while the
run was parked. One that another child of the call was given is.
"""

from __future__ import annotations

from ..errors import ToolError
from ..stores import Store
from ..tools import ChildRequest, ToolContext
from ..types.events import MessageAdded, RunStart
from ..types.messages import Message
from ..types.runs import FUNCTION, TaskRecord

__all__ = ["check_agent", "check_same"]


async def check_same(store: Store, context: ToolContext, task: TaskRecord, request: ChildRequest) -> None:
    """Refuse a call's child that isn't the one which the call began before in the same place."""
    check_agent(context, task, request.agent_id)
    if context.one_child:
        return  # What it asks is in the call's arguments, and those are kept.
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


def check_agent(context: ToolContext, task: TaskRecord, agent_id: str) -> None:
    """Refuse another agent, or another function, than the call began before in the same place."""
    if agent_id != task.agent_id:
        raise _changed(context, task, f"begins {_named(agent_id)}, and began {_named(task.agent_id)} before")


async def _given(store: Store, task: TaskRecord) -> Message | None:
    """What a task was begun with; None if that isn't in its log, or not there any more."""
    after, begun = 0, False
    while page := await store.events(task.target_thread, after=after, limit=100):
        for event in page:
            if begun:
                return event.message if isinstance(event, MessageAdded) else None
            begun = isinstance(event, RunStart) and event.run.run_id == task.id
        after = page[-1].seq
    return None


def _changed(context: ToolContext, task: TaskRecord, what: str) -> ToolError:
    return ToolError(
        f"{context.name} runs again, and in place {task.place} of what it waits for it {what}: code between waits "
        "must be repeatable, since it finds by their order what it began; let it depend on the arguments and on "
        "what it was answered, not on the time or on chance"
    )


def _named(agent_id: str) -> str:
    return f"agent {agent_id!r}" if not agent_id.startswith(FUNCTION) else f"task {agent_id[len(FUNCTION) :]!r}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
