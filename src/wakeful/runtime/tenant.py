"""The handle of one tenant: the everyday verbs, and a namespace for each noun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, get_args

from msgspec.structs import replace

from ..agents import Agent
from ..dispatch import (
    Caller,
    NewRun,
    RunResult,
    await_run,
    cancel,
    check_result,
    first_item,
    item_of,
    resume,
    run_new,
    send,
)
from ..errors import ThreadExists, UsageError
from ..errors.arguments import checked_methods, refuse_unknown_options
from ..state import AnyKey
from ..stores import Store, UsageKey, UsageRow
from ..tools import ClientTool
from ..traces import Tracer
from ..types.content import require_text
from ..types.events import AnyEvent
from ..types.generics import RunOutput
from ..types.ids import new_id
from ..types.inbox import InboxItem, InputItem, InputPolicy, Request
from ..types.mail import Receipt
from ..types.messages import Message
from ..types.requests import ModelSettings
from ..types.runs import PRIORITY, Author, Principal
from ..types.tickets import Decision
from .agents import Agents
from .arguments import (
    check_author,
    check_choice,
    check_id,
    check_priority,
    check_request_id,
    check_thread_id,
    check_usage_keys,
    make_decisions,
    make_message,
    parse_time,
)
from .events import run_events, thread_events
from .grants import Grants
from .handles import RunHandle
from .lifetime import DRAIN_GRACE, close
from .mail import Mail
from .memories import Memories
from .requests import Input, new_run, traced
from .runs import Runs, find_run
from .schedules import Schedules
from .scope import Scope
from .tasks import Tasks
from .threads import Threads
from .tickets import Tickets
from .workers import Workers

__all__ = ["TenantRuntime"]


@checked_methods("Runtime")
class TenantRuntime:
    """Runs agents for one tenant. `Runtime.tenant(name)` returns it; it reaches no other tenant.

    Under `async with` it keeps the runtime serving. The runtime closes once the last such block is left.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.runs = Runs(scope)
        self.threads = Threads(scope)
        self.tickets = Tickets(scope)
        self.tasks = Tasks(scope)
        self.mail = Mail(scope)
        self.schedules = Schedules(scope)
        self.grants = Grants(scope)
        self.memories = Memories(scope)
        self.agents = Agents(scope.env.registry)

    @property
    def workers(self) -> Workers:
        """The tenant's dispatches."""
        return Workers(self._scope)

    @property
    def tracer(self) -> Tracer | None:
        """The tracer of `Runtime(telemetry=...)`."""
        return self._scope.env.tracer

    @property
    def store(self) -> Store:
        """The tenant's store."""
        return self._scope.env.store

    # -- lifetime --------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        shared = self._scope.shared
        shared.bind()
        if shared.execute:
            shared.worker.serve(shared.retention)
            shared.courier.serve()
        shared.inside += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        shared = self._scope.shared
        shared.inside -= 1
        if not shared.inside:
            await close(shared, DRAIN_GRACE)

    # -- verbs -----------------------------------------------------------------------------------------------

    async def run(
        self,
        agent: str | Agent[RunOutput],
        input: Input,
        *,
        thread: str | None = None,
        principal: Principal | None = None,
        settings: ModelSettings | None = None,
        client_tools: Sequence[ClientTool] = (),
        state: Mapping[AnyKey, Any] | None = None,
        request_id: str | Request | None = None,
        check: bool = True,
    ) -> RunResult[RunOutput]:
        """Run an agent on a thread, a new one by default, until the run waits or is done.

        Raises `RunFailed` if the run failed; with `check=False` the result says so. A run that waits, or was
        stopped, cancelled or blocked, is returned.

        A thread has one open run. If another run is active, this one queues behind it. A run that waits for an
        answer is superseded; a run that waits for tasks gets the input. With a `request_id` the call can be
        repeated: a second call with the same id runs nothing and returns the first one's result.
        """
        scope = self._scope
        scope.bind()
        new = new_run(
            scope.env.registry, agent, input, thread, principal, settings, client_tools, state, request_id
        )
        new = traced(scope.env, new)
        with Caller(scope.dispatch) as caller:
            result = await run_new(scope.dispatch, new, fresh=thread is None, opened=caller.opened)
        return await check_result(scope.dispatch, result, check=check)

    async def start(
        self,
        agent: str | Agent[RunOutput],
        input: Input,
        *,
        thread: str | None = None,
        principal: Principal | None = None,
        settings: ModelSettings | None = None,
        client_tools: Sequence[ClientTool] = (),
        state: Mapping[AnyKey, Any] | None = None,
        request_id: str | Request | None = None,
        message_id: str | None = None,
        message_digest: str | None = None,
        history: Sequence[Message] = (),
        delay: float | None = None,
        at: datetime | None = None,
        priority: int = PRIORITY,
    ) -> RunHandle[RunOutput]:
        """Start a run as `run` does, and return once it is in the store; it continues in the background.

        With a `delay` in seconds or a time `at` it starts then, in a process that serves the store. Workers claim
        runs of a lower `priority` (0 to 255) first. `message_id` is the sender's own id of the message, and
        `message_digest` a hash of it: both are kept in the message's `producer`. A new thread may begin with a
        `history`, the messages of a conversation that was held elsewhere; raises `ThreadExists` for another one.
        """
        scope, dispatch = self._scope, self._scope.dispatch
        scope.bind()
        new = new_run(
            scope.env.registry,
            agent,
            input,
            thread,
            principal,
            settings,
            client_tools,
            state,
            request_id,
            message_id,
            message_digest,
            history,
        )
        new = traced(scope.env, new)
        if delay is not None or at is not None or priority != PRIORITY:
            new = replace(new, at=parse_time(delay, at, scope.env.clock.now()), priority=check_priority(priority))
        first = await first_item(scope.store, new.request)
        if first is not None and first.status != "pending":
            return _handle(scope, new, first)
        if history and thread is not None and await scope.store.thread(thread) is not None:
            raise ThreadExists(f"thread {thread!r} exists, so it can't begin with a history; leave `history` out")
        run_id = new.run_id
        if new.at is None:
            run_id = await _begin(scope, new, fresh=thread is None)
        elif first is None:
            dispatch.check_open()
            await dispatch.check_room()
            await dispatch.deliver(item_of(new, "queue"))
            dispatch.worker.look()
        # A concurrent call with the same id may have been first.
        first = await first_item(scope.store, new.request)
        return _handle(scope, replace(new, run_id=run_id), first)

    def stream(
        self,
        agent: str | Agent[Any],
        input: Input,
        *,
        thread: str | None = None,
        principal: Principal | None = None,
        settings: ModelSettings | None = None,
        client_tools: Sequence[ClientTool] = (),
        state: Mapping[AnyKey, Any] | None = None,
        check: bool = True,
    ) -> AsyncIterator[AnyEvent]:
        """Run an agent and yield its events, and those of the runs below it, as they happen.

        If the run failed, the stream raises `RunFailed` after its last event, unless `check` is False. The run
        continues if you leave the stream; `events` reads on, `cancel` stops the run.
        """
        env = self._scope.env
        registry = env.registry
        return run_events(
            self._scope,
            lambda: traced(env, new_run(registry, agent, input, thread, principal, settings, client_tools, state)),
            fresh=thread is None,
            check=check,
        )

    async def resume(
        self,
        run_id: str,
        *decisions: Decision,
        answers: Mapping[str, Any] | None = None,
        message: Input | None = None,
        principal: Principal | Author | None = None,
        request_id: str | Request | None = None,
        message_id: str | None = None,
        check: bool = True,
    ) -> RunResult[Any]:
        """Answer a waiting run's tickets and continue it; its other tickets stay open.

        `answers` maps ticket or call ids to values. A `message` beside them is shown to the run at its next
        step; `message_id` is the sender's own id of it. If one decision is refused, nothing is written. Repeating
        a decision or a `request_id` has no effect. With a `principal` its rights are checked, as
        `tickets.answer` does. Raises `RunFailed` as `run` does.
        """
        self._scope.bind()
        known, author = check_request_id(request_id), check_author(principal)
        given, beside = make_decisions(decisions, answers, author, known), None
        speaker = None if author is None else author.principal
        if message is not None:
            item_id = new_id() if known is None else f"{known.id}:message"
            content = make_message(message, speaker, message_id)
            # The thread is that of the run.
            beside = InputItem(
                id=item_id, thread_id="", message=content, principal=speaker, run_id=new_id(), policy="steer"
            )
        result = await resume(self._scope.dispatch, check_id(run_id, "run"), given, author, beside)
        return await check_result(self._scope.dispatch, result, check=check)

    async def cancel(self, run_id: str, reason: str = "cancelled by request") -> bool:
        """Cancel a run with everything below it, and wait until that has ended; False if it was done before."""
        self._scope.bind()
        reason = require_text(reason, "the reason to cancel")
        return await cancel(self._scope.dispatch, check_id(run_id, "run"), reason)

    async def wait(self, run_id: str, *, check: bool = True) -> RunResult[Any]:
        """Wait until a run waits or is done, whichever process executes it. Raises `RunFailed` as `run` does."""
        self._scope.bind()
        await find_run(self._scope.store, run_id)
        return await await_run(self._scope.dispatch, run_id, check=check)

    async def send(
        self,
        thread: str,
        input: Input,
        *,
        agent: str | Agent[Any] | None = None,
        policy: InputPolicy | None = None,
        principal: Principal | None = None,
        request_id: str | Request | None = None,
        at: datetime | None = None,
        priority: int = PRIORITY,
    ) -> Receipt:
        """Put input into a thread's inbox, without waiting for its run.

        On an idle thread a run starts in the background, of the agent that ran there last unless `agent` says
        otherwise. On a thread with an open run the policy decides: `queue` runs the input afterwards, `steer`
        shows it to the run at its next step, `interrupt` cancels the run first (its background tasks pass to the
        new run), `reject` raises `ThreadBusy`. The default is `queue`, or `steer` for a run that waits for tasks.
        With a time `at`, no run sees the input before.
        """
        scope = self._scope
        scope.bind()
        check_thread_id(thread)
        check_choice(policy, get_args(InputPolicy), "policy")
        if agent is None:
            stored = await scope.store.load(thread)
            agent = stored.thread.last_agent_id if stored is not None else None
            if agent is None:
                raise UsageError(
                    f"thread {thread!r} has had no run, or none is left; say which agent: send(..., agent=...)"
                )
        new = new_run(scope.env.registry, agent, input, thread, principal, request_id=request_id)
        new = traced(scope.env, new, detached=True)
        new = replace(new, at=parse_time(None, at, scope.env.clock.now()), priority=check_priority(priority))
        receipt = await send(scope.dispatch, new, policy)
        if new.at is not None:
            scope.dispatch.worker.look()
        return receipt

    def events(
        self, thread: str, *, after: int | str = 0, follow: bool = True, snapshot: bool = False
    ) -> AsyncIterator[AnyEvent]:
        """A thread's events after a cursor: first from the log, then, with `follow`, as they happen.

        With `snapshot` the stream begins with the conversation and the state at present, and continues with the
        events after them. It ends when the thread is deleted. A malformed cursor raises `UsageError` at this call.
        """
        return thread_events(self._scope, thread, after=after, follow=follow, snapshot=snapshot)

    async def usage(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        by: Sequence[UsageKey] = ("agent", "model", "day"),
    ) -> Sequence[UsageRow]:
        """Requests to models, their tokens, cost, latency and errors, summed by agent, model and day in UTC.

        Counts requests that ended at `since` or later and before `until`. Rows are in the order of their keys;
        with `by=()` there is one row, or none without requests. Threads that were deleted still count.
        """
        keys = check_usage_keys(by)
        start, end = parse_time(None, since, 0), parse_time(None, until, 0)
        return await self._scope.store.usage(keys, since=start, until=end)

    def run_sync(self, agent: str | Agent[RunOutput], input: Input, **options: Any) -> RunResult[RunOutput]:
        """`run` for programs without an event loop; takes the same options."""
        shared = self._scope.shared
        shared.check_open()
        refuse_unknown_options(self.run, "run_sync", options)
        return shared.own_loop.run(shared, lambda: self.run(agent, input, **options), shared.env.grace)

    def resume_sync(self, run_id: str, *decisions: Decision, **options: Any) -> RunResult[Any]:
        """`resume` for programs without an event loop; takes the same options."""
        shared = self._scope.shared
        shared.check_open()
        refuse_unknown_options(self.resume, "resume_sync", options)
        return shared.own_loop.run(shared, lambda: self.resume(run_id, *decisions, **options), shared.env.grace)


async def _begin(scope: Scope, new: NewRun, *, fresh: bool) -> str:
    """Start a run in the background; returns its id once it is in the store."""
    dispatch = scope.dispatch
    ids = [new.run_id]
    loop = asyncio.get_running_loop()
    begun: asyncio.Future[None] = loop.create_future()
    task = loop.create_task(run_new(dispatch, new, fresh=fresh, opened=ids.append, started=begun))
    dispatch.track(task, is_awaited=True)
    try:
        await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        return task.result().run_id if task.done() else ids[-1]
    finally:
        if not task.done():
            dispatch.track(task)  # From here on its errors are logged.


def _handle(scope: Scope, new: NewRun, first: InboxItem | None) -> RunHandle[Any]:
    """The handle of a run, or of the run that an earlier call with the same request id started."""
    run_id, thread_id = new.run_id, new.thread_id
    if first is not None:
        run_id, thread_id = first.taken_by or first.run_id or run_id, first.thread_id
    return RunHandle(run_id, thread_id, scope)
