"""Requests for runs, and their results."""

from __future__ import annotations

from typing import Any, Generic

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from ..agents import Registry
from ..errors import NoOutput, RunFailed
from ..stores import Store, refuse_reuse
from ..types.content import Artifact, text_of
from ..types.copies import copy_mutable
from ..types.generics import Output
from ..types.ids import new_id
from ..types.inbox import InboxItem, InputItem, InputPolicy, Request, TaskItem
from ..types.messages import Message
from ..types.runs import (
    PRIORITY,
    EndRequested,
    Failed,
    Identity,
    NaturalEnd,
    Principal,
    RunOptions,
    RunRecord,
    Stopped,
    TaskRef,
    Termination,
    TraceContext,
    Usage,
)
from ..types.tickets import Ticket

__all__ = ["NewRun", "RunResult", "begins_run", "first_item", "item_of", "new_run_of", "output_of", "result_of"]


class RunResult(Struct, Generic[Output], frozen=True, gc=False, kw_only=True):
    """The result of a run so far.

    With status `waiting`, `tickets` are the open questions of the run and of the runs below it, and `tasks` the
    tasks that it waits for. With `done`, `termination` says how it ended, and `tasks` are the runs below it that
    were stopped and haven't ended yet. `usage` is that of the run and of all runs below it, so far. `text` is the
    last answer. A backend adds `artifacts`, `raw` and `status_reason`.
    """

    run_id: str
    thread_id: str
    agent_id: str
    status: str
    text: str
    _output: Any = field(default=UNSET, name="output")
    termination: Termination | None = None
    tickets: tuple[Ticket, ...] = ()
    usage: Usage = Usage()
    steps: int = 0
    tasks: tuple[str, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    raw: Any = None
    status_reason: str = ""

    @property
    def output(self) -> Output:
        """The output of a finished run: a value of the agent's output type, or the text if it has none.

        Raises `RunFailed` if the run failed, and `NoOutput` if it waits, was stopped, cancelled or blocked.
        """
        if self._output is not UNSET:
            return self._output
        if isinstance(self.termination, Failed):
            raise self.failure()
        how = self.error or f"it is {self.status}"
        raise NoOutput(f"run {self.run_id} of {self.agent_id} has no output: {how}; its last answer is in .text")

    @property
    def truncated(self) -> bool:
        """Whether the answer reached the output limit more often than it is continued, and is incomplete."""
        return isinstance(self.termination, NaturalEnd) and self.termination.truncated

    @property
    def error(self) -> str | None:
        """Why the run failed; None if it didn't."""
        match self.termination:
            case None | NaturalEnd() | EndRequested():
                return None
            case Failed() as failed:
                return failed.text
            case Stopped(policy, detail):
                return f"stopped by {policy}: {detail}"
            case other:
                return f"{type(other).__name__.lower()}: {getattr(other, 'reason', '')}"

    def failure(self) -> RunFailed:
        """The error of a failed run, to raise."""
        return RunFailed(f"run {self.run_id} of {self.agent_id} failed: {self.error}", self)

    def raise_for_failure(self) -> RunResult[Output]:
        """Raise `RunFailed` if there is an error, also if the run was stopped, cancelled or blocked."""
        if self.error is not None:
            raise self.failure()
        return self


class NewRun(Struct, frozen=True, gc=False, kw_only=True):
    """A requested run, with a message unless a task's report starts it."""

    thread_id: str
    agent_id: str
    message: Message | None
    run_id: str = field(default_factory=new_id)
    principal: Principal | None = None
    owner: str | None = None
    options: RunOptions | None = None
    seed: dict[str, bytes] = {}
    item_id: str | None = None
    item_revision: int = 0
    request: Request | None = None
    lineage: Identity | None = None
    task: TaskRef | None = None
    history: tuple[Message, ...] = ()
    priority: int = PRIORITY
    at: int | None = None
    trace: TraceContext | None = None


def result_of(
    registry: Registry, run: RunRecord, answer: Message | None, tickets: tuple[Ticket, ...]
) -> RunResult[Any]:
    """The result of a run so far."""
    identity, outcome, end = run.identity, run.outcome, run.backend
    text = text_of(answer.content) if answer is not None else ""
    result = RunResult(
        run_id=identity.run_id,
        thread_id=identity.thread_id,
        agent_id=run.agent_id,
        status=run.status,
        text=text,
        _output=output_of(registry, run, text),
        termination=outcome.termination if outcome is not None else None,
        tickets=copy_mutable(tickets) if tickets else (),
        usage=run.usage + run.descendants,
        steps=run.steps,
        tasks=run.stopped if outcome is not None else () if run.waiting is None else run.waiting.tasks,
    )
    if end is None:
        return result
    return replace(
        result, artifacts=copy_mutable(end.artifacts), raw=copy_mutable(end.raw), status_reason=end.reason
    )


def output_of(registry: Registry, run: RunRecord, text: str) -> Any:
    """The output of a finished run: a value of its agent's output type, or the text; UNSET if it has none."""
    outcome = run.outcome
    if outcome is None:
        return UNSET
    if outcome.output is not UNSET:
        shape = registry.resolve(run.agent_id).shape
        return UNSET if shape is None else shape.decode(bytes(outcome.output))
    has_output = isinstance(outcome.termination, NaturalEnd | EndRequested)
    return text if has_output and registry.outputs.get(run.agent_id, str) is str else UNSET


def item_of(new: NewRun, policy: InputPolicy) -> InputItem:
    """The inbox item of a queued run."""
    if new.message is None:
        raise ValueError(f"run {new.run_id} has no message to put into an inbox")
    return InputItem(
        id=new.run_id if new.request is None else new.request.id,
        thread_id=new.thread_id,
        message=new.message,
        policy="steer" if policy == "steer" else "queue",
        agent_id=new.agent_id,
        principal=new.principal,
        owner=new.owner,
        options=new.options,
        run_id=new.run_id,
        seed=new.seed,
        history=new.history,
        priority=new.priority,
        at=new.at,
        trace=new.trace,
        digest="" if new.request is None else new.request.digest,
    )


def begins_run(item: InboxItem) -> bool:
    """Whether an item starts a run on an idle thread."""
    if isinstance(item, TaskItem):
        return item.starts_run and item.agent_id is not None
    return isinstance(item, InputItem)


def new_run_of(item: InboxItem) -> NewRun:
    """The run that an inbox item starts: for its input, or for a task's report on an idle thread."""
    if isinstance(item, TaskItem) and item.agent_id is not None:
        run_id = new_id()
        lineage = Identity(run_id, item.thread_id, item.agent_id, run_id, origin="task")
        # The run takes the item from the inbox before its first step.
        return NewRun(
            thread_id=item.thread_id,
            agent_id=item.agent_id,
            message=None,
            run_id=run_id,
            principal=item.principal,
            owner=item.owner,
            lineage=lineage,
            trace=item.trace,
        )
    if not isinstance(item, InputItem) or item.agent_id is None:
        raise ValueError(f"inbox item {item.id} has no message or agent")
    return NewRun(
        thread_id=item.thread_id,
        agent_id=item.agent_id,
        message=item.message,
        run_id=item.run_id or new_id(),
        principal=item.principal,
        owner=item.owner,
        options=item.options,
        seed=item.seed,
        item_id=item.id,
        item_revision=item.revision,
        lineage=item.lineage,
        task=item.task,
        history=item.history,
        priority=item.priority,
        trace=item.trace,
    )


async def first_item(store: Store, request: Request | None) -> InboxItem | None:
    """The item of the request that was made first with this id; None if there is none.

    Raises `RequestReused` if that one asked for something else.
    """
    found = None if request is None else await store.item(request.id)
    if request is None or found is None:
        return None
    if error := refuse_reuse(request.id, found.digest, request.digest):
        raise error
    return found
