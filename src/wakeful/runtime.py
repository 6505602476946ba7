"""The runtime: the one object an application holds."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, cast, get_args

from msgspec import Struct

from ._checks import agents_of, cursor_of, decisions_of, instance_of, message_of, one_of, thread_of
from .agents import Agent, Registry, Toolish
from .bus import LocalBus
from .clock import Clock, SystemClock
from .delegation import DelegateTool
from .dispatch import Dispatcher, NewRun, RunResult, run_child
from .errors import ConfigurationError, UnknownRun, UsageError
from .loop import Environment
from .models import Model, VendorFactory
from .plugins import Plugin
from .state import AnyKey, State
from .stores import InputPolicy, MemoryStore, Store
from .tools import ClientTool, ToolThreads
from .types.content import Content
from .types.events import AnyEvent, Event, MessagesSnapshot, StateSnapshot
from .types.ids import new_id
from .types.messages import Message
from .types.requests import ModelSettings
from .types.runs import Call, Identity, Principal, RunOptions, RunRecord, RunStatus
from .types.tickets import Decision, Ticket

__all__ = ["Receipt", "Runtime"]

Input = str | Sequence[Content]

CANCEL_GRACE = 5.0


class Receipt(Struct, frozen=True):
    """What `send` answers: the message is in the thread's inbox."""

    message_id: str
    thread_id: str
    status: Literal["accepted"] = "accepted"


class Runtime:
    """Runs agents. Make one for the application, and use it as an async context manager or close it.

    Everything is checked here, and one error lists all that is wrong. `tools` are tools that agents refer to by
    name, `plugins` those that every agent has, `models` models and vendors by name, `keys` state keys that no
    plugin brings. Threads live in `store`, in memory by default.
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        *,
        tools: Sequence[Toolish] = (),
        plugins: Sequence[Plugin] = (),
        models: Mapping[str, Model | VendorFactory] | None = None,
        keys: Sequence[AnyKey] = (),
        store: Store | None = None,
        clock: Clock | None = None,
        cancel_grace: float = CANCEL_GRACE,
    ) -> None:
        if store is not None and not hasattr(store, "commit"):
            raise ConfigurationError(f"store must be a Store, such as MemoryStore(), not {store!r:.80}")
        if not isinstance(cast(Any, cancel_grace), int | float) or cancel_grace < 0:
            raise ConfigurationError(f"cancel_grace is in seconds and not negative, not {cancel_grace!r:.80}")
        self._registry = Registry(
            agents_of(agents),
            tools=tools,
            plugins=plugins,
            models=models,
            keys=keys,
            delegate_tool=lambda agent: DelegateTool(agent.id, agent.description),
        )
        self._store: Store = MemoryStore() if store is None else store
        self._bus = LocalBus()
        self._abandoned: set[Any] = set()
        env = Environment(
            self._registry,
            self._store,
            clock or SystemClock(),
            ToolThreads(),
            self._abandoned,
            cancel_grace,
            lambda act, ctx, agent_id, prompt: run_child(self._dispatch, act, ctx, agent_id, prompt),
        )
        self._dispatch = Dispatcher(env, self._bus)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own_loop: asyncio.AbstractEventLoop | None = None

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
    ) -> RunResult:
        """Run an agent on a thread, a new one by default, until the run waits or is done.

        A thread has one open run. While another runs, this one waits its turn; one that waits for an answer is
        superseded; one that waits for tasks is given the input.
        """
        self._bind()
        new = self._new(agent, input, thread, principal, settings, client_tools, state)
        return await self._dispatch.run(new, fresh=thread is None)

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
        new = self._new(agent, input, thread, principal, settings, client_tools, state)
        subscription = self._bus.watch(new.thread_id)
        roots: set[str] = set()
        work = self._dispatch.run(new, fresh=thread is None, opened=roots.add)
        task = asyncio.get_running_loop().create_task(work)
        self._dispatch.track(task, heard=True)  # The stream raises what it raises.
        end = cast(Event, None)
        task.add_done_callback(lambda _: subscription.push(end))
        queue = subscription.events
        last = reread = 0
        try:
            while True:
                while queue:
                    if subscription.lagged:
                        subscription.lagged = False
                        async for event in self._logged(new.thread_id, last):
                            last = reread = event.seq
                            if event.run.root_run_id in roots:
                                yield event
                        continue
                    event = queue.popleft()
                    if event is end:
                        task.result()
                        return
                    if event.run.root_run_id not in roots:
                        continue
                    if event.run.thread_id == new.thread_id:
                        if event.seq <= last if event.durable else event.seq < reread:
                            continue
                        last = max(last, event.seq)
                    yield cast(AnyEvent, event)
                await subscription.wait()
        finally:
            subscription.close()

    async def resume(
        self,
        run_id: str,
        *decisions: Decision,
        answers: Mapping[str, Any] | None = None,
        principal: Principal | None = None,
    ) -> RunResult:
        """Answer a waiting run's tickets and go on with it; those left open go on waiting.

        `answers` maps ticket or call ids to values. Nothing is changed if one of them doesn't fit.
        """
        self._bind()
        given = decisions_of(decisions, answers, principal)
        return await self._dispatch.resume(run_id, given)

    async def cancel(self, run_id: str, reason: str = "cancelled by request") -> bool:
        """Cancel a run with everything it does, and wait until it is quiet; False if it was done before."""
        self._bind()
        return await self._dispatch.cancel(run_id, reason)

    async def send(
        self,
        thread: str,
        input: Input,
        *,
        agent: str | Agent | None = None,
        policy: InputPolicy | None = None,
        principal: Principal | None = None,
    ) -> Receipt:
        """Give a thread input without waiting for what comes of it.

        On a thread with an open run the policy decides: `queue` runs it afterwards, `steer` shows it to the
        running run at its next step, `interrupt` cancels that run first, `reject` raises `ThreadBusy`. By default
        it is queued, or steers a run that waits for tasks. A free thread starts a run in the background. `agent`
        is by default the one that ran last.
        """
        self._bind()
        thread_of(thread)
        one_of(policy, get_args(InputPolicy), "policy")
        if agent is None:
            stored = await self._store.load(thread)
            agent = stored.thread.last_agent_id if stored is not None else None
            if agent is None:
                raise UsageError(f"thread {thread!r} has had no run; say which agent: send(..., agent=...)")
        new = self._new(agent, input, thread, principal, None, (), None)
        await self._dispatch.send(new, policy)
        return Receipt(new.message.id, thread)

    def run_sync(self, agent: str | Agent, input: Input, **options: Any) -> RunResult:
        """`run` for programs without an event loop; takes the same options."""
        return self._from_outside(lambda: self.run(agent, input, **options))

    def resume_sync(self, run_id: str, *decisions: Decision, **options: Any) -> RunResult:
        """`resume` for programs without an event loop; takes the same options."""
        return self._from_outside(lambda: self.resume(run_id, *decisions, **options))

    def _from_outside(self, work: Callable[[], Coroutine[Any, Any, RunResult]]) -> RunResult:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise UsageError("the sync calls can't be used inside an event loop; await the others instead")
        if self._own_loop is None:
            loop = self._own_loop = asyncio.new_event_loop()
            threading.Thread(target=_serve, args=(loop,), name="wakeful-loop", daemon=True).start()
            # The thread doesn't know the runtime: once nobody holds it any more, its loop ends.
            weakref.finalize(self, _stop, loop)
        quiet = threading.Event()
        future = asyncio.run_coroutine_threadsafe(_then(work(), quiet), self._own_loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            quiet.wait(self._dispatch.env.grace + 1)
            raise

    # -- reading ---------------------------------------------------------------------------------------------

    async def events(
        self, thread: str, *, after: int | str = 0, follow: bool = True, snapshot: bool = False
    ) -> AsyncIterator[AnyEvent]:
        """A thread's events from behind a cursor: first from the log, then, with `follow`, as they happen.

        With `snapshot` the conversation and the state as they stand come first, and events from there on.
        """
        last = cursor_of(after)
        subscription = self._bus.watch(thread) if follow and not self._dispatch.closed else None
        try:
            if snapshot:
                async for event in self._snapshot(thread):
                    last = event.seq
                    yield event
            async for event in self._logged(thread, last):
                last = event.seq
                yield event
            while subscription is not None:
                while subscription.events:
                    if subscription.lagged:
                        subscription.lagged = False
                        async for event in self._logged(thread, last):
                            last = event.seq
                            yield event
                        continue
                    event = cast(AnyEvent, subscription.events.popleft())
                    own = event.run.thread_id == thread
                    if own and (event.seq <= last if event.durable else event.seq < last):
                        continue
                    if own and event.durable:
                        last = event.seq
                    yield event
                if subscription.closed:
                    return
                await subscription.wait()
        finally:
            if subscription is not None:
                subscription.close()

    async def _logged(self, thread: str, after: int) -> AsyncIterator[AnyEvent]:
        while page := await self._store.events(thread, after=after):
            for event in page:
                yield cast(AnyEvent, event)
            after = page[-1].seq

    async def _snapshot(self, thread: str) -> AsyncIterator[AnyEvent]:
        stored = await self._store.load(thread)
        if stored is None:
            return
        run = stored.run or await self._store.run(stored.thread.last_run_id or "")
        identity = Identity("", thread, "", "") if run is None else run.identity
        now, head = self._dispatch.env.clock.now(), stored.thread.head
        messages = await self._store.messages(thread)
        yield MessagesSnapshot(identity, head, now, tuple(m for m in messages if m.seq <= head))
        yield StateSnapshot(identity, head, now, await self.state(thread))

    async def messages(self, thread: str) -> list[Message]:
        """A thread's conversation, oldest first."""
        return await self._store.messages(thread)

    async def state(self, thread: str) -> dict[str, Any]:
        """The persistent state of a thread, and of its open run if it has one, by the keys' names."""
        stored = await self._store.load(thread)
        if stored is None:
            return {}
        return State(self._registry.catalog.keys, {**stored.state, **stored.run_state}).export()

    async def get_run(self, run_id: str) -> RunRecord:
        """A run's record."""
        run = await self._store.run(run_id)
        if run is None:
            raise UnknownRun(f"no run {run_id!r} in this store")
        return run

    async def list_runs(
        self,
        *,
        thread: str | None = None,
        status: RunStatus | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Run records, newest first, older than the run `before`."""
        one_of(status, get_args(RunStatus), "status")
        if not isinstance(cast(Any, limit), int) or limit < 1:
            raise UsageError(f"limit is a positive number, not {limit!r:.80}")
        return await self._store.runs(thread_id=thread, status=status, before=before, limit=limit)

    async def calls(self, run_id: str) -> Sequence[Call]:
        """The ledger of a run's tool calls, in order."""
        await self.get_run(run_id)
        return await self._store.calls(run_id)

    async def tickets(self, run_id: str) -> Sequence[Ticket]:
        """All tickets of a run, in order, whatever became of them."""
        await self.get_run(run_id)
        return await self._store.tickets(run_id)

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents by id."""
        return self._registry.agents

    @property
    def abandoned(self) -> int:
        """Tool calls that were told to stop, didn't, and still run: tasks and threads."""
        return len(self._abandoned) + self._dispatch.env.threads.abandoned

    # -- lifetime --------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Runtime:
        self._bind()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel what runs, wait until all is quiet, and close the store."""
        await self._dispatch.close()
        self._bus.close()
        await self._store.close()

    def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            raise UsageError(
                "this runtime belongs to another event loop; make one runtime for each loop, "
                "or use run_sync from other threads"
            )
        self._loop = loop

    def _new(
        self,
        agent: str | Agent,
        input: Input,
        thread: str | None,
        principal: Principal | None,
        settings: ModelSettings | None,
        client_tools: Sequence[ClientTool],
        state: Mapping[AnyKey, Any] | None,
    ) -> NewRun:
        agent_id = agent.id if isinstance(agent, Agent) else agent
        self._registry.resolve(agent_id)
        options = None
        if principal is not None or settings is not None or state is not None:
            instance_of(principal, Principal, "principal")
            instance_of(settings, ModelSettings, "settings")
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
        )

    def _seed(self, state: Mapping[AnyKey, Any] | None) -> dict[str, bytes]:
        if not state:
            return {}
        seed: dict[str, bytes] = {}
        for key, value in state.items():
            self._registry.catalog.check_key(key)
            seed[key.name] = key.encode(value)
            key.decode(seed[key.name])
        return seed


async def _then(work: Coroutine[Any, Any, RunResult], quiet: threading.Event) -> RunResult:
    try:
        return await work
    finally:
        quiet.set()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
