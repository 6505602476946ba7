"""The runtime: the one object an application holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from ._checks import (
    agents_of,
    backends_of,
    decisions_of,
    instance_of,
    message_of,
    one_of,
    priority_of,
    request_of,
    settings_of,
    table_of,
    thread_of,
    time_of,
    transports_of,
)
from ._following import Follower
from ._mailing import Mailing
from ._sync import OwnLoop
from ._working import Working
from .agents import Agent, Registry, Toolish
from .backends._entry import abort_remote, backend_problems, build_backend, execute_remote
from .bus import Bus, LocalBus, News, open_bus
from .clock import Clock, SystemClock
from .delegation import delegation_tools, tools_inside_tasks
from .dispatch import (
    ChildRuns,
    Dispatcher,
    Keeper,
    Metrics,
    NewRun,
    RunResult,
    Signals,
    cancel,
    drain,
    item_of,
    resume,
    retry,
    send,
)
from .errors import ConfigurationError, UnknownAgent, UsageError
from .loop import Environment, Watches
from .messaging import Courier, Post, Retry, Transport, messaging_tools, send_tools
from .models import Model, ModelFacts, Patience, Pool, RateLimit, VendorFactory
from .plugins import Plugin
from .state import AnyKey
from .stores import InputPolicy, Retention, Store, open_store
from .tasks import EVERYWHERE, FunctionTask, TaskBook
from .tools import ClientTool, ToolThreads
from .types.content import Content
from .types.events import AnyEvent, Event
from .types.ids import new_id
from .types.limits import Capacity
from .types.mail import Receipt
from .types.messages import Message
from .types.requests import ModelSettings
from .types.runs import PRIORITY, Principal, RunOptions
from .types.tickets import Decision

if TYPE_CHECKING:
    from .backends import BackendFactory

__all__ = ["Receipt", "RunHandle", "Runtime"]

Input = str | Sequence[Content]

CANCEL_GRACE = 5.0
DRAIN_GRACE = 5.0
RETENTION = Retention()
RETRY = Retry()


class RunHandle(Struct, frozen=True, eq=False):
    """A run that was started: it is in the store, and goes on by itself."""

    run_id: str
    thread_id: str
    _runtime: Runtime
    _dispatch: Dispatcher

    async def result(self) -> RunResult:
        """Wait until the run waits or is done, whichever process runs it."""
        return await self._dispatch.wait(self.run_id)

    async def cancel(self, reason: str = "cancelled by request") -> bool:
        """Cancel the run with everything it does; False if it was done before."""
        return await self._runtime.cancel(self.run_id, reason)

    def events(self, *, after: int | str = 0) -> AsyncIterator[AnyEvent]:
        """The thread's events, from behind a cursor, as they happen."""
        return self._runtime.events(self.thread_id, after=after)


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
    loop: asyncio.AbstractEventLoop | None = None


class Runtime(Mailing, Working):
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
        if not isinstance(cast(Any, cancel_grace), int | float) or cancel_grace < 0:
            raise ConfigurationError(f"cancel_grace is in seconds and not negative, not {cancel_grace!r:.80}")
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
            lambda tenant, thread: self.tenant(tenant)._dispatch.wake(thread),
        )
        signals = Signals(open_bus(self._bus_given), owner, lambda wake: self._shared.keeper.woken(wake))
        keeper = Keeper(
            env.store,
            owner,
            env.clock,
            signals,
            lambda tenant: self.tenant(tenant)._dispatch,
            (*agents, *EVERYWHERE),
            capacity,
        )
        if env.store.durable:
            env = replace(env, timed=keeper.metrics.committed)
        self._join(_Shared(env, keeper, courier, signals, owner, execute, retention, book), env.store, "default")

    def as_worker(
        self,
        *,
        store: Store | str | Path | None = None,
        bus: Bus | str | None = None,
        agents: Collection[str] | None = None,
        capacity: Capacity | None = None,
        execute: bool = True,
    ) -> Runtime:
        """A runtime with the same agents, models and tools that claims only what these agents are for, within this
        capacity, and perhaps on another store and bus. Take it instead of this one, before anything has run."""
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
        self._own_loop = OwnLoop()
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
        """The same runtime for another tenant: its threads, runs and tickets, and nothing of others'."""
        if not isinstance(cast(Any, name), str) or not name:
            raise UsageError(f"a tenant is named by a text, not {name!r:.80}")
        found = self._shared.tenants.get(name)
        if found is None:
            found = object.__new__(Runtime)
            found._join(self._shared, self._shared.env.store.tenant(name), name)
        return found

    # -- running ---------------------------------------------------------------------------------------------

    async def run(
        self,
        agent: str | Agent,
        input: Input,
        *,
        thread: str | None = None,
        principal: Principal | None = None,
        settings: ModelSettings | None = None,
        client_tools: Sequence[ClientTool] = (),
        state: Mapping[AnyKey, Any] | None = None,
        request_id: str | None = None,
    ) -> RunResult:
        """Run an agent on a thread, a new one by default, until the run waits or is done.

        A thread has one open run. While another runs, this one waits its turn; one that waits for an answer is
        superseded; one that waits for tasks is given the input. A `request_id` makes the call repeatable: the
        second one of that id runs nothing and has the first one's result.
        """
        self._bind()
        new = self._new(agent, input, thread, principal, settings, client_tools, state, request_id)
        return await self._dispatch.run(new, fresh=thread is None)

    async def start(
        self,
        agent: str | Agent,
        input: Input,
        *,
        thread: str | None = None,
        principal: Principal | None = None,
        settings: ModelSettings | None = None,
        client_tools: Sequence[ClientTool] = (),
        state: Mapping[AnyKey, Any] | None = None,
        request_id: str | None = None,
        delay: float | None = None,
        at: datetime | None = None,
        priority: int = PRIORITY,
    ) -> RunHandle:
        """Begin a run as `run` does, and return once it is in the store; it goes on in the background.

        With a `delay` in seconds, or a time `at`, it begins then, where the store is served. The lower its
        `priority` (0 to 255), the sooner a worker claims it.
        """
        self._bind()
        new = self._new(agent, input, thread, principal, settings, client_tools, state, request_id)
        if delay is not None or at is not None or priority != PRIORITY:
            new = replace(new, at=time_of(delay, at, self._env.clock.now()), priority=priority_of(priority))
        if new.at is not None:
            self._dispatch.check_open()
            await self._dispatch.check_room()
            await self._dispatch.deliver(item_of(new, "queue"))
            self._shared.keeper.look()
            return RunHandle(new.run_id, new.thread_id, self, self._dispatch)
        ids = [new.run_id]
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[None] = loop.create_future()
        work = self._dispatch.run(new, fresh=thread is None, opened=ids.append, begun=begun)
        task = loop.create_task(work)
        self._dispatch.track(task)
        await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        run_id = task.result().run_id if task.done() else ids[-1]
        return RunHandle(run_id, new.thread_id, self, self._dispatch)

    async def wait(self, run_id: str) -> RunResult:
        """Wait until a run waits or is done, whichever process runs it."""
        self._bind()
        await self.get_run(run_id)
        return await self._dispatch.wait(run_id)

    async def retry(self, run_id: str) -> RunResult:
        """Go on with a failed run from its last committed step."""
        self._bind()
        return await retry(self._dispatch, run_id)

    async def stream(
        self,
        agent: str | Agent,
        input: Input,
        *,
        thread: str | None = None,
        principal: Principal | None = None,
        settings: ModelSettings | None = None,
        client_tools: Sequence[ClientTool] = (),
        state: Mapping[AnyKey, Any] | None = None,
    ) -> AsyncIterator[AnyEvent]:
        """Run an agent and yield its events, and those of the agents below it, as they happen.

        Leaving the stream doesn't stop the run; `events` picks it up again, `cancel` stops it.
        """
        self._bind()
        new = self._new(agent, input, thread, principal, settings, client_tools, state, None)
        subscription = self._bus.watch(new.thread_id)
        roots: set[str] = set()
        work = self._dispatch.run(new, fresh=thread is None, opened=roots.add)
        task = asyncio.get_running_loop().create_task(work)
        self._dispatch.track(task, heard=True)  # The stream raises what it raises.
        end = cast(Event, None)
        task.add_done_callback(lambda _: subscription.push(end))
        queue = subscription.events
        follower = Follower(self._env, new.thread_id, roots=roots)
        reread = 0
        if not self._shared.execute:
            self._follow(new.thread_id, subscription)
        try:
            while True:
                while queue:
                    if subscription.lagged:
                        subscription.lagged = False
                        async for event in follower.log():
                            reread = event.seq
                            yield event
                        continue
                    event = queue.popleft()
                    if event is end:
                        task.result()
                        if follower.elsewhere or not follower.last:
                            async for event in follower.log():
                                yield event
                        return
                    if isinstance(event, News):
                        async for shown in follower.heard(event):
                            yield shown
                        reread = follower.last
                        continue
                    if event.run.root_run_id not in roots:
                        continue
                    if event.run.thread_id == new.thread_id:
                        if event.seq <= follower.last if event.durable else event.seq < reread:
                            continue
                        follower.seen(event)
                    yield cast(AnyEvent, event)
                if not await self._news(new.thread_id, subscription, follower):
                    async for event in follower.look():
                        yield event
                    reread = follower.last
        finally:
            self._signals.leave(self._dispatch.tenant, new.thread_id, subscription)
            subscription.close()

    async def resume(
        self,
        run_id: str,
        *decisions: Decision,
        answers: Mapping[str, Any] | None = None,
        principal: Principal | None = None,
        request_id: str | None = None,
    ) -> RunResult:
        """Answer a waiting run's tickets and go on with it; those left open go on waiting.

        `answers` maps ticket or call ids to values. Nothing is changed if one of them doesn't fit. Giving the same
        decision twice does no harm, nor does repeating a `request_id`.
        """
        self._bind()
        given = decisions_of(decisions, answers, principal, request_of(request_id))
        return await resume(self._dispatch, run_id, given)

    async def cancel(self, run_id: str, reason: str = "cancelled by request") -> bool:
        """Cancel a run with everything it does, and wait until it is quiet; False if it was done before."""
        self._bind()
        return await cancel(self._dispatch, run_id, reason)

    async def send(
        self,
        thread: str,
        input: Input,
        *,
        agent: str | Agent | None = None,
        policy: InputPolicy | None = None,
        principal: Principal | None = None,
        request_id: str | None = None,
        at: datetime | None = None,
        priority: int = PRIORITY,
    ) -> Receipt:
        """Give a thread input without waiting for what comes of it.

        On a thread with an open run the policy decides: `queue` runs it afterwards, `steer` shows it to the
        running run at its next step, `interrupt` cancels that run first, `reject` raises `ThreadBusy`. By default
        it is queued, or steers a run that waits for tasks. A free thread starts a run in the background. `agent`
        is by default the one that ran last. With a time `at`, nobody is shown it before.
        """
        self._bind()
        thread_of(thread)
        one_of(policy, get_args(InputPolicy), "policy")
        if agent is None:
            stored = await self._env.store.load(thread)
            agent = stored.thread.last_agent_id if stored is not None else None
            if agent is None:
                raise UsageError(f"thread {thread!r} has had no run; say which agent: send(..., agent=...)")
        new = self._new(agent, input, thread, principal, None, (), None, request_id)
        new = replace(new, at=time_of(None, at, self._env.clock.now()), priority=priority_of(priority))
        await send(self._dispatch, new, policy)
        if new.at is not None:
            self._shared.keeper.look()
        return Receipt(cast(Message, new.message).id, thread)

    def run_sync(self, agent: str | Agent, input: Input, **options: Any) -> RunResult:
        """`run` for programs without an event loop; takes the same options."""
        return self._own_loop.run(self, lambda: self.run(agent, input, **options), self._env.grace)

    def resume_sync(self, run_id: str, *decisions: Decision, **options: Any) -> RunResult:
        """`resume` for programs without an event loop; takes the same options."""
        return self._own_loop.run(self, lambda: self.resume(run_id, *decisions, **options), self._env.grace)

    # -- lifetime --------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Runtime:
        self._bind()
        if self._shared.execute:
            self._shared.keeper.serve(self._shared.retention)
            self._shared.courier.serve()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def drain(self, grace: float = DRAIN_GRACE) -> int:
        """Claim and begin nothing more, and hand over what runs, of all tenants: each run goes on to the end of
        its open step, and from there in another process on the store. What takes longer than `grace` seconds is
        cut off and recovered elsewhere by its tools' effects; returns how many that were. A store in memory has no
        other process: there it is waited for, and `close` cancels the rest.
        """
        shared = self._shared
        await shared.keeper.stop()
        dispatchers = [runtime._dispatch for runtime in shared.tenants.values()]
        if shared.env.store.durable:
            return await drain(dispatchers, grace)
        for dispatch in dispatchers:
            dispatch.stop()
        ends = [act.ended() for dispatch in dispatchers for act in dispatch.active.values()]
        if ends:
            await asyncio.wait(ends, timeout=grace)
        return sum(len(dispatch.active) for dispatch in dispatchers)

    async def close(self, grace: float = DRAIN_GRACE) -> None:
        """Drain, wait until all is quiet, and close the store. What runs on a store in memory is cancelled."""
        shared = self._shared
        await shared.keeper.stop()
        if shared.env.store.durable:
            await self.drain(grace)
        await shared.courier.close()
        for runtime in shared.tenants.values():
            await runtime._dispatch.close()
            runtime._bus.close()
        shared.env.threads.close()
        await shared.keeper.close()
        await shared.signals.close()
        await shared.env.registry.close()
        await shared.env.store.close()

    def _bind(self) -> None:
        loop, shared = asyncio.get_running_loop(), self._shared
        if shared.loop is loop:
            return
        if shared.loop is not None and not shared.loop.is_closed():
            raise UsageError(
                "this runtime belongs to another event loop; make one runtime for each loop, "
                "or use run_sync from other threads"
            )
        shared.loop = loop
        shared.signals.open()

    def _new(
        self,
        agent: str | Agent,
        input: Input,
        thread: str | None,
        principal: Principal | None,
        settings: ModelSettings | None,
        client_tools: Sequence[ClientTool],
        state: Mapping[AnyKey, Any] | None,
        request_id: str | None,
    ) -> NewRun:
        agent_id = agent.id if isinstance(agent, Agent) else agent
        self._env.registry.resolve(agent_id)
        options = None
        if principal is not None or settings is not None or state is not None:
            instance_of(principal, Principal, "principal")
            settings_of(settings)
            instance_of(state, Mapping, "state")
        if settings is not None or client_tools:
            for tool in client_tools:
                instance_of(tool, ClientTool, "client_tools")
            if problems := [problem for tool in client_tools for problem in tool.problems()]:
                raise ConfigurationError(problems)
            specs = tuple([tool.spec for tool in client_tools])
            options = RunOptions(settings or ModelSettings(), specs)
        run_id = new_id()
        return NewRun(
            run_id=run_id,
            thread_id=run_id if thread is None else thread_of(thread),
            agent_id=agent_id,
            message=message_of(input, principal),
            principal=principal,
            options=options,
            seed=self._seed(state),
            request_id=request_of(request_id),
        )

    def _seed(self, state: Mapping[AnyKey, Any] | None) -> dict[str, bytes]:
        if not state:
            return {}
        seed: dict[str, bytes] = {}
        for key, value in state.items():
            self._env.registry.catalog.check_key(key)
            seed[key.name] = key.encode(value)
            key.decode(seed[key.name])
        return seed
