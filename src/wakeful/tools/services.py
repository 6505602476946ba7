"""The services behind a tool's context, which layers above provide, and the requests it passes to them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol

from ..state import AnyKey, Command, Snapshot
from ..types.base import Data
from ..types.events import LiveEvent
from ..types.messages import Message
from ..types.records import MemoryNote
from ..types.runs import TaskRecord, TaskRef, TaskWake
from .call import CallContext
from .mail import Mail

__all__ = ["ChildRequest", "ChildResult", "Memories", "Services", "SpawnRequest", "Spawnable"]

ChildStatus = Literal["running", "completed", "failed", "cancelled"]


class ChildRequest(Data):
    """A child agent to run for a call. `state` is its initial state: JSON by key name."""

    agent_id: str
    message: Message
    durable: bool = False
    background: bool = False
    name: str | None = None
    fork: bool = False
    state: dict[str, bytes] = {}
    detached: bool = False
    wake: TaskWake = "inbox"


Spawnable = str | Callable[..., Any] | Coroutine[Any, Any, Any]


class SpawnRequest(Data):
    """A background task to start: an agent with a prompt, a function with arguments, or a coroutine."""

    target: Spawnable
    message: Message | None = None
    arguments: Mapping[str, Any] = {}
    name: str | None = None
    state: dict[str, bytes] = {}
    detached: bool = False
    wake: TaskWake = "inbox"


class ChildResult(Data):
    """The result of a child agent's run.

    `output` is its typed output if the agent declares one, `state` its final state. With the status `running` it
    works in the background as the task `task_id`. `error_kind` is `remote_error` if a remote agent failed.
    """

    run_id: str
    agent_id: str
    status: ChildStatus
    text: str
    steps: int
    error: str | None = None
    output: Any = None
    state: Snapshot | None = None
    task_id: str = ""
    error_kind: str = "failed"


class Memories(Protocol):
    """The long-term memories that a run reads and writes. Ids begin with `memory_prefix` of their owner."""

    async def get(self, note_id: str) -> MemoryNote | None:
        """A note; None if there is none."""
        ...

    async def list(self, prefix: str, limit: int) -> Sequence[MemoryNote]:
        """The newest notes of an owner."""
        ...

    async def find(self, prefix: str, query: str, limit: int) -> Sequence[MemoryNote]:
        """The notes of an owner with words of the query, the best match first."""
        ...

    async def write(self, put: MemoryNote | None = None, removed: MemoryNote | None = None) -> None:
        """Put or remove a note under the run's fence; raises `Conflict` by its revision."""
        ...


class Services(Protocol):
    """The functions of the layers above that a tool's context needs."""

    def publish(self, event: LiveEvent) -> None:
        """Publish a live event; safe from any thread."""
        ...

    def watched(self) -> bool:
        """Whether the run has live readers."""
        ...

    def now(self) -> int:
        """The time in milliseconds."""
        ...

    def head(self) -> int:
        """The last sequence number of the thread's log."""
        ...

    def check_key(self, key: AnyKey) -> None:
        """Refuse a state key that isn't registered."""
        ...

    def check_agent(self, agent_id: str) -> None:
        """Refuse an agent that isn't registered."""
        ...

    def convert_input(self, agent_id: str, given: Any) -> Any:
        """Convert a value of an agent's `input` type to text or content parts; refuses one that doesn't fit."""
        ...

    def notify(self, command: Command, name: str, payload: Any) -> None:
        """Put a notice into the command."""
        ...

    def schedule(self, command: Command, name: str, payload: Any, phase: str) -> None:
        """Put an action into the command."""
        ...

    def run_agent(self, context: CallContext, request: ChildRequest) -> Coroutine[Any, Any, ChildResult]:
        """Run another agent as a child of this call."""
        ...

    async def result_of(self, call_id: str) -> tuple[str, int] | None:
        """The text of a call's result, and how many characters of it the model is shown at once."""
        ...

    @property
    def mail(self) -> Mail:
        """The mail of the run's thread."""
        ...

    @property
    def memories(self) -> Memories:
        """The memories of the run's tenant."""
        ...

    async def spawn(self, context: CallContext, request: SpawnRequest) -> TaskRecord:
        """Start a background task."""
        ...

    async def sleep(self, until: int) -> None:
        """Wait in memory until that time."""
        ...

    def task(self) -> TaskRef | None:
        """The task that the run carries out, if it carries out one."""
        ...

    async def tasks(self) -> Sequence[TaskRecord]:
        """The tasks of the run's thread, oldest first."""
        ...

    async def refresh_task(self, task: TaskRecord) -> TaskRecord:
        """The present state of a task."""
        ...

    async def task_output(self, task: TaskRecord) -> str:
        """The last answer of a task's agent."""
        ...

    async def cancel_task(self, task: TaskRecord, reason: str) -> int:
        """Cancel a task and its tree with this call's result; returns the number of runs."""
        ...

    async def cancel_self(self, reason: str) -> tuple[str, int]:
        """Cancel the run and its tree once the call has returned; returns its id and the number of runs."""
        ...

    async def resume_task(self, context: CallContext, task: TaskRecord, prompt: str) -> TaskRecord:
        """Continue a cancelled task; returns its new record."""
        ...
