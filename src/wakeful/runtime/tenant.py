"""The handle of one tenant: the everyday verbs, and a namespace for each noun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, get_args

from msgspec.structs import replace

from ..agents import Agent
from ..dispatch import NewRun, RunResult, cancel, item_of, resume, run_new, send, wait_for_run
from ..errors import UsageError
from ..errors.arguments import refuse_unknown_options
from ..state import AnyKey
from ..stores import Store
from ..tools import ClientTool
from ..types.content import require_text
from ..types.events import AnyEvent
from ..types.ids import new_id
from ..types.inbox import InboxItem, InputItem, InputPolicy
from ..types.mail import Receipt
from ..types.requests import ModelSettings
from ..types.runs import PRIORITY, Principal
from ..types.tickets import Decision
from .agents import Agents
from .arguments import (
    check_choice,
    check_id,
    check_priority,
    check_request_id,
    check_thread_id,
    make_decisions,
    make_message,
    parse_time,
)
from .events import run_events, thread_events
from .handles import RunHandle
from .lifetime import DRAIN_GRACE, close
from .mail import Mail
from .requests import Input, new_run
from .runs import Runs, find_run
from .schedules import Schedules
from .scope import Scope
from .tasks import Tasks
from .threads import Threads
from .tickets import Tickets
from .workers import Workers

__all__ = ["TenantRuntime"]


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
        self.agents = Agents(scope.env.registry)

    @property
    def workers(self) -> Workers:
        """The tenant's dispatches."""
        return Workers(self._scope)

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

        A thread has one open run. If another run is active, this one queues behind it. A run that waits for an
        answer is superseded; a run that waits for tasks gets the input. With a `request_id` the call can be
        repeated: a second call with the same id runs nothing and returns the first one's result.
        """
        scope = self._scope
        scope.bind()
        new = new_run(
            scope.env.registry, agent, input, thread, principal, settings, client_tools, state, request_id
        )
        return await run_new(scope.dispatch, new, fresh=thread is None)

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
        """Start a run as `run` does, and return once it is in the store; it continues in the background.

        With a `delay` in seconds or a time `at` it starts then, in a process that serves the store. Workers claim
        runs of a lower `priority` (0 to 255) first. `message_id` is the sender's own id of the message.
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
        )
        if delay is not None or at is not None or priority != PRIORITY:
            new = replace(new, at=parse_time(delay, at, scope.env.clock.now()), priority=check_priority(priority))
        first = None if new.request_id is None else await scope.store.item(new.request_id)
        if first is not None and first.status != "pending":
            return _handle(scope, new, first)
        run_id = new.run_id
        if new.at is None:
            run_id = await _begin(scope, new, fresh=thread is None)
        elif first is None:
            dispatch.check_open()
            await dispatch.check_room()
            await dispatch.deliver(item_of(new, "queue"))
            dispatch.worker.look()
        if new.request_id is not None:  # A concurrent call with the same id may have been first.
            first = await scope.store.item(new.request_id)
        return _handle(scope, replace(new, run_id=run_id), first)

    def stream(
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
        """Run an agent and yield its events, and those of the runs below it, as they happen.

        The run continues if you leave the stream; `events` reads on, `cancel` stops the run.
        """
        registry = self._scope.env.registry
        return run_events(
            self._scope,
            lambda: new_run(registry, agent, input, thread, principal, settings, client_tools, state),
            fresh=thread is None,
        )

    async def resume(
        self,
        run_id: str,
        *decisions: Decision,
        answers: Mapping[str, Any] | None = None,
        message: Input | None = None,
        principal: Principal | None = None,
        request_id: str | None = None,
        message_id: str | None = None,
    ) -> RunResult:
        """Answer a waiting run's tickets and continue it; its other tickets stay open.

        `answers` maps ticket or call ids to values. A `message` beside them is shown to the run at its next
        step; `message_id` is the sender's own id of it. If one decision is refused, nothing is written. Repeating
        a decision or a `request_id` has no effect.
        """
        self._scope.bind()
        known = check_request_id(request_id)
        given, beside = make_decisions(decisions, answers, principal, known), None
        if message is not None:
            item_id = new_id() if known is None else f"{known}:message"
            content = make_message(message, principal, message_id)
            # The thread is that of the run.
            beside = InputItem(
                id=item_id, thread_id="", message=content, principal=principal, run_id=new_id(), policy="steer"
            )
        return await resume(self._scope.dispatch, check_id(run_id, "run"), given, beside)

    async def cancel(self, run_id: str, reason: str = "cancelled by request") -> bool:
        """Cancel a run with everything below it, and wait until that has ended; False if it was done before."""
        self._scope.bind()
        reason = require_text(reason, "the reason to cancel")
        return await cancel(self._scope.dispatch, check_id(run_id, "run"), reason)

    async def wait(self, run_id: str) -> RunResult:
        """Wait until a run waits or is done, whichever process executes it."""
        self._scope.bind()
        await find_run(self._scope.store, run_id)
        return await wait_for_run(self._scope.dispatch, run_id)

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

    def run_sync(self, agent: str | Agent, input: Input, **options: Any) -> RunResult:
        """`run` for programs without an event loop; takes the same options."""
        shared = self._scope.shared
        shared.check_open()
        refuse_unknown_options(self.run, "run_sync", options)
        return shared.own_loop.run(shared, lambda: self.run(agent, input, **options), shared.env.grace)

    def resume_sync(self, run_id: str, *decisions: Decision, **options: Any) -> RunResult:
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


def _handle(scope: Scope, new: NewRun, first: InboxItem | None) -> RunHandle:
    """The handle of a run, or of the run that an earlier call with the same request id started."""
    run_id, thread_id = new.run_id, new.thread_id
    if first is not None:
        run_id, thread_id = first.taken_by or first.run_id or run_id, first.thread_id
    return RunHandle(run_id, thread_id, scope)


# A TypeError names the qualified name of its function. `Runtime` inherits the verbs, and is the class users know.
for _verb in ("run", "start", "stream", "resume", "cancel", "wait", "send", "events", "run_sync", "resume_sync"):
    getattr(TenantRuntime, _verb).__qualname__ = f"Runtime.{_verb}"
