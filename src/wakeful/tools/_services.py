"""What a tool's context offers from the layers above the tools, and what it hands to them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from ..state import AnyKey, Command, Snapshot
from ..types.events import LiveEvent
from ..types.messages import Message
from ..types.runs import TaskRecord, TaskRef, TaskWake
from ._mail import Mail

if TYPE_CHECKING:
    from ._context import ToolContext

__all__ = ["ChildRequest", "ChildResult", "Services", "SpawnRequest", "Spawnable"]

ChildStatus = Literal["running", "completed", "failed", "cancelled"]


class ChildRequest(Struct, frozen=True):
    """An agent to run below a call. `state` is what it begins with, by the keys' names, as JSON."""

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


class SpawnRequest(Struct, frozen=True):
    """Work to begin in the background: an agent with a prompt, a function with arguments, or a coroutine."""

    target: Spawnable
    message: Message | None = None
    arguments: Mapping[str, Any] = {}
    name: str | None = None
    state: dict[str, bytes] = {}
    detached: bool = False
    wake: TaskWake = "inbox"


class ChildResult(Struct, frozen=True):
    """What a child agent's run came to. `output` is its typed output, if its agent declares one, and `state` what
    its run left behind; with the status `running` it works in the background as the task `task_id`. `error_kind`
    is `remote_error` where what a backend talks to failed."""

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


class Services(Protocol):
    """What a tool's context offers from the layers above the tools."""

    def publish(self, event: LiveEvent) -> None:
        """Show a live event to whoever listens; safe from any thread."""
        ...

    def watched(self) -> bool:
        """Whether anybody listens."""
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

    def said_to(self, agent_id: str, given: Any) -> Any:
        """What is given to an agent, as a text or content parts; what doesn't fit its `input` is refused."""
        ...

    def notify(self, command: Command, name: str, payload: Any) -> None:
        """Put a notice into the command."""
        ...

    def schedule(self, command: Command, name: str, payload: Any, phase: str) -> None:
        """Put an action into the command."""
        ...

    def run_agent(self, context: ToolContext, request: ChildRequest) -> Coroutine[Any, Any, ChildResult]:
        """Run another agent as a child of this call."""
        ...

    async def result_of(self, call_id: str) -> tuple[str, int] | None:
        """The text of a call's result, and how many characters of it the model is shown at once."""
        ...

    @property
    def mail(self) -> Mail:
        """Messages to other agents."""
        ...

    async def spawn(self, context: ToolContext, request: SpawnRequest) -> TaskRecord:
        """Begin work in the background."""
        ...

    async def sleep(self, until: int) -> None:
        """Wait in memory until that time."""
        ...

    def task(self) -> TaskRef | None:
        """The task that the run is, if it is one."""
        ...

    async def tasks(self) -> Sequence[TaskRecord]:
        """The tasks of the run's thread, oldest first."""
        ...

    async def refresh_task(self, task: TaskRecord) -> TaskRecord:
        """How a task stands now."""
        ...

    async def task_output(self, task: TaskRecord) -> str:
        """The last answer of a task's agent."""
        ...

    async def cancel_task(self, task: TaskRecord, reason: str) -> int:
        """Stop a task with all below it, once this call's result is committed; how many runs that are."""
        ...

    async def cancel_self(self, reason: str) -> tuple[str, int]:
        """Stop the run with all below it, once this call has returned: the task it is, or its id, and how many."""
        ...

    async def resume_task(self, context: ToolContext, task: TaskRecord, prompt: str) -> TaskRecord:
        """Let a stopped task go on; the task as it is then."""
        ...
