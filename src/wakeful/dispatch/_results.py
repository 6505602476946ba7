"""What is asked of a run, and what it came to."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from ..agents import Registry
from ..errors import RunFailed
from ..stores import InboxItem, InputPolicy
from ..types.content import Artifact, text_of
from ..types.copies import own
from ..types.ids import new_id
from ..types.messages import Message
from ..types.runs import (
    PRIORITY,
    BehaviourRequested,
    Failed,
    Identity,
    NaturalEnd,
    Principal,
    RunOptions,
    RunRecord,
    Stopped,
    TaskRef,
    Termination,
    Usage,
)
from ..types.tickets import Ticket

__all__ = ["NewRun", "RunResult", "begins_run", "item_of", "new_run_of", "output_of", "result_of"]


class RunResult(Struct, frozen=True, gc=False, kw_only=True):
    """What a run came to so far. With status `waiting`, `tickets` are the questions that it and the runs below it
    wait on, and `tasks` what it waits for itself; with `done`, `termination` says how it ended. `text` is the last
    answer, `output` the typed one. Of an agent with a backend, `artifacts`, `raw` and `status_reason` are what the
    backend gave besides."""

    run_id: str
    thread_id: str
    agent_id: str
    status: str
    text: str
    output: Any = None
    termination: Termination | None = None
    tickets: tuple[Ticket, ...] = ()
    usage: Usage = Usage()
    steps: int = 0
    tasks: tuple[str, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    raw: Any = None
    status_reason: str = ""

    @property
    def truncated(self) -> bool:
        """Whether the answer reached the output limit once more often than it is gone on with: it isn't whole."""
        return isinstance(self.termination, NaturalEnd) and self.termination.truncated

    @property
    def error(self) -> str | None:
        """Why the run is done without having come to its end, if that is so."""
        match self.termination:
            case None | NaturalEnd() | BehaviourRequested():
                return None
            case Failed() as failed:
                return failed.text
            case Stopped(policy, detail):
                return f"stopped by {policy}: {detail}"
            case other:
                return f"{type(other).__name__.lower()}: {getattr(other, 'reason', '')}"

    def raise_for_failure(self) -> RunResult:
        """Raise `RunFailed` if there is an error; else return the result itself."""
        if self.error is not None:
            raise RunFailed(f"run {self.run_id} of {self.agent_id} failed: {self.error}")
        return self


class NewRun(Struct, frozen=True, gc=False, kw_only=True):
    """A run that somebody asks for, with a message or, where a task has something to say, without."""

    thread_id: str
    agent_id: str
    message: Message | None
    run_id: str = field(default_factory=new_id)
    principal: Principal | None = None
    options: RunOptions | None = None
    seed: dict[str, bytes] = {}
    item_id: str | None = None
    item_revision: int = 0
    request_id: str | None = None
    lineage: Identity | None = None
    task: TaskRef | None = None
    history: tuple[Message, ...] = ()
    priority: int = PRIORITY
    at: int | None = None


def result_of(
    registry: Registry, run: RunRecord, answer: Message | None, tickets: tuple[Ticket, ...]
) -> RunResult:
    """What a run came to so far."""
    identity, outcome, end = run.identity, run.outcome, run.backend
    text = text_of(answer.content) if answer is not None else ""
    result = RunResult(
        run_id=identity.run_id,
        thread_id=identity.thread_id,
        agent_id=run.agent_id,
        status=run.status,
        text=text,
        output=output_of(registry, run, text),
        termination=outcome.termination if outcome is not None else None,
        tickets=own(tickets) if tickets else (),
        usage=run.usage + run.descendants,
        steps=run.steps,
        tasks=() if run.waiting is None else run.waiting.tasks,
    )
    if end is None:
        return result
    return replace(result, artifacts=own(end.artifacts), raw=own(end.raw), status_reason=end.reason)


def output_of(registry: Registry, run: RunRecord, text: str) -> Any:
    """The output of a run that is done and answered with a text, if its agent declares one."""
    outcome = run.outcome
    if outcome is None:
        return None
    if outcome.output is UNSET:
        said = run.agent_id in registry.texts and isinstance(outcome.termination, NaturalEnd)
        return text if said else None
    shape = registry.resolve(run.agent_id).shape
    return None if shape is None else shape.decode(bytes(outcome.output))


def item_of(new: NewRun, policy: InputPolicy) -> InboxItem:
    """The input as it waits in its thread's inbox."""
    return InboxItem(
        id=new.request_id or new.run_id,
        thread_id=new.thread_id,
        kind="input",
        message=new.message,
        policy="steer" if policy == "steer" else "queue",
        agent_id=new.agent_id,
        principal=new.principal,
        options=new.options,
        run_id=new.run_id,
        seed=new.seed,
        priority=new.priority,
        at=new.at,
    )


def begins_run(item: InboxItem) -> bool:
    """Whether an item begins a run on a thread that has none."""
    if item.kind == "task":
        return item.policy == "steer" and item.agent_id is not None
    return item.kind == "input" and item.message is not None


def new_run_of(item: InboxItem) -> NewRun:
    """The run that an input in the inbox asks for, or what a task says that an idle thread hears of at once."""
    if item.kind == "task" and item.agent_id is not None:
        run_id = new_id()
        lineage = Identity(run_id, item.thread_id, item.agent_id, run_id, origin="task")
        # The item stays where it is: the run takes it in like any other, before its first step.
        return NewRun(
            thread_id=item.thread_id, agent_id=item.agent_id, message=None, run_id=run_id, lineage=lineage
        )
    if item.message is None or item.agent_id is None:
        raise ValueError(f"inbox item {item.id} has no message or agent")
    return NewRun(
        thread_id=item.thread_id,
        agent_id=item.agent_id,
        message=item.message,
        run_id=item.run_id or new_id(),
        principal=item.principal,
        options=item.options,
        seed=item.seed,
        item_id=item.id,
        item_revision=item.revision,
        lineage=item.lineage,
        task=item.task,
        history=item.history,
        priority=item.priority,
    )
