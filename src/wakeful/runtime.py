"""The runtime: the one object an application holds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from ._checks import agents_of, backends_of, check_ids, instance_of, options_of, table_of, transports_of
from ._running import RunHandle, Running
from ._sync import OwnLoop
from .agents import Agent, Registry, Toolish
from .backends._entry import abort_remote, backend_problems, build_backend, execute_remote
from .bus import Bus, LocalBus, open_bus
from .clock import Clock, SystemClock
from .delegation import delegation_tools, tools_inside_tasks
from .dispatch import ChildRuns, Dispatcher, Keeper, Metrics, Signals, drain
from .errors import ConfigurationError, RuntimeClosed, UnknownAgent, UsageError
from .errors._arguments import checked
from .loop import Environment, Watches
from .messaging import Courier, Post, Retry, Transport, messaging_tools, send_tools
from .models import Model, ModelFacts, Patience, Pool, RateLimit, VendorFactory
from .plugins import Plugin
from .state import AnyKey
from .stores import Retention, Store, open_store
from .tasks import EVERYWHERE, FunctionTask, TaskBook
from .tools import ToolThreads
from .types.ids import new_id
from .types.limits import Capacity
from .types.mail import Receipt

if TYPE_CHECKING:
    from .backends import BackendFactory

__all__ = ["Receipt", "RunHandle", "Runtime"]

CANCEL_GRACE = 5.0
DRAIN_GRACE = 5.0
RETENTION = Retention()
RETRY = Retry()


# Stands for this process: a fork has another one. Asking the system each time takes longer than all the rest.
_process = object()


def _forked() -> None:
    global _process
    _process = object()


os.register_at_fork(after_in_child=_forked)


class _Shared(Struct, eq=False):
    """What a runtime's handles for all its tenants have in common."""

    env: Environment
    keeper: Keeper
    courier: Courier
    signals: Signals
    owner: str
    execute: bool
    retention: Retention | None
    book: TaskBook
    tenants: dict[str, Runtime] = {}
    own_loop: OwnLoop = field(default_factory=OwnLoop)
    loop: asyncio.AbstractEventLoop | None = None
    draining: bool = False
    closed: bool = False
    # How many `async with` blocks are open, of all its handles.
    inside: int = 0
    # The process that its threads and connections are in, once it has any: a fork of that has only its memory.
    process: object | None = None


class Runtime(Running):
    """Runs agents. Make one for the application, and use it as an async context manager or close it.

    Everything is checked here, and one error lists all that is wrong.

    - `tools` are tools that agents refer to by name, `plugins` those that every agent has, `keys` state keys that
      no plugin brings, `backends` factories of the backends that agents name, `tasks` functions that can work in
      the background.
    - `models` are models, pools and vendors by name, `facts` what is known about models beyond the table that is
      shipped. `patience` says how long a model is waited for and how often it is asked again, `rate_limits` what
      may go in a minute to a vendor or a model, by its name.
    - `store` is a file's path, a database's URL or a Store; by default threads live in memory. `bus` is a URL or a
      Bus by which processes on one store tell each other what they would else find out by looking. With
      `execute=False` runs are left to other processes; `capacity` says how much this one takes on.
    - `transports` bring messages to recipients outside the store, each to addresses that begin with its name and a
      colon; `retry` says how often.

    Under `async with` it also goes on with what is due: runs whose process died, input that nobody took,
    deadlines, messages; and prunes by `retention`.
    """

    @checked
    def __init__(
        self,
        agents: Sequence[Agent],
        *,
        tools: Sequence[Toolish] = (),
        plugins: Sequence[Plugin] = (),
        models: Mapping[str, Model | Pool | VendorFactory] | None = None,
        facts: Mapping[str, ModelFacts] | None = None,
        patience: Patience | None = None,
        rate_limits: Mapping[str, RateLimit] | None = None,
        keys: Sequence[AnyKey] = (),
        backends: Sequence[BackendFactory] = (),
        tasks: Sequence[FunctionTask] = (),
        store: Store | str | Path | None = None,
        clock: Clock | None = None,
        cancel_grace: float = CANCEL_GRACE,
        execute: bool = True,
        retention: Retention | None = RETENTION,
        transports: Mapping[str, Transport] | None = None,
        retry: Retry = RETRY,
        bus: Bus | str | None = None,
        capacity: Capacity | None = None,
    ) -> None:
        if not isinstance(cast(Any, cancel_grace), int | float) or not cancel_grace >= 0:
            raise ConfigurationError(f"cancel_grace is in seconds and not negative, not {cancel_grace!r:.80}")
        options_of(
            tools=tools,
            plugins=plugins,
            keys=keys,
            models=models,
            clock=clock,
            execute=execute,
            retention=retention,
            retry=retry,
        )
        table_of(facts, "ModelFacts", "facts")
        table_of(rate_limits, "RateLimit", "rate_limits")
        carried, factories = transports_of(transports), backends_of(backends)
        clock, threads = clock or SystemClock(), ToolThreads()
        book = TaskBook(tasks, clock, threads, cancel_grace)
        registry = Registry(
            agents_of(agents),
            tools=tools,
            plugins=plugins,
            models=models,
            facts=facts,
            rate_limits=rate_limits,
            clock=clock,
            keys=keys,
            delegation=delegation_tools,
            inside_tasks=[*tools_inside_tasks(), *send_tools()],
            messaging=lambda agent: messaging_tools(agent, carried),
            build_backend=lambda config: build_backend(config, factories),
            check_backend=backend_problems,
            internal=book.agents,
            problems=book.problems,
        )
        instance_of(capacity, Capacity, "capacity")
        instance_of(patience, Patience, "patience")
        env = Environment(
            registry,
            open_store(store),
            clock,
            threads,
            set(),
            cancel_grace,
            ChildRuns(lambda: self._dispatch, book),
            execute_remote,
            abort_remote,
            Post(registry, carried, lambda: self._shared.courier.look()),
            Watches(clock),
            patience or Patience(),
        )
        self._carried, self._retry, self._bus_given = carried, retry, bus
        self._set_up(env, execute, retention, capacity or Capacity(), [*registry.agents, *book.agent_ids], book)

    def _set_up(
        self,
        env: Environment,
        execute: bool,
        retention: Retention | None,
        capacity: Capacity,
        agents: Collection[str],
        book: TaskBook,
    ) -> None:
        owner = new_id()
        courier = Courier(
            env.store,
            owner,
            env.clock,
            self._carried,
            self._retry,
            lambda tenant, item: self.tenant(tenant)._dispatch.wake(item.thread_id, item.agent_id),
        )
        signals = Signals(open_bus(self._bus_given), owner, lambda: self._shared.keeper)
        keeper = Keeper(
            env.store,
            owner,
            env.clock,
            signals,
            lambda tenant: self.tenant(tenant)._dispatch,
            (*agents, *EVERYWHERE),
            capacity,
            {*env.registry.agents, *book.agent_ids}.difference(agents),
        )
        keeper.metrics.abandoned = lambda: self.abandoned
        process = None
        if env.store.durable:
            env, process = replace(env, timed=keeper.metrics.committed), _process
        shared = _Shared(env, keeper, courier, signals, owner, execute, retention, book, process=process)
        self._join(shared, env.store, env.store.tenant_name)

    def as_worker(
        self,
        *,
        store: Store | str | Path | None = None,
        bus: Bus | str | None = None,
        agents: Collection[str] | None = None,
        capacity: Capacity | None = None,
        execute: bool = True,
    ) -> Runtime:
        """A runtime with the same agents, models and tools that runs only these agents, or tasks (`task:NAME`),
        within this capacity, and perhaps on another store and bus; others are left to other processes. Take it
        instead of this one, before anything has run."""
        self._check_open()
        shared = self._shared
        if shared.loop is not None:
            raise UsageError("this runtime is in use; make a worker of it before anything runs")
        registry = shared.env.registry
        known = [*registry.agents, *shared.book.agent_ids]
        if agents is not None and not agents:
            raise UsageError("a worker of no agents would claim nothing: name some, or leave it out for all")
        if unknown := [agent for agent in agents or () if agent not in known]:
            raise UnknownAgent(f"no agent {unknown[0]!r} (known: {', '.join(sorted(known))})")
        env = shared.env if store is None else replace(shared.env, store=open_store(store))
        worker = object.__new__(type(self))
        worker._carried, worker._retry = self._carried, self._retry
        worker._bus_given = self._bus_given if bus is None else bus
        post = Post(env.registry, self._carried, lambda: worker._shared.courier.look())
        worker._set_up(
            replace(env, children=ChildRuns(lambda: worker._dispatch, shared.book), post=post),
            execute,
            shared.retention,
            capacity or shared.keeper.capacity,
            tuple(agents or known),
            shared.book,
        )
        return worker

    def _join(self, shared: _Shared, store: Store, tenant: str) -> None:
        """Be the handle of one tenant."""
        self._shared = shared
        self._own_loop = shared.own_loop
        self._courier = shared.courier
        self._bus = LocalBus()
        self._book = shared.book
        self._env = replace(shared.env, store=store, children=ChildRuns(lambda: self._dispatch, shared.book))
        self._signals = shared.signals
        self._dispatch = Dispatcher(
            self._env,
            self._bus,
            shared.keeper,
            shared.signals,
            shared.owner,
            tenant=tenant,
            execute=shared.execute,
        )
        if shared.draining:
            self._dispatch.stop()
        shared.signals.add(tenant, self._dispatch)
        shared.tenants[tenant] = self

    @property
    def capacity(self) -> Capacity:
        """How much it takes on."""
        return self._shared.keeper.capacity

    @property
    def metrics(self) -> Metrics:
        """What it did so far, counted."""
        return self._shared.keeper.metrics

    @property
    def worker_id(self) -> str:
        """Under which name it claims threads."""
        return self._shared.owner

    @property
    def claimed_agents(self) -> tuple[str, ...]:
        """The agents whose dispatches it claims."""
        return tuple([agent for agent in self._shared.keeper.agents if agent not in EVERYWHERE])

    def tenant(self, name: str) -> Runtime:
        """The same runtime for another tenant: its threads, runs and tickets, and nothing of others'. It is the
        runtime that is closed, not this."""
        if not isinstance(cast(Any, name), str) or not name:
            raise UsageError(f"a tenant is named by a text, not {name!r:.80}")
        check_ids(tenant=name)
        found = self._shared.tenants.get(name)
        if found is None:
            found = object.__new__(Runtime)
            found._join(self._shared, self._shared.env.store.tenant(name), name)
        return found

    # -- lifetime --------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Runtime:
        self._bind()
        if self._shared.execute:
            self._shared.keeper.serve(self._shared.retention)
            self._shared.courier.serve()
        self._shared.inside += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leaving closes the runtime; leaving a tenant's handle does once nobody else is inside."""
        self._shared.inside -= 1
        if not (self._is_tenants and self._shared.inside):
            await self._close(DRAIN_GRACE)

    @property
    def _is_tenants(self) -> bool:
        """Whether this is a handle that `tenant` gave, and not the runtime."""
        return self._dispatch.tenant != self._shared.env.store.tenant_name

    async def drain(self, grace: float = DRAIN_GRACE) -> int:
        """Claim and begin nothing more, and hand over what runs, of all tenants: each run goes on to the end of
        its open step, and from there in another process on the store. What takes longer than `grace` seconds is
        cut off and recovered elsewhere by its tools' effects; returns how many that were. A store in memory has no
        other process: there it is waited for, and `close` cancels the rest.
        """
        shared = self._shared
        shared.draining = True
        dispatchers = [runtime._dispatch for runtime in shared.tenants.values()]
        for dispatch in dispatchers:
            dispatch.stop()
        await shared.keeper.stop()
        if shared.env.store.durable:
            return await drain(dispatchers, grace)
        ends = [act.ended() for dispatch in dispatchers for act in dispatch.active.values()]
        if ends:
            await asyncio.wait(ends, timeout=grace)
        return sum(len(dispatch.active) for dispatch in dispatchers)

    async def close(self, grace: float = DRAIN_GRACE) -> None:
        """Drain, wait until all is quiet, and close the store. What runs on a store in memory is cancelled. On a
        tenant's handle this does nothing: others share the runtime."""
        if not self._is_tenants:
            await self._close(grace)

    async def _close(self, grace: float) -> None:
        shared = self._shared
        await shared.keeper.stop()
        if shared.env.store.durable:
            await self.drain(grace)
        await shared.courier.close()
        for runtime in list(shared.tenants.values()):
            await runtime._dispatch.close()
            runtime._bus.close()
        # From now on nothing is answered: what is begun on a store that was closed, or in memory, would be lost.
        shared.closed = True
        shared.env.threads.close()
        await shared.keeper.close()
        await shared.signals.close()
        await shared.env.registry.close()
        await shared.env.store.close()

    def _check_open(self) -> None:
        shared = self._shared
        if shared.closed:
            raise RuntimeClosed
        if shared.process is not _process:
            if shared.process is not None:
                raise UsageError(
                    "this runtime is of the process that this one was forked from, and its threads and "
                    "connections stayed there; make a runtime in each process, after the fork"
                )
            shared.process = _process

    def _bind(self) -> None:
        loop, shared = asyncio.get_running_loop(), self._shared
        if shared.loop is loop and not shared.closed and shared.process is _process:
            return
        self._check_open()
        if shared.loop is loop:
            return
        if shared.loop is not None and not shared.loop.is_closed():
            raise UsageError(
                "this runtime belongs to another event loop, that of its first call: hand the call to that loop "
                "with asyncio.run_coroutine_threadsafe(runtime.run(...), loop).result(), or use run_sync for all "
                "calls from the first on, or make one runtime for each loop"
            )
        shared.loop = loop
        shared.signals.open()
