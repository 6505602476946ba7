"""What activations share, and what they need of the rooms above."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from ..agents import Registry, ResolvedAgent
from ..clock import Clock
from ..context import Gauges
from ..models import Patience
from ..stores import InboxItem, Relay, Store
from ..tools import ChildRequest, ChildResult, Mail, SpawnRequest, ToolContext, ToolThreads
from ..types.runs import Identity, TaskRecord
from ._moves import Rules
from ._rides import Ride
from ._watch import Watches

if TYPE_CHECKING:
    from ._activation import Activation

__all__ = ["Children", "Environment", "Host", "rules_of"]


class Host(Protocol):
    """Where activations run."""

    def began(self, act: Activation) -> None:
        """An activation begins; refused with `Conflict` if its thread has another one."""
        ...

    def lost(self, act: Activation, error: BaseException) -> None:
        """An activation is given up, because of this."""
        ...

    def ended(self, act: Activation) -> None:
        """An activation is over, whatever way it ended."""
        ...


class Children(Protocol):
    """What runs have below them, as dispatch provides it."""

    def run(
        self, act: Activation, context: ToolContext, request: ChildRequest
    ) -> Coroutine[Any, Any, ChildResult]:
        """Run an agent below a call."""
        ...

    def begin(self, act: Activation, call_id: str, request: ChildRequest) -> TaskRecord | None:
        """Begin a call's only child by the run's next commit; None where the call itself will be refused it."""
        ...

    async def spawn(self, act: Activation, context: ToolContext, request: SpawnRequest) -> TaskRecord:
        """Begin work in the background for a call."""
        ...

    async def resume(self, act: Activation, context: ToolContext, task: TaskRecord, prompt: str) -> TaskRecord:
        """Let a stopped task go on."""
        ...

    async def refresh(self, task: TaskRecord) -> TaskRecord:
        """How a task stands that a backend carries out."""
        ...

    def check_stoppable(self, task: TaskRecord) -> None:
        """Refuse to stop a task that nothing here can reach."""
        ...

    async def below(self, thread_id: str, run_id: str) -> int:
        """How many open tasks a run has below it, at any depth."""
        ...

    async def measure(self, act: Activation) -> None:
        """Read what the run's whole tree used."""
        ...

    def wake(self, thread_id: str, agent_id: str | None = None) -> None:
        """Something was put into a thread's inbox, for an agent's run if it names one."""
        ...

    async def board(self, act: Activation, items: Sequence[InboxItem]) -> Sequence[Ride]:
        """Begin here with what a run is about to put into the inboxes of others, as far as that can be: up to the
        first commits of these, which go along with the run's own."""
        ...


class Post(Protocol):
    """How runs write to other agents, as messaging provides it."""

    def of(self, act: Activation) -> Mail:
        """The mail of one run."""
        ...

    def divert(self, run: Identity, item: InboxItem, now: int) -> Relay:
        """The relay by which an item goes that an inbox has no room for."""
        ...

    def look(self) -> None:
        """There is a relay to look at."""
        ...


# Given the message and attempt to stream next, where an answer was cut off.
RemoteExecution = Callable[["Activation", "tuple[str, int] | None"], Awaitable[None]]


class Environment(Struct):
    """What activations share: one of these for each runtime."""

    registry: Registry
    store: Store
    clock: Clock
    threads: ToolThreads
    abandoned: set[Any]
    grace: float
    children: Children
    execute_remote: RemoteExecution
    abort_remote: Callable[[Activation], Awaitable[None]]
    post: Post
    watches: Watches
    patience: Patience = Patience()
    rules: dict[str, Rules] = {}
    gauges: Gauges = field(default_factory=Gauges)
    timed: Callable[[float, BaseException | None], None] | None = None


def rules_of(env: Environment, agent: ResolvedAgent) -> Rules:
    """What an agent allows."""
    alone = frozenset(name for name, tool in agent.tools.items() if tool.sequential)
    made = Rules(agent.agent.limits, tuple(agent.agent.stop), agent.agent.sequential, alone)
    return env.rules.setdefault(agent.id, made)
