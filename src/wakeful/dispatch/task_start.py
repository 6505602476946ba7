"""Starting work below a call: children, functions and coroutines, committed before they run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from inspect import iscoroutine
from typing import Any, cast

from msgspec.structs import replace

from ..errors import InvalidArguments, ToolError, UnknownAgent, UsageError
from ..errors.arguments import KEYWORD_ONLY, keywords_of, unknown_arguments
from ..loop import Activation, drive, flush
from ..stores import Commit
from ..tasks import COROUTINE, TaskRegistry
from ..tools import CallContext, ChildRequest, SpawnRequest
from ..types.content import ToolCall
from ..types.ids import new_id
from ..types.inbox import InboxItem, InputItem
from ..types.messages import Message, Producer, parse_input, user_message
from ..types.runs import FUNCTION, Identity, TaskRecord, TaskRef
from .dispatcher import Dispatcher
from .remote_tasks import InvalidState, backend_of_task, is_remote, thread_for
from .repeats import check_agent

__all__ = [
    "check_name",
    "child_of",
    "find_task_of_call",
    "identity_of",
    "item_of_task",
    "new_task",
    "open_task",
    "resume",
    "run_coroutine",
    "seed_of",
    "start_child",
    "visible_to",
]


def open_task(parent: Activation, context: CallContext, place: int) -> TaskRecord | None:
    """The open task that this call started at an ordinal, in this attempt or an earlier one."""
    view = parent.view
    return _of_call((*view.tasks, *view.detached) if view.detached else view.tasks, context.call_id, place)


async def find_task_of_call(
    dispatch: Dispatcher, parent: Activation, context: CallContext, place: int
) -> TaskRecord | None:
    """The same, finished tasks included."""
    found = open_task(parent, context, place)
    if found is not None or context.attempt == 1:
        return found
    return _of_call(await dispatch.env.store.tasks(parent.identity.thread_id), context.call_id, place)


def _of_call(tasks: Iterable[TaskRecord], call_id: str, place: int) -> TaskRecord | None:
    for task in tasks:
        if task.call_id == call_id and task.place == place:
            return task
    return None


async def start_child(
    dispatch: Dispatcher, parent: Activation, context: CallContext, place: int, request: ChildRequest
) -> TaskRecord:
    """Commit a new child of a call, with the input of a durable one, under the parent's fence."""
    task = new_task(dispatch, parent, context.call_id, place, request)
    await _write(dispatch, parent, task, [item_of_task(parent, task, request)] if task.durable else [])
    return task


def new_task(
    dispatch: Dispatcher, parent: Activation, call_id: str, place: int, request: ChildRequest
) -> TaskRecord:
    """The record of a call's new child; raises if the child may not start."""
    _check(parent, request)
    remote = is_remote(dispatch.env.registry, request.agent_id)
    if remote and request.state:
        raise InvalidArguments("remote agents do not support seeded local state")
    if remote and request.fork:
        raise InvalidArguments("fork_context is only supported for hosted local agents")
    if request.name is not None:
        _check_name(parent, request)
    return _record(parent, call_id, place, request, remote=remote)


def _check(parent: Activation, request: ChildRequest) -> None:
    """Raise if the child would be nested too deep, or its parent was cancelled."""
    above, what = parent.identity, request.agent_id
    if above.depth >= parent.rules.limits.depth:
        raise ToolError(
            f"agent {what} can't be called here: runs are nested {above.depth} deep and the limit is "
            f"{parent.rules.limits.depth}"
        )
    if parent.view.run.cancel is not None or parent.left:
        raise ToolError(f"parent run '{above.run_id}' has already been cancelled")


def _check_name(parent: Activation, request: ChildRequest) -> None:
    check_name(request.name, (*parent.view.tasks, *parent.view.detached))


def _record(
    parent: Activation, call_id: str, place: int, request: ChildRequest, *, remote: bool = False
) -> TaskRecord:
    run_id, above, durable = new_id(), parent.identity, request.durable or request.background
    thread_id = run_id
    if durable or remote:
        thread_id = f"task-{run_id}" if request.agent_id.startswith(FUNCTION) else thread_for(run_id)
    return TaskRecord(
        id=run_id,
        thread_id=above.thread_id,
        run_id=None if request.detached else above.run_id,
        name=request.name,
        agent_id=request.agent_id,
        target=run_id,
        target_thread=thread_id,
        call_id=call_id,
        place=place,
        background=request.background,
        durable=durable,
        remote=remote,
        created_at=parent.clock.now(),
    )


async def _write(dispatch: Dispatcher, parent: Activation, task: TaskRecord, inbox: list[InboxItem]) -> None:
    commit = Commit(task.thread_id, parent.identity, parent.draft.fence, tasks=[task], inbox=inbox)
    view, where = parent.view, "detached" if task.run_id is None else "tasks"
    # Before the commit, so that its name is taken from now on.
    setattr(view, where, (*getattr(view, where), task))
    try:
        await dispatch.env.store.commit(commit)
    except BaseException:
        setattr(view, where, tuple([t for t in getattr(view, where) if t is not task]))
        raise
    if task.durable:
        parent.view.tree.apart = True
        parent.set_run(apart=True)
        dispatch.wake(task.target_thread, task.agent_id)


async def resume(
    dispatch: Dispatcher, parent: Activation, context: CallContext, task: TaskRecord, prompt: str
) -> TaskRecord:
    """Continue a cancelled task as a new run on its thread; reports of the old epoch are ignored."""
    if task.status != "cancelled":
        return task
    if task.function is not None:
        raise InvalidState(f"Task '{task.id}' is a function and cannot be resumed; start it again")
    if backend_of_task(dispatch.env.registry, task) is not None:
        raise InvalidState(f"Run '{task.id}' is remote and cannot be resumed; start a new run with agent_id")
    content = parse_input(prompt.strip() or "Continue with your task.")
    message = user_message(content, at=parent.clock.now())
    request = ChildRequest(task.agent_id, message, background=True, name=task.name)
    _check(parent, request)
    _check_name(parent, request)
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
    await _write(dispatch, parent, again, [item_of_task(parent, again, request)])
    return again


_RESERVED = ("parent", "self", "all", "broadcast")


def check_name(name: str | None, running: Iterable[TaskRecord]) -> None:
    """Raise if a task's name is reserved, or used by a running task of its thread."""
    if name in _RESERVED:
        raise InvalidArguments(f"'{name}' is a reserved name")
    if name is not None and any(task.name == name for task in running):
        raise InvalidArguments(f"a running task named '{name}' already exists")


def identity_of(parent: Activation, task: TaskRecord) -> Identity:
    """The identity of a task's run."""
    above, call_id = parent.identity, (task.call_id or "").strip() or None
    if task.run_id is None:
        # A detached task belongs to the thread and to no run's tree.
        return Identity(
            task.target,
            task.target_thread,
            task.agent_id,
            task.target,
            None,
            above.thread_id,
            call_id,
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
        call_id,
        "subagent",
        above.depth + 1,
    )


def item_of_task(parent: Activation, task: TaskRecord, request: ChildRequest) -> InboxItem:
    """The inbox item that starts a task's run."""
    tracer = parent.env.tracer
    return InputItem(
        id=task.target,
        thread_id=task.target_thread,
        message=_after_hops(request.message, parent.view.run.hops),
        agent_id=task.agent_id,
        principal=parent.view.run.principal,
        owner=parent.view.run.owner,
        run_id=task.target,
        seed=seed_of(parent, request),
        lineage=identity_of(parent, task),
        task=_ref(parent, task, request),
        history=visible_to(parent) if request.fork else (),
        trace=None if tracer is None else tracer.capture(detached=task.background),
    )


def _ref(parent: Activation, task: TaskRecord, request: ChildRequest) -> TaskRef:
    return TaskRef(
        task.id, task.epoch, task.background, not task.background, request.wake, parent.view.run.agent_id
    )


def _after_hops(message: Message, hops: int) -> Message:
    """Count a child's input as as many hops as its parent's input."""
    return replace(message, producer=Producer(hops=hops)) if hops else message


def seed_of(parent: Activation, request: ChildRequest) -> dict[str, bytes]:
    """The initial state of a child."""
    if request.fork:
        return {**parent.state.export_encoded(), **request.state, **parent.state.export_inherited()}
    return {**request.state, **parent.state.export_inherited()}


def visible_to(parent: Activation) -> tuple[Message, ...]:
    """The caller's visible conversation, or its summary, without calls that have no result yet."""
    shown = [m for m in parent.history if (m.visibility == "all" and m.role != "system") or m.covers is not None]
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
            kept.append(replace(message, id=new_id(), seq=0, covers=None))
    return tuple(kept)


# -- functions and coroutines --------------------------------------------------------------------------------


def child_of(
    dispatch: Dispatcher, task_registry: TaskRegistry, request: SpawnRequest, asked: Callable[..., Any]
) -> ChildRequest:
    """The child request of a spawned agent or function; raises if the target or its arguments don't fit."""
    target, message = request.target, request.message
    if isinstance(target, str) and target in dispatch.env.registry.agents:
        if message is None or request.arguments:
            # Arguments for a function arrive here, and so do misspelled options.
            unknown = unknown_arguments(asked.__name__, request.arguments, keywords_of(asked, KEYWORD_ONLY))
            wrong = f"agent {target} takes a prompt, and no arguments: spawn({target!r}, prompt)"
            raise InvalidArguments("; ".join([wrong, *unknown]))
        agent_id = target
    elif iscoroutine(target):
        raise UsageError("a coroutine can be started in a tool only, with ctx.spawn(...)")
    else:
        packed = task_registry.pack(cast(Any, target), request.arguments)
        if packed is None:
            known = ", ".join(sorted([*dispatch.env.registry.agents, *task_registry.functions]))
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


async def run_coroutine(
    dispatch: Dispatcher,
    task_registry: TaskRegistry,
    parent: Activation,
    context: CallContext,
    coroutine: Coroutine[Any, Any, Any],
    request: SpawnRequest,
) -> TaskRecord:
    """Run a coroutine as a run of its own, claimed by this process from its first commit.

    A process that takes the run over finds no coroutine and reports it as lost.
    """
    place = context.next_place()
    is_committed = False
    try:
        if (known := await find_task_of_call(dispatch, parent, context, place)) is not None:
            check_agent(context, known, COROUTINE)
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
        _check(parent, child)
        _check_name(parent, child)
        task = _record(parent, context.call_id, place, child)
        identity, ref = identity_of(parent, task), _ref(parent, task, child)
        act = dispatch.activations.child(parent, identity, ref, message, {}, ())
        await flush(act)
        try:
            await _write(dispatch, parent, task, [])
            task_registry.add_coroutine(task.target, message.text, coroutine)
            is_committed = True
        finally:
            if not is_committed:
                act.set_run(cancel="its task could not be committed")
            driving = asyncio.get_running_loop().create_task(drive(act, dispatch))
            dispatch.track(driving)
        return task
    finally:
        if not is_committed:
            coroutine.close()
