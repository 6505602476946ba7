"""Beginning work below a call: children, functions and coroutines, written down before they run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from inspect import iscoroutine
from typing import Any, cast

from msgspec.structs import replace

from ..errors import InvalidArguments, ToolError, UnknownAgent, UsageError
from ..loop import Activation
from ..stores import Commit, InboxItem
from ..tasks import COROUTINE, TaskBook
from ..tools import ChildRequest, SpawnRequest, ToolContext
from ..types.content import ToolCall
from ..types.ids import new_id
from ..types.messages import Message, user_message
from ..types.runs import FUNCTION, Identity, TaskRecord, TaskRef
from ._local import Dispatcher

__all__ = [
    "begin",
    "check_name",
    "child_of",
    "identity_of",
    "keep_here",
    "recorded",
    "resume",
    "seed_of",
    "visible_to",
]


async def recorded(
    dispatch: Dispatcher, parent: Activation, context: ToolContext, place: int
) -> TaskRecord | None:
    """The task that an earlier attempt at the call began here."""
    tasks = [*parent.view.tasks, *await dispatch.env.store.tasks(parent.identity.thread_id)]
    return next((t for t in tasks if t.call_id == context.call_id and t.place == place), None)


async def begin(
    dispatch: Dispatcher, parent: Activation, context: ToolContext, place: int, request: ChildRequest
) -> TaskRecord:
    """Write down that the call has a child, with a durable one's input: one commit under the parent's fence."""
    agent_id = request.agent_id
    _check(parent, context, request)
    remote = dispatch.env.registry.resolve(agent_id).backend is not None
    if remote and request.state:
        raise InvalidArguments("remote agents do not support seeded local state")
    if remote and request.fork:
        raise InvalidArguments("fork_context is only supported for hosted local agents")
    durable = request.durable or request.background
    task = _record(parent, context, place, request, apart=durable or remote)
    await _write(dispatch, parent, task, [_input(parent, context, task, request)] if durable else [])
    return task


def _check(parent: Activation, context: ToolContext, request: ChildRequest) -> None:
    """Refuse to begin work that would be nested too deep, come too late, or have a name that is taken."""
    above, what = context.run, request.agent_id
    if above.depth >= parent.rules.limits.depth:
        raise ToolError(
            f"agent {what} can't be called here: runs are nested {above.depth} deep and the limit is "
            f"{parent.rules.limits.depth}"
        )
    if parent.view.run.cancel is not None or parent.left:
        raise ToolError(f"parent run '{above.run_id}' has already been cancelled")
    check_name(request.name, (*parent.view.tasks, *parent.view.detached))


def _record(
    parent: Activation, context: ToolContext, place: int, request: ChildRequest, *, apart: bool
) -> TaskRecord:
    run_id, above = new_id(), context.run
    prefix = "task" if request.agent_id.startswith(FUNCTION) else "sub-agent"
    return TaskRecord(
        id=run_id,
        thread_id=above.thread_id,
        run_id=None if request.detached else above.run_id,
        name=request.name,
        agent_id=request.agent_id,
        target=run_id,
        target_thread=f"{prefix}-{run_id}" if apart else run_id,
        call_id=context.call_id,
        place=place,
        background=request.background,
        durable=request.durable or request.background,
        created_at=parent.clock.now(),
    )


async def _write(dispatch: Dispatcher, parent: Activation, task: TaskRecord, inbox: list[InboxItem]) -> None:
    commit = Commit(task.thread_id, parent.identity, parent.draft.fence, tasks=[task], inbox=inbox)
    view, where = parent.view, "detached" if task.run_id is None else "tasks"
    # Before it is written: from now on its name is taken.
    setattr(view, where, (*getattr(view, where), task))
    try:
        await dispatch.env.store.commit(commit)
    except BaseException:
        setattr(view, where, tuple([t for t in getattr(view, where) if t is not task]))
        raise
    if task.durable:
        parent.apart = True
        dispatch.wake(task.target_thread)


class InvalidState(ToolError):
    """The task isn't in a state that allows this."""

    kind = "invalid_state"


async def resume(
    dispatch: Dispatcher, parent: Activation, context: ToolContext, task: TaskRecord, prompt: str
) -> TaskRecord:
    """Let a stopped task go on, as a new run on the same thread: what comes of the old one counts no more."""
    if task.status != "cancelled":
        return task
    if task.function is not None:
        raise InvalidState(f"Task '{task.id}' is a function and cannot be resumed; start it again")
    if dispatch.env.registry.resolve(task.agent_id).backend is not None:
        raise InvalidState(f"Run '{task.id}' is remote and cannot be resumed; start a new run with agent_id")
    again = replace(
        task,
        status="running",
        run_id=context.run.run_id,
        target=new_id(),
        call_id=context.call_id,
        epoch=task.epoch + 1,
        background=True,
        durable=True,
        error=None,
        finished_at=None,
    )
    message = user_message(prompt.strip() or "Go on with your task.", at=parent.clock.now())
    request = ChildRequest(task.agent_id, message, background=True)
    await _write(dispatch, parent, again, [_input(parent, context, again, request)])
    return again


_RESERVED = ("parent", "self", "all", "broadcast")


def check_name(name: str | None, running: Iterable[TaskRecord]) -> None:
    """Refuse a task's name that is reserved, or that one of its thread has which still runs."""
    if name in _RESERVED:
        raise InvalidArguments(f"'{name}' is a reserved name")
    if name is not None and any(task.name == name for task in running):
        raise InvalidArguments(f"a running task named '{name}' already exists")


def identity_of(context: ToolContext, task: TaskRecord) -> Identity:
    above = context.run
    if task.run_id is None:
        # It is the thread's, and of no run's tree.
        return Identity(
            task.target,
            task.target_thread,
            task.agent_id,
            task.target,
            None,
            above.thread_id,
            context.call_id.strip() or None,
            "task",
            above.depth + 1,
        )
    return Identity(
        task.target,
        task.target_thread,
        task.agent_id,
        above.root_run_id,
        above.run_id,
        above.thread_id,
        context.call_id.strip() or None,
        "subagent",
        above.depth + 1,
    )


def _input(parent: Activation, context: ToolContext, task: TaskRecord, request: ChildRequest) -> InboxItem:
    return InboxItem(
        id=task.target,
        thread_id=task.target_thread,
        kind="input",
        message=request.message,
        agent_id=task.agent_id,
        principal=parent.view.run.principal,
        run_id=task.target,
        seed=seed_of(parent, request),
        lineage=identity_of(context, task),
        task=_ref(parent, task, request),
        history=visible_to(parent) if request.fork else (),
    )


def _ref(parent: Activation, task: TaskRecord, request: ChildRequest) -> TaskRef:
    return TaskRef(task.id, task.epoch, task.background, True, request.wake, parent.view.run.agent_id)


def seed_of(parent: Activation, request: ChildRequest) -> dict[str, bytes]:
    return {**parent.state.export(), **request.state} if request.fork else request.state


def visible_to(parent: Activation) -> tuple[Message, ...]:
    """What a person has seen of the caller's conversation: without calls that have no result yet."""
    shown = [m for m in parent.history if m.visibility == "all" and m.role != "system"]
    replied = {m.reply.call_id for m in shown if m.reply is not None}
    asked = {call.id for m in shown for call in m.calls}
    kept: list[Message] = []
    for message in shown:
        if message.reply is not None and message.reply.call_id not in asked:
            continue
        open_calls = [call for call in message.calls if call.id not in replied]
        if open_calls:
            parts = [p for p in message.content if not (type(p) is ToolCall and p in open_calls)]
            message = replace(message, content=tuple(parts))
        if message.content:
            kept.append(replace(message, id=new_id(), seq=0))
    return tuple(kept)


# -- functions and coroutines --------------------------------------------------------------------------------


def child_of(dispatch: Dispatcher, book: TaskBook, request: SpawnRequest) -> ChildRequest:
    """The run of an agent that work in the background is; refused if the target is nothing that can be begun."""
    target, message = request.target, request.message
    if isinstance(target, str) and target in dispatch.env.registry.agents:
        if message is None or request.arguments:
            raise InvalidArguments(f"agent {target} takes a prompt, and no arguments: spawn({target!r}, prompt)")
        agent_id = target
    elif iscoroutine(target):
        raise UsageError("a coroutine can be begun in a tool only, with ctx.spawn(...)")
    else:
        packed = book.pack(cast(Any, target), request.arguments)
        if packed is None:
            known = ", ".join(sorted([*dispatch.env.registry.agents, *book.functions]))
            raise UnknownAgent(f"no agent or task {target!r} (known: {known})")
        if message is not None or request.state:
            raise InvalidArguments(f"task {packed[0].removeprefix(FUNCTION)} takes arguments by name only")
        agent_id, message = packed[0], user_message(packed[1], at=dispatch.env.clock.now())
    return ChildRequest(
        agent_id,
        message,
        background=True,
        name=request.name,
        state=request.state,
        detached=request.detached,
        wake=request.wake,
    )


async def keep_here(
    dispatch: Dispatcher,
    book: TaskBook,
    parent: Activation,
    context: ToolContext,
    coroutine: Coroutine[Any, Any, Any],
    request: SpawnRequest,
) -> TaskRecord:
    """Run a coroutine as a run of its own that this process has claimed before anybody knows of it: whoever takes
    that over when the process is gone finds no coroutine, and says so."""
    place = context.next_place()
    begun = False
    try:
        if context.attempt > 1 and (known := await recorded(dispatch, parent, context, place)) is not None:
            return known
        message = user_message(getattr(coroutine, "__name__", "coroutine"), at=parent.clock.now())
        child = ChildRequest(
            COROUTINE,
            message,
            background=True,
            name=request.name,
            detached=request.detached,
            wake=request.wake,
        )
        _check(parent, context, child)
        task = _record(parent, context, place, child, apart=True)
        identity, ref = identity_of(context, task), _ref(parent, task, child)
        act = dispatch.opener.child(parent, identity, ref, message, {}, ())
        await act.flush()
        try:
            await _write(dispatch, parent, task, [])
            book.coroutines[task.target] = (message.text, coroutine)
            begun = True
        finally:
            if not begun:
                act.set_run(cancel="it could not be written down")
            driving = asyncio.get_running_loop().create_task(dispatch.drive(act, task.target_thread))
            dispatch.track(driving)
        return task
    finally:
        if not begun:
            coroutine.close()
