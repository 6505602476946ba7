"""The runtime: construction, tenants and lifetime."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ..agents import Agent, Registry, ToolLike
from ..backends.entry import BackendCatalog, abort_remote, execute_remote, poll_remote
from ..bus import Bus
from ..clock import Clock, SystemClock
from ..delegation import delegation_tools, tools_inside_tasks
from ..dispatch import ChildRuns
from ..errors import ConfigurationError, UnknownAgent, UsageError
from ..errors.arguments import checked
from ..extensions.telemetry import Telemetry
from ..loop import Environment, Watches
from ..messaging import DeliveryPolicy, Mailer, Transport, messaging_tools, send_tools
from ..models import Model, ModelFacts, Pool, RateLimit, RetryPolicy, VendorFactory
from ..plugins import Plugin
from ..state import AnyKey
from ..stores import Retention, Store, open_store
from ..tasks import FunctionTask, TaskRegistry
from ..tools import Dependencies, ToolThreads
from ..types.limits import Capacity
from .agent_fields import check_agents
from .arguments import check_backends, check_ids, check_instance, check_options, check_table, check_transports
from .lifetime import DRAIN_GRACE, close
from .scope import Scope, Shared, connect
from .tenant import TenantRuntime
from .workers import LocalWorker

if TYPE_CHECKING:
    from ..backends import BackendFactory

__all__ = ["Runtime"]

CANCEL_GRACE = 5.0
RETENTION = Retention()
DELIVERY = DeliveryPolicy()


class Runtime(TenantRuntime):
    """Runs agents. Make one for the application, and use it as an async context manager or close it.

    The whole configuration is checked here; one error lists all problems.

    - `tools` are tools that agents refer to by name, `plugins` apply to every agent, `keys` are state keys of no
      plugin, `backends` are factories of the backends that agents name, `tasks` are functions that can run in the
      background.
    - `models` maps names to models, pools and vendors; `facts` adds to the shipped table of model facts. `retry`
      sets timeouts and retries of model requests, `rate_limits` the requests and tokens a minute of a vendor or a
      model, by name.
    - `store` is a file's path, a database's URL or a Store; by default threads live in memory. `bus` is a URL or a
      Bus that carries wake-ups and live events between processes on one store. With `execute=False` runs are left
      to other processes; `capacity` limits the work of this one.
    - `deps` is an object of the process, such as its clients and pools: `ctx.deps` of tools, hooks and tasks. It
      is never stored, and stays the caller's to close.
    - `transports` deliver messages to addresses outside the store that begin with the transport's name and a
      colon; `delivery` sets their retries.
    - `telemetry` reports runs to OpenTelemetry.

    Under `async with` it also does the work that is due: runs whose process died, input that no process took,
    deadlines, messages; and it prunes by `retention`.
    """

    @checked
    def __init__(
        self,
        agents: Sequence[Agent[Any]],
        *,
        tools: Sequence[ToolLike] = (),
        plugins: Sequence[Plugin] = (),
        models: Mapping[str, Model | Pool | VendorFactory] | None = None,
        facts: Mapping[str, ModelFacts] | None = None,
        retry: RetryPolicy | None = None,
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
        delivery: DeliveryPolicy = DELIVERY,
        bus: Bus | str | None = None,
        capacity: Capacity | None = None,
        deps: Any = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        if not isinstance(cast(Any, cancel_grace), int | float) or not cancel_grace >= 0:
            raise ConfigurationError(f"cancel_grace is in seconds and not negative, not {cancel_grace!r:.80}")
        check_options(
            tools=tools,
            plugins=plugins,
            keys=keys,
            models=models,
            clock=clock,
            execute=execute,
            retention=retention,
            delivery=delivery,
        )
        check_table(facts, "ModelFacts", "facts")
        check_table(rate_limits, "RateLimit", "rate_limits")
        carried, factories = check_transports(transports), check_backends(backends)
        clock, threads = clock or SystemClock(), ToolThreads()
        task_registry = TaskRegistry(tasks, clock, threads, cancel_grace)
        given = Dependencies(deps)
        registry = Registry(
            check_agents(agents),
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
            backends=BackendCatalog(factories),
            internal=task_registry.agents,
            problems=[*task_registry.problems, *(task_registry.deps_problems(deps) if execute else ())],
            deps=given if execute else None,
        )
        check_instance(capacity, Capacity, "capacity")
        check_instance(retry, RetryPolicy, "retry")
        check_instance(telemetry, Telemetry, "telemetry")
        env = Environment(
            registry,
            open_store(store),
            clock,
            threads,
            set(),
            cancel_grace,
            ChildRuns(lambda: self._scope.dispatch, task_registry),
            execute_remote,
            abort_remote,
            poll_remote,
            Mailer(registry, carried, lambda: shared.courier.look()),
            Watches(clock),
            retry or RetryPolicy(),
            given,
            tracer=None if telemetry is None else telemetry.tracer,
        )
        shared = connect(
            env,
            agents=[*registry.agents, *task_registry.agent_ids],
            capacity=capacity or Capacity(),
            execute=execute,
            retention=retention,
            task_registry=task_registry,
            transports=carried,
            delivery=delivery,
            bus=bus,
        )
        self._join(shared)

    def _join(self, shared: Shared) -> None:
        store = shared.env.store
        super().__init__(Scope(shared, store, store.tenant_name))
        self._tenants: dict[str, TenantRuntime] = {}

    @property
    def workers(self) -> LocalWorker:
        """The workers of the store, and this process as one of them."""
        return LocalWorker(self._scope)

    def tenant(self, name: str) -> TenantRuntime:
        """The handle of a tenant: its threads, runs and tickets, and no other tenant's."""
        if not isinstance(cast(Any, name), str) or not name:
            raise UsageError(f"a tenant is named by a text, not {name!r:.80}")
        check_ids(tenant=name)
        found = self._tenants.get(name)
        if found is None:
            found = self._tenants[name] = TenantRuntime(self._scope.shared.scope(name))
        return found

    @contextmanager
    def override(self, *, deps: Any) -> Generator[None]:
        """Give other dependencies, of any type, to the code that starts inside the block. For tests."""
        given = self._scope.shared.env.deps
        before, given.value = given.value, deps
        try:
            yield
        finally:
            given.value = before

    def as_worker(
        self,
        *,
        store: Store | str | Path | None = None,
        bus: Bus | str | None = None,
        agents: Collection[str] | None = None,
        capacity: Capacity | None = None,
        execute: bool = True,
    ) -> Runtime:
        """A runtime with the same agents, models and tools that executes only these agents or tasks (`task:NAME`),
        with its own capacity, store and bus. Use it in place of this one, before anything has run."""
        shared = self._scope.shared
        shared.check_open()
        if shared.loop is not None:
            raise UsageError("this runtime is in use; make a worker of it before anything runs")
        registry, task_registry = shared.env.registry, shared.task_registry
        known = [*registry.agents, *task_registry.agent_ids]
        if agents is not None and not agents:
            raise UsageError("a worker of no agents would claim nothing: name some, or leave it out for all")
        if unknown := [agent for agent in agents or () if agent not in known]:
            raise UnknownAgent(f"no agent {unknown[0]!r} (known: {', '.join(sorted(known))})")
        if execute and not shared.execute:
            value = shared.env.deps.value
            if problems := [*registry.deps_problems(value), *task_registry.deps_problems(value)]:
                raise ConfigurationError(problems)
        env = replace(
            shared.env if store is None else replace(shared.env, store=open_store(store)),
            mailer=Mailer(registry, shared.transports, lambda: new.courier.look()),
        )
        new = connect(
            env,
            agents=tuple(agents or known),
            capacity=capacity or shared.worker.capacity,
            execute=execute,
            retention=shared.retention,
            task_registry=task_registry,
            transports=shared.transports,
            delivery=shared.delivery,
            bus=shared.bus if bus is None else bus,
        )
        worker = object.__new__(type(self))
        worker._join(new)
        return worker

    async def __aexit__(self, *_: object) -> None:
        self._scope.shared.inside -= 1
        await close(self._scope.shared, DRAIN_GRACE)

    async def close(self, grace: float = DRAIN_GRACE) -> None:
        """Drain, wait until all activations have ended, and close the store. Runs on a store in memory are
        cancelled."""
        await close(self._scope.shared, grace)
