"""One exchange with a remote agent: send a message, at most once where that can be known, and follow its task."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import structs

from ...errors import ConfigurationError, ExecutionFailed, NoCredentials, RemoteError
from .faults import Errored, Fault, NoSuchTask, NotOffered, Refused, Unreachable
from .objects import (
    INTERRUPTED,
    TERMINAL,
    ArtifactUpdate,
    Event,
    RemoteMessage,
    RemotePart,
    RemoteTask,
    StatusUpdate,
)
from .progress import Progress
from .state import RemoteState
from .wire import Wire

__all__ = ["Session", "find_task", "retry"]

T = TypeVar("T")

# Backoff, in seconds.
FIRST_PAUSE = 0.25
MAX_PAUSE = 10.0
# The number of consecutive failures that ends an exchange. A remote that doesn't answer and has no task yet is
# tried for the agent's `connect_timeout` in any case.
MAX_FAILURES = 6
# The longest Retry-After that is honoured, in seconds.
MAX_RETRY_AFTER = 60.0
# Seconds that a stream may stay open after its task has settled.
LINGER = 0.25
# Seconds between two snapshots of a task whose stream was resubscribed.
SNAPSHOT_INTERVAL = 0.25

SETTLED = TERMINAL | INTERRUPTED


def pause_after(failures: int, fault: Fault | None = None) -> float:
    """Seconds to wait after a failure: the remote's Retry-After, or exponential backoff with jitter."""
    retry_after = fault.retry_after if isinstance(fault, Unreachable) else None
    if retry_after is not None:
        return min(retry_after, MAX_RETRY_AFTER)
    # The exponent is capped: a task may be polled for days, and a float would overflow.
    return min(FIRST_PAUSE * 1.6 ** min(failures, 32), MAX_PAUSE) * random.uniform(0.5, 1.0)


class RetryBudget:
    """The failures allowed before an exchange is given up.

    A remote gets `tries` attempts, and one that doesn't answer at all at least `seconds`. A failure with a
    Retry-After counts like any other.
    """

    def __init__(self, tries: int, seconds: float) -> None:
        self._tries = tries
        self._seconds = seconds
        self._since = asyncio.get_running_loop().time()
        self.failures = 0

    def is_spent(self, fault: Fault) -> bool:
        """Count a failure; returns whether no other attempt is left."""
        self.failures += 1
        is_silent = isinstance(fault, Unreachable) and fault.retry_after is None
        waited = asyncio.get_running_loop().time() - self._since
        return self.failures >= self._tries and not (is_silent and waited < self._seconds)

    def error(self, what: str, fault: Fault, *, in_doubt: bool = False) -> RemoteError:
        """The error of a spent budget; `in_doubt` says that the remote may have started work."""
        advice = ""
        if isinstance(fault, Unreachable) and self._seconds and not (fault.may_have_started or in_doubt):
            advice = (
                ". No work was started: check that the agent runs and can be reached from here, and retry the "
                f"run; it is tried for the agent's `connect_timeout`, {self._seconds:g} s"
            )
        return RemoteError(f"given up after {self.failures} {what}, the last: {fault}{advice}")


async def retry(
    call: Callable[[], Awaitable[T]], tries: int = MAX_FAILURES, *, has_task: bool = False, seconds: float = 0
) -> T:
    """Make a read-only call, with retries.

    If the remote `has_task`, it is retried until the caller's deadline while unreachable: it may be restarting.
    """
    budget = RetryBudget(tries, seconds)
    while True:
        try:
            return await call()
        except (Unreachable, Errored) as fault:
            if budget.is_spent(fault) and not (has_task and isinstance(fault, Unreachable)):
                raise budget.error("failures in a row", fault) from None
            await asyncio.sleep(pause_after(budget.failures - 1, fault))


async def find_task(wire: Wire, state: RemoteState) -> RemoteTask | None:
    """Find the task of a message whose reply was lost, if the remote can list tasks."""
    try:
        tasks = await wire.list(state.context_id, pages=4)
        own = [task for task in tasks if _has_message(task, state)]
        if not own and not tasks:
            # A remote may have chosen another context.
            own = [task for task in await wire.list(None, pages=2) if _has_message(task, state)]
    except Refused:
        return None
    if not own:
        # A remote may keep no history. The only new task of the conversation is then this one.
        new = [task for task in tasks if task.id not in state.known_tasks]
        own = [task for task in new if not any(message.role == "ROLE_USER" for message in task.history)]
        if len(new) > 1:
            return None
    return own[0] if own else None


def _has_message(task: RemoteTask, state: RemoteState) -> bool:
    return any(message.message_id == state.message_id for message in task.history)


class Session:
    """Sends the message of a state, follows its task, and saves the state as it changes.

    `may_resend` says whether the same message may be sent again: the remote dedupes, or the effect allows it.
    `is_unsent` is true while it is certain that the message was not sent. `fault` is the error of the last fetch
    of the task.
    """

    def __init__(
        self,
        wire: Wire,
        state: RemoteState,
        *,
        save: Callable[[dict[str, Any]], Awaitable[None]],
        emit: Callable[[str], None],
        streams: bool,
        may_resend: bool,
        connect_timeout: float,
    ) -> None:
        self.wire = wire
        self._save = save
        self._emit = emit
        self._streams = streams
        self._may_resend = may_resend
        self._budget = RetryBudget(MAX_FAILURES, connect_timeout)
        self._in_doubt = False
        self._next_snapshot = 0.0
        self.is_unsent = False
        self.fault: Fault | None = None
        self.state = state
        self.progress = Progress(emit, state.asked)

    async def start(self, parts: tuple[RemotePart, ...]) -> None:
        """Save the intent to send a message, send it, and follow its task."""
        await self._save(self.state.dump())
        await self._deliver(parts)

    def reset(self, state: RemoteState) -> None:
        """Replace the current message by that of another state."""
        self.state, self.progress = state, Progress(self._emit, state.asked)

    @property
    def is_answering(self) -> bool:
        """Whether the message is for a waiting task and wasn't accepted yet."""
        return self.state.stage == "intent" and self.state.task_id is not None

    async def follow_unanswered(self) -> None:
        """Follow the task after its question's answer was refused: it still waits, or continued by itself."""
        self.state, self.progress = structs.replace(self.state, stage="sent", asked=""), Progress(self._emit)
        await self._save(self.state.dump())
        await self._follow()

    async def resume(self, parts: tuple[RemotePart, ...]) -> None:
        """Resume the exchange of an earlier activation, without sending a message that may have been sent."""
        if self.state.stage == "sent":
            await self._follow()
        else:
            await self._resolve_doubt(parts, "the process stopped while it sent the message")

    async def _deliver(self, parts: tuple[RemotePart, ...]) -> None:
        state = self.state
        message = RemoteMessage(state.message_id, "ROLE_USER", parts, state.context_id, state.task_id or "")
        while True:
            self.is_unsent = False
            try:
                await self._send(message)
            except (NoCredentials, ConfigurationError):
                self.is_unsent = self.state.stage == "intent" and not self._in_doubt
                raise
            except Fault as fault:
                # A known task is followed. Without one, it matters whether the remote may have started work.
                if self.state.stage == "intent":
                    if isinstance(fault, Unreachable) and fault.may_have_started:
                        await self._pause(fault)
                        return await self._resolve_doubt(parts, str(fault))
                    if await self._may_send_again(fault):
                        continue
                    if isinstance(fault, Refused) or not await self._adopt():
                        raise
            return await self._follow()

    async def _may_send_again(self, fault: Fault) -> bool:
        """Whether the remote started nothing and another attempt may succeed; waits before it."""
        if isinstance(fault, Unreachable):
            self.is_unsent = not self._in_doubt
            await self._pause(fault)
            return True
        if isinstance(fault, NotOffered) and self._streams:
            self._streams = False  # The card declares streams, but the server has none.
            return True
        return False

    async def _send(self, message: RemoteMessage) -> None:
        if self._streams:
            await self._read(self.wire.stream(message), self._apply)
        else:
            await self._apply(await self.wire.send(message))
        if self.state.stage == "intent" and not self.progress.is_settled:
            raise Unreachable("the answer ended before it named a task", may_have_started=True)

    async def _resolve_doubt(self, parts: tuple[RemotePart, ...], doubt: str) -> None:
        """Follow the task of a message that may have arrived; without one, send it again if it may be resent."""
        self._in_doubt = True
        if await self._adopt():
            return await self._follow()
        if self._may_resend:
            return await self._deliver(parts)
        raise ExecutionFailed(
            f"outcome unknown: {doubt}, and the remote can't tell whether it took message "
            f"{self.state.message_id}. It isn't sent again, as the agent's effect is 'once': check the remote, or "
            "give the agent the effect 'idempotent' if a message may be processed twice"
        )

    async def _adopt(self) -> bool:
        task = await self._find_adoptable()
        if task is not None:
            await self._apply(task)
        return task is not None

    async def _find_adoptable(self) -> RemoteTask | None:
        if self.state.task_id is None:
            found = await retry(lambda: find_task(self.wire, self.state), has_task=True)
            # Listed tasks lack their artifacts.
            return None if found is None else await self._get(found.id)
        task = await self._get(self.state.task_id)
        # A task that no longer waits with the question got its answer.
        accepted = task.status.state not in INTERRUPTED or task.status.mark != self.state.asked
        return task if accepted or _has_message(task, self.state) else None

    async def _follow(self) -> None:
        rounds = 0
        while not self.progress.is_settled:
            await self._apply(await self._get(self._task_id))
            if self._streams and not self.progress.is_settled and await self._resubscribe():
                rounds = 0
            if not self.progress.is_settled:
                await asyncio.sleep(pause_after(rounds))
                rounds += 1

    async def _resubscribe(self) -> bool:
        """Follow the task's stream to its end; returns whether it had any event."""
        try:
            return await self._read(self.wire.subscribe(self._task_id), self._apply_resubscribed) > 0
        except Refused:  # Streams aren't offered, or the task is over: the next snapshot shows which.
            self._streams = False
        except Fault:
            pass
        return False

    async def _get(self, task_id: str) -> RemoteTask:
        async def fetch() -> RemoteTask:
            try:
                task = await self.wire.get(task_id)
            except Fault as fault:
                self.fault = fault
                raise
            self.fault = None
            return task

        try:
            return await retry(fetch, has_task=True)
        except NoSuchTask:
            raise ExecutionFailed(
                f"outcome unknown: the remote no longer knows task {task_id}, which it had started"
            ) from None

    @property
    def _task_id(self) -> str:
        return self.state.task_id or ""

    async def _read(self, events: AsyncIterator[Event], apply: Callable[[Event], Awaitable[None]]) -> int:
        """Apply the events of a stream until it ends or lingers after the task settled; returns their number.

        The SDK's streams are nested generators. Only their end or a cancellation inside closes all of them;
        leaving the loop would leave them to the garbage collector.
        """
        received, failure = 0, None
        now = asyncio.get_running_loop().time
        linger = asyncio.timeout(None)
        try:
            async with linger:
                async for event in events:
                    if failure is not None:
                        continue
                    received += 1
                    try:
                        await apply(event)
                    except BaseException as error:
                        failure = error
                        linger.reschedule(now())
                    else:
                        linger.reschedule(now() + LINGER if self.progress.is_settled else None)
        except TimeoutError:
            if not linger.expired():
                raise
        if failure is not None:
            raise failure
        return received

    async def _apply_resubscribed(self, event: Event) -> None:
        """Apply an event of a resubscribed stream.

        A snapshot may already contain the artifacts of the event, so a snapshot is fetched instead, at intervals
        and when the task settles.
        """
        settles = isinstance(event, StatusUpdate) and event.status.state in SETTLED
        now = asyncio.get_running_loop().time()
        if not settles and not isinstance(event, ArtifactUpdate):
            await self._apply(event)
        elif settles or now >= self._next_snapshot:
            self._next_snapshot = now + SNAPSHOT_INTERVAL
            await self._apply(await self._get(self._task_id))

    async def _apply(self, event: Event) -> None:
        ids = _ids_of(event)
        if ids is not None and self.state.stage == "intent":
            task_id, context_id = ids
            context_id = context_id or self.state.context_id
            self.state = structs.replace(self.state, stage="sent", task_id=task_id, context_id=context_id)
            await self._save(self.state.dump())
        elif ids is not None and ids[0] != self.state.task_id:
            return  # An event of another task.
        elif isinstance(event, RemoteMessage) and event.context_id:
            self.state = structs.replace(self.state, context_id=event.context_id)
        if isinstance(event, StatusUpdate) and event.status.state == "TASK_STATE_COMPLETED":
            await self._complete_artifacts()
        self.progress.apply(event)

    async def _complete_artifacts(self) -> None:
        """Fetch the artifacts of a completed task if its updates had none: not every remote streams them."""
        if self.progress.has_artifacts:
            return
        with suppress(Refused):  # The remote keeps no finished tasks: the updates are all there is.
            task = await retry(lambda: self.wire.get(self._task_id))
            self.progress.set_artifacts(task.artifacts)

    async def _pause(self, fault: Unreachable) -> None:
        if self._budget.is_spent(fault) and self.state.task_id is None:  # A remote with a task is waited for.
            raise self._budget.error("attempts to send the message", fault, in_doubt=self._in_doubt)
        await asyncio.sleep(pause_after(self._budget.failures - 1, fault))


def _ids_of(event: Event) -> tuple[str, str] | None:
    match event:
        case RemoteTask(id=task_id, context_id=context_id) if task_id:
            return task_id, context_id
        case StatusUpdate(task_id=task_id, context_id=context_id) if task_id:
            return task_id, context_id
        case ArtifactUpdate(task_id=task_id, context_id=context_id) if task_id:
            return task_id, context_id
        case _:
            return None
