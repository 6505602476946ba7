"""Runs as an application begins, follows and answers them: the runtime's doing half."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from ._checks import (
    client_tools_of,
    decisions_of,
    id_of,
    instance_of,
    message_of,
    one_of,
    priority_of,
    request_of,
    settings_of,
    thread_of,
    time_of,
    twice,
)
from ._following import Follower
from ._mailing import Mailing
from ._sync import OwnLoop
from ._working import Working
from .agents import Agent, said_to
from .bus import News
from .dispatch import Dispatcher, NewRun, RunResult, cancel, item_of, resume, retry, send
from .errors import ConfigurationError, UsageError
from .errors._arguments import known_to
from .state import AnyKey
from .stores import Beside, InboxItem, InputPolicy
from .tools import ClientTool
from .types.content import Content, given_text
from .types.copies import own_event
from .types.events import AnyEvent, Event
from .types.ids import new_id
from .types.mail import Receipt
from .types.requests import ModelSettings
from .types.runs import PRIORITY, Identity, Principal, RunOptions
from .types.tickets import Decision

__all__ = ["RunHandle", "Running"]

# A text, content parts, or a value of the type that the agent declares as its `input`.
Input = str | Sequence[Content] | object


class RunHandle(Struct, frozen=True, eq=False):
    """A run that was started: it is in the store, and goes on by itself."""

    run_id: str
    thread_id: str
    _runtime: Running
    _dispatch: Dispatcher
    _bind: Callable[[], None]

    async def result(self) -> RunResult:
        """Wait until the run waits or is done, whichever process runs it."""
        self._bind()
        return await self._dispatch.wait(self.run_id)

    async def cancel(self, reason: str = "cancelled by request") -> bool:
        """Cancel the run with everything it does; False if it was done before."""
        return await self._runtime.cancel(self.run_id, reason)

    def events(self, *, after: int | str = 0) -> AsyncIterator[AnyEvent]:
        """The thread's events, from behind a cursor, as they happen."""
        return self._runtime.events(self.thread_id, after=after)


class Running(Mailing, Working):
    """What a runtime does with runs."""

    _own_loop: OwnLoop

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
        message_id: str | None = None,
        delay: float | None = None,
        at: datetime | None = None,
        priority: int = PRIORITY,
    ) -> RunHandle:
        """Begin a run as `run` does, and return once it is in the store; it goes on in the background.

        With a `delay` in seconds, or a time `at`, it begins then, where the store is served. The lower its
        `priority` (0 to 255), the sooner a worker claims it. A `message_id` is kept with the message, for those
        outside who know it by that.
        """
        self._bind()
        new = self._new(agent, input, thread, principal, settings, client_tools, state, request_id, message_id)
        if delay is not None or at is not None or priority != PRIORITY:
            new = replace(new, at=time_of(delay, at, self._env.clock.now()), priority=priority_of(priority))
        first = None if new.request_id is None else await self._store.item(new.request_id)
        if first is not None and first.status != "pending":
            return self._handle(new, first)
        run_id = new.run_id
        if new.at is None:
            run_id = await self._begin(new, fresh=thread is None)
        elif first is None:
            self._dispatch.check_open()
            await self._dispatch.check_room()
            await self._dispatch.deliver(item_of(new, "queue"))
            self._dispatch.keeper.look()
        if new.request_id is not None:  # Another may have been faster.
            first = await self._store.item(new.request_id)
        return self._handle(replace(new, run_id=run_id), first)

    async def _begin(self, new: NewRun, *, fresh: bool) -> str:
        """Begin a run that goes on in the background; its id, once it is in the store."""
        ids = [new.run_id]
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[None] = loop.create_future()
        work = self._dispatch.run(new, fresh=fresh, opened=ids.append, begun=begun)
        task = loop.create_task(work)
        self._dispatch.track(task, heard=True)
        try:
            await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
            return task.result().run_id if task.done() else ids[-1]
        finally:
            if not task.done():
                self._dispatch.track(task)  # From here on nobody is told what it raises.

    def _handle(self, new: NewRun, first: InboxItem | None) -> RunHandle:
        """The handle of a run, or of the one that its request began when it was made first."""
        run_id, thread_id = new.run_id, new.thread_id
        if first is not None:
            run_id, thread_id = first.taken_by or first.run_id or run_id, first.thread_id
        return RunHandle(run_id, thread_id, self, self._dispatch, self._bind)

    async def wait(self, run_id: str) -> RunResult:
        """Wait until a run waits or is done, whichever process runs it."""
        self._bind()
        await self.get_run(run_id)
        return await self._dispatch.wait(run_id)

    async def retry(self, run_id: str) -> RunResult:
        """Go on with a failed run from its last committed step."""
        self._bind()
        return await retry(self._dispatch, id_of(run_id, "run"))

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
        queue = cast("deque[AnyEvent | News]", subscription.events)
        follower = Follower(self._env, new.thread_id, roots=roots)
        reread = 0
        here: Identity | None = None  # Whose events came last that are of this thread, and asked for.
        if not self._dispatch.execute:
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
                    if not isinstance(event, Event):
                        async for shown in follower.heard(event):
                            yield shown
                        reread = follower.last
                        continue
                    if (run := event.run) is not here:
                        if run.root_run_id not in roots:
                            continue
                        if run.thread_id != new.thread_id:
                            yield own_event(event)
                            continue
                        here = run
                    if event.seq <= follower.last if event.durable else event.seq < reread:
                        continue
                    if (follower.last or follower.elsewhere) and follower.missed(event):
                        async for logged in follower.log(event.seq - event.durable):
                            yield logged
                    follower.seen(event)
                    yield own_event(event)
                if not await self._news(new.thread_id, subscription, follower) and roots:
                    async for event in follower.look(queue):
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
        said: Input | None = None,
        principal: Principal | None = None,
        request_id: str | None = None,
        message_id: str | None = None,
    ) -> RunResult:
        """Answer a waiting run's tickets and go on with it; those left open go on waiting.

        `answers` maps ticket or call ids to values. What is `said` beside them is shown to the run at its next
        step, as the message of that `message_id`. Nothing is changed if one of them doesn't fit. Giving the same
        decision twice does no harm, nor does repeating a `request_id`.
        """
        self._bind()
        known = request_of(request_id)
        given, beside = decisions_of(decisions, answers, principal, known), None
        if said is not None:
            said_id = new_id() if known is None else f"{known}:said"
            words = message_of(said, principal, message_id)
            # Where it goes is the run's to say.
            beside = Beside(id=said_id, thread_id="", message=words, principal=principal, run_id=new_id())
        return await resume(self._dispatch, id_of(run_id, "run"), given, beside)

    async def cancel(self, run_id: str, reason: str = "cancelled by request") -> bool:
        """Cancel a run with everything it does, and wait until it is quiet; False if it was done before."""
        self._bind()
        reason = given_text(reason, "the reason to cancel")
        return await cancel(self._dispatch, id_of(run_id, "run"), reason)

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
        running run at its next step, `interrupt` cancels that run first, but for its work in the background, which
        is the new run's then, `reject` raises `ThreadBusy`. By default it is queued, or steers a run that waits
        for tasks. A free thread starts a run in the background. `agent` is by default the one that ran last. With
        a time `at`, nobody is shown it before.
        """
        self._bind()
        thread_of(thread)
        one_of(policy, get_args(InputPolicy), "policy")
        if agent is None:
            stored = await self._store.load(thread)
            agent = stored.thread.last_agent_id if stored is not None else None
            if agent is None:
                raise UsageError(
                    f"thread {thread!r} has had no run, or none is left; say which agent: send(..., agent=...)"
                )
        new = self._new(agent, input, thread, principal, None, (), None, request_id)
        new = replace(new, at=time_of(None, at, self._env.clock.now()), priority=priority_of(priority))
        receipt = await send(self._dispatch, new, policy)
        if new.at is not None:
            self._dispatch.keeper.look()
        return receipt

    def run_sync(self, agent: str | Agent, input: Input, **options: Any) -> RunResult:
        """`run` for programs without an event loop; takes the same options."""
        self._check_open()
        known_to(self.run, "run_sync", options)
        return self._own_loop.run(self, lambda: self.run(agent, input, **options), self._env.grace)

    def resume_sync(self, run_id: str, *decisions: Decision, **options: Any) -> RunResult:
        """`resume` for programs without an event loop; takes the same options."""
        self._check_open()
        known_to(self.resume, "resume_sync", options)
        return self._own_loop.run(self, lambda: self.resume(run_id, *decisions, **options), self._env.grace)

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
        message_id: str | None = None,
    ) -> NewRun:
        agent_id = agent.id if isinstance(agent, Agent) else agent
        resolved = self._env.registry.resolve(agent_id)
        said = input if type(input) is str else said_to(agent_id, resolved.input, input)
        options = None
        if principal is not None or settings is not None or state is not None:
            instance_of(principal, Principal, "principal")
            settings_of(settings)
            instance_of(state, Mapping, "state")
        if settings is not None or client_tools:
            tools = client_tools_of(client_tools or ())
            problems = [problem for tool in tools for problem in tool.problems()]
            specs = tuple([tool.spec for tool in tools])
            if problems := problems or twice([spec.name for spec in specs]):
                raise ConfigurationError(problems)
            options = RunOptions(settings or ModelSettings(), specs)
        run_id = new_id()
        return NewRun(
            run_id=run_id,
            thread_id=run_id if thread is None else thread_of(thread),
            agent_id=agent_id,
            message=message_of(said, principal, message_id),
            principal=principal,
            options=options,
            seed=self._seed(state) if state else {},
            request_id=None if request_id is None else request_of(request_id),
        )

    def _seed(self, state: Mapping[AnyKey, Any]) -> dict[str, bytes]:
        seed: dict[str, bytes] = {}
        for key, value in state.items():
            self._env.registry.catalog.check_key(key)
            seed[key.name] = key.encode(value)
            key.decode(seed[key.name])
        return seed
