"""The parts of a runtime: one half that all tenants share, and a scope for each tenant."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ..bus import Bus, LocalBus, open_bus
from ..dispatch import ChildRuns, Dispatcher, Signals, Worker
from ..errors import RuntimeClosed, UsageError
from ..loop import Environment
from ..messaging import Courier, DeliveryPolicy
from ..stores import Retention, Store
from ..tasks import EVERYWHERE, TaskRegistry
from ..types.ids import new_id
from ..types.limits import Capacity
from .loop_thread import OwnLoop

__all__ = ["Scope", "Shared", "connect"]

# Identifies this process; a fork gets another object. Cheaper than asking the system for the process id each time.
_process = object()


def _forked() -> None:
    global _process
    _process = object()


os.register_at_fork(after_in_child=_forked)


class Shared(Struct, eq=False, weakref=True):
    """The part of a runtime that all its tenants share."""

    env: Environment
    worker: Worker
    courier: Courier
    signals: Signals
    owner: str
    execute: bool
    retention: Retention | None
    task_registry: TaskRegistry
    transports: Mapping[str, Any]
    delivery: DeliveryPolicy
    bus: Bus | str | None
    scopes: dict[str, Scope] = {}
    own_loop: OwnLoop = field(default_factory=OwnLoop)
    loop: asyncio.AbstractEventLoop | None = None
    draining: bool = False
    closed: bool = False
    # The number of open `async with` blocks, of all tenants.
    inside: int = 0
    # The process that holds its threads and connections, once there are any. A fork inherits only the memory.
    process: object | None = None

    def scope(self, tenant: str) -> Scope:
        """The scope of a tenant, made on first use."""
        found = self.scopes.get(tenant)
        return Scope(self, self.env.store.tenant(tenant), tenant) if found is None else found

    @property
    def abandoned(self) -> int:
        """Tool calls that ignored their cancellation and still run: tasks and threads."""
        return len(self.env.abandoned) + self.env.threads.abandoned

    def check_open(self) -> None:
        """Raise `RuntimeClosed` after closing, and `UsageError` in a fork of its process."""
        if self.closed:
            raise RuntimeClosed
        if self.process is not _process:
            if self.process is not None:
                raise UsageError(
                    "this runtime belongs to the process that this one was forked from, and its threads and "
                    "connections stayed there; make a runtime in each process, after the fork"
                )
            self.process = _process

    def bind(self) -> None:
        """Belong to the running event loop from now on."""
        loop = asyncio.get_running_loop()
        if self.loop is loop and not self.closed and self.process is _process:
            return
        self.check_open()
        if self.loop is loop:
            return
        if self.loop is not None and not self.loop.is_closed():
            raise UsageError(
                "this runtime belongs to another event loop, that of its first call: hand the call to that loop "
                "with asyncio.run_coroutine_threadsafe(runtime.run(...), loop).result(), or use run_sync for all "
                "calls from the first on, or make one runtime for each loop"
            )
        self.loop = loop
        self.signals.open()
        if self.env.tracer is not None:
            self.env.tracer.report(self.worker.metrics)


class Scope:
    """One tenant of a runtime: its store, its dispatcher and the subscribers of its live events."""

    def __init__(self, shared: Shared, store: Store, tenant: str) -> None:
        self.shared = shared
        self.tenant = tenant
        self.bus = LocalBus()
        self.env = replace(
            shared.env, store=store, children=ChildRuns(lambda: self.dispatch, shared.task_registry)
        )
        self.dispatch = Dispatcher(
            self.env, self.bus, shared.worker.state, shared.signals, tenant=tenant, execute=shared.execute
        )
        if shared.draining:
            self.dispatch.stop()
        shared.scopes[tenant] = self

    @property
    def store(self) -> Store:
        """The tenant's store; raises `RuntimeClosed` after closing."""
        self.shared.check_open()
        return self.env.store

    def bind(self) -> None:
        """Belong to the running event loop from now on."""
        self.shared.bind()


def connect(
    env: Environment,
    *,
    agents: Collection[str],
    capacity: Capacity,
    execute: bool,
    retention: Retention | None,
    task_registry: TaskRegistry,
    transports: Mapping[str, Any],
    delivery: DeliveryPolicy,
    bus: Bus | str | None,
) -> Shared:
    """Make the shared half of a runtime that claims dispatches of these agents."""
    owner = new_id()
    courier = Courier(
        env.store,
        owner,
        env.clock,
        transports,
        delivery,
        lambda tenant, item: shared.scope(tenant).dispatch.wake(item.thread_id, item.agent_id),
    )
    signals = Signals(open_bus(bus), owner, env.store, lambda: worker)
    worker = Worker(
        env.store,
        owner,
        env.clock,
        signals,
        lambda tenant: shared.scope(tenant).dispatch,
        (*agents, *EVERYWHERE),
        capacity,
        {*env.registry.agents, *task_registry.agent_ids}.difference(agents),
    )
    worker.metrics.abandoned = lambda: shared.abandoned
    process = None
    if env.store.durable:
        env, process = replace(env, timed=worker.metrics.committed), _process
    shared = Shared(
        env,
        worker,
        courier,
        signals,
        owner,
        execute,
        retention,
        task_registry,
        transports,
        delivery,
        bus,
        process=process,
    )
    return shared
