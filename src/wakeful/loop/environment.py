"""The services and settings that all activations of a runtime share. An `act` is an `Activation`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from ..agents import Registry, ResolvedAgent
from ..clock import Clock
from ..context import Gauges
from ..models import RetryPolicy
from ..stores import Relay, Store
from ..tools import CallContext, ChildRequest, ChildResult, Dependencies, Mail, SpawnRequest, ToolThreads
from ..traces import Tracer
from ..types.inbox import InboxItem
from ..types.runs import Identity, TaskRecord
from .inference.history import HistoryCache
from .inference.watchdog import Watches
from .joined_commit import JoinedCommit
from .moves import Rules

__all__ = ["Children", "Environment", "Mailer", "Pins", "rules_of"]

MAX_PINS = 64


class Children(Protocol):
    """Child runs and tasks, as dispatch provides them."""

    def run(self, act: Any, context: CallContext, request: ChildRequest) -> Coroutine[Any, Any, ChildResult]:
        """Run a child agent for a call."""
        ...

    def start_child(self, act: Any, call_id: str, request: ChildRequest) -> TaskRecord | None:
        """Add the child of a delegation to the draft; None if the call itself will be refused it."""
        ...

    async def spawn(self, act: Any, context: CallContext, request: SpawnRequest) -> TaskRecord:
        """Start a background task for a call."""
        ...

    async def resume(self, act: Any, context: CallContext, task: TaskRecord, prompt: str) -> TaskRecord:
        """Continue a cancelled task."""
        ...

    async def refresh(self, task: TaskRecord) -> TaskRecord:
        """Read the state of a task from its backend."""
        ...

    def check_stoppable(self, task: TaskRecord) -> None:
        """Refuse to cancel a task whose backend isn't known here."""
        ...

    async def count_below(self, thread_id: str, run_id: str) -> int:
        """Count the open tasks below a run, at any depth."""
        ...

    async def read_tree_usage(self, act: Any) -> None:
        """Read the usage of the run's whole tree into its view."""
        ...

    def wake(self, thread_id: str, agent_id: str | None = None) -> None:
        """Look at a thread whose inbox has a new item, for an agent's run if it names one."""
        ...

    async def start_with_commit(self, act: Any, items: Sequence[InboxItem]) -> Sequence[JoinedCommit]:
        """Start the recipients of these items here, up to their first commits, which join the run's own."""
        ...


class Mailer(Protocol):
    """Messages to other agents, as messaging provides them."""

    def mail_of(self, act: Any) -> Mail:
        """The mail of one run."""
        ...

    def relay_for(self, run: Identity, item: InboxItem, now: int) -> Relay:
        """The relay for an item that a full inbox refused."""
        ...

    def wake(self) -> None:
        """Deliver due relays."""
        ...


class Pins(dict[str, bytes]):
    """Snapshots of tool sources by digest: the last few, as most runs have the same."""

    def __setitem__(self, digest: str, data: bytes) -> None:
        if len(self) >= MAX_PINS:
            self.clear()
        super().__setitem__(digest, data)


class Environment(Struct):
    """Services and settings that all activations of a runtime share."""

    registry: Registry
    store: Store
    clock: Clock
    threads: ToolThreads
    abandoned: set[Any]
    grace: float
    children: Children
    # Also takes the message id and attempt to stream next if a crash cut an answer off.
    execute_remote: Callable[[Any, tuple[str, int] | None], Awaitable[None]]
    abort_remote: Callable[[Any], Awaitable[None]]
    poll_remote: Callable[[Any], Awaitable[bool]]
    mailer: Mailer
    watches: Watches
    retry: RetryPolicy = RetryPolicy()
    deps: Dependencies = field(default_factory=Dependencies)
    rules: dict[str, Rules] = {}
    gauges: Gauges = field(default_factory=Gauges)
    histories: HistoryCache = field(default_factory=HistoryCache)
    # Snapshots of tool sources by digest, and the ones that a tenant's store is known to have.
    pinned: Pins = field(default_factory=Pins)
    stored_pins: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    timed: Callable[[float, BaseException | None], None] | None = None
    tracer: Tracer | None = None


def rules_of(env: Environment, agent: ResolvedAgent) -> Rules:
    """The rules of an agent, cached by its id."""
    alone = frozenset(name for name, tool in agent.tools.items() if tool.sequential)
    rules = Rules(agent.agent.limits, tuple(agent.agent.stop), agent.agent.sequential, alone)
    return env.rules.setdefault(agent.id, rules)
