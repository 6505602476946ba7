"""One exchange with a remote agent: a message is sent once, as far as that can be known, and its task followed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from msgspec import structs

from ...errors import ConfigurationError, ExecutionFailed, NoCredentials, RemoteError
from ._faults import Errored, Fault, NoSuchTask, NotOffered, Refused, Unreachable
from ._objects import (
    INTERRUPTED,
    TERMINAL,
    ArtifactUpdate,
    Event,
    RemoteMessage,
    RemotePart,
    RemoteTask,
    StatusUpdate,
)
from ._progress import Progress
from ._state import RemoteState
from ._wire import Wire

__all__ = ["Session", "find_task", "patiently"]

T = TypeVar("T")

# The first pause and the longest, in seconds, and how many failures in a row are too many; where nothing is begun
# yet and nobody answers, only if they also took as long as the agent's `patience`.
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 10.0
PATIENCE = 6
# The longest that a remote's own wish to be left alone is heeded.
LONGEST_WISH = 60.0
# How long a stream may take to end once all is said.
LINGER = 0.25
BETWEEN_LOOKS = 0.25

SETTLED = TERMINAL | INTERRUPTED


def pause_after(failures: int, fault: Fault | None = None) -> float:
    """Seconds to wait: what the remote asks for, or else longer each time and never the same for all clients."""
    wish = fault.retry_after if isinstance(fault, Unreachable) else None
    if wish is not None:
        return min(wish, LONGEST_WISH)
    # A task may be polled for days, and a float ends long before that.
    return min(FIRST_PAUSE * 1.6 ** min(failures, 32), LONGEST_PAUSE) * random.uniform(0.5, 1.0)


class Tries:
    """How long a remote is tried that was given nothing to do yet: so many times, and for so many seconds if it
    doesn't even answer. One that says when to come back is taken at its word."""

    def __init__(self, tries: int, seconds: float) -> None:
        self._tries = tries
        self._seconds = seconds
        self._since = asyncio.get_running_loop().time()
        self.failures = 0

    def ends_with(self, fault: Fault) -> bool:
        """Count a failure; whether it is one too many."""
        self.failures += 1
        silent = isinstance(fault, Unreachable) and fault.retry_after is None
        waited = asyncio.get_running_loop().time() - self._since
        return self.failures >= self._tries and not (silent and waited < self._seconds)

    def told(self, what: str, fault: Fault, *, doubted: bool = False) -> RemoteError:
        """What is said when it is over."""
        advice = ""
        if isinstance(fault, Unreachable) and self._seconds and not (fault.begun or doubted):
            advice = (
                ". Nothing was begun there: see that it runs and can be reached from here, and retry the run; the "
                f"agent's `patience`, {self._seconds:g} s, is how long it is tried"
            )
        return RemoteError(f"given up after {self.failures} {what}, the last: {fault}{advice}")


async def patiently(
    call: Callable[[], Awaitable[T]], tries: int = PATIENCE, *, begun: bool = False, seconds: float = 0
) -> T:
    """Make a call that changes nothing; a few failures in a row don't end it. Where a task was `begun`, a remote
    that can't be reached is waited for until the run's own deadline: it may be starting again."""
    patience = Tries(tries, seconds)
    while True:
        try:
            return await call()
        except (Unreachable, Errored) as fault:
            if patience.ends_with(fault) and not (begun and isinstance(fault, Unreachable)):
                raise patience.told("failures in a row", fault) from None
            await asyncio.sleep(pause_after(patience.failures - 1, fault))


async def find_task(wire: Wire, state: RemoteState) -> RemoteTask | None:
    """The task that a message led to whose answer we never saw, if the remote can tell."""
    try:
        tasks = await wire.list(state.context_id, pages=4)
        mine = [task for task in tasks if _heard(task, state)]
        if not mine and not tasks:
            # A remote may have chosen another context.
            mine = [task for task in await wire.list(None, pages=2) if _heard(task, state)]
    except Refused:
        return None
    if not mine:
        # Histories are the remote's to keep or not; a new task of our own conversation can only be this one.
        new = [task for task in tasks if task.id not in state.known]
        mine = [task for task in new if not any(message.role == "ROLE_USER" for message in task.history)]
        if len(new) > 1:
            return None
    return mine[0] if mine else None


def _heard(task: RemoteTask, state: RemoteState) -> bool:
    return any(message.message_id == state.message_id for message in task.history)


class Session:
    """Carries out what a state says, and keeps the state as that goes on."""

    def __init__(
        self,
        wire: Wire,
        state: RemoteState,
        *,
        save: Callable[[dict[str, Any]], Awaitable[None]],
        emit: Callable[[str], None],
        streams: bool,
        exact: bool,
        patience: float,
    ) -> None:
        self.wire = wire
        self._save = save
        self._emit = emit
        self._streams = streams
        # Whether the same message may be sent again: the remote dedupes, or the work may be repeated.
        self._exact = exact
        self._patience = Tries(PATIENCE, patience)
        self._doubted = False
        self._look_at = 0.0
        # Whether it is certain that the message never left.
        self.unsent = False
        # What went wrong when the task was last asked for.
        self.fault: Fault | None = None
        self.state = state
        self.progress = Progress(emit, state.asked)

    async def begin(self, parts: tuple[RemotePart, ...]) -> None:
        """Send a message, whose intent is saved first, and follow its task."""
        await self._save(self.state.dump())
        await self._deliver(parts)

    def begin_anew(self, state: RemoteState) -> None:
        """Leave what was under way for another message."""
        self.state, self.progress = state, Progress(self._emit, state.asked)

    @property
    def answers(self) -> bool:
        """Whether the message is for a task that waits, and wasn't taken yet."""
        return self.state.stage == "intent" and self.state.task_id is not None

    async def look(self) -> None:
        """Follow the task whose question wasn't answered after all: it waits as before, or went on by itself."""
        self.state, self.progress = structs.replace(self.state, stage="sent", asked=""), Progress(self._emit)
        await self._save(self.state.dump())
        await self._follow()

    async def take_up(self, parts: tuple[RemotePart, ...]) -> None:
        """Go on where another activation stopped; nothing is sent that may have been sent."""
        if self.state.stage == "sent":
            await self._follow()
        else:
            await self._find_out(parts, "the process stopped while it sent the message")

    async def _deliver(self, parts: tuple[RemotePart, ...]) -> None:
        state = self.state
        message = RemoteMessage(state.message_id, "ROLE_USER", parts, state.context_id, state.task_id or "")
        while True:
            try:
                await self._send(message)
            except (NoCredentials, ConfigurationError):
                self.unsent = self.state.stage == "intent" and not self._doubted
                raise
            except Fault as fault:
                # A task that is known tells how it stands. Without one, it matters what was begun.
                if self.state.stage == "intent":
                    if isinstance(fault, Unreachable) and fault.begun:
                        await self._pause(fault)
                        return await self._find_out(parts, str(fault))
                    if await self._may_send_again(fault):
                        continue
                    if isinstance(fault, Refused) or not await self._adopt():
                        raise
            return await self._follow()

    async def _may_send_again(self, fault: Fault) -> bool:
        """Whether nothing was begun, and another attempt may go better."""
        if isinstance(fault, Unreachable):
            try:
                await self._pause(fault)
            except RemoteError:
                self.unsent = not self._doubted
                raise
            return True
        if isinstance(fault, NotOffered) and self._streams:
            self._streams = False  # The card promises streams, and the server has none.
            return True
        return False

    async def _send(self, message: RemoteMessage) -> None:
        if self._streams:
            await self._read(self.wire.stream(message), self._take)
        else:
            await self._take(await self.wire.send(message))
        if self.state.stage == "intent" and not self.progress.settled:
            raise Unreachable("the answer ended before it named a task", begun=True)

    async def _find_out(self, parts: tuple[RemotePart, ...], doubt: str) -> None:
        """Adopt what the remote made of a message that may have reached it; else the effect decides."""
        self._doubted = True
        if await self._adopt():
            return await self._follow()
        if self._exact:
            return await self._deliver(parts)
        raise ExecutionFailed(
            f"outcome unknown: {doubt}, and the remote can't tell whether it took message "
            f"{self.state.message_id}. It isn't sent again, for the agent's effect is 'once': look there, or give "
            "the agent the effect 'idempotent' if a message may be taken twice"
        )

    async def _adopt(self) -> bool:
        task = await self._adoptable()
        if task is not None:
            await self._take(task)
        return task is not None

    async def _adoptable(self) -> RemoteTask | None:
        if self.state.task_id is None:
            found = await patiently(lambda: find_task(self.wire, self.state), begun=True)
            # What is listed lacks the artifacts.
            return None if found is None else await self._get(found.id)
        task = await self._get(self.state.task_id)
        # A task that no longer waits with the question has its answer.
        taken = task.status.state not in INTERRUPTED or task.status.mark != self.state.asked
        return task if taken or _heard(task, self.state) else None

    async def _follow(self) -> None:
        rounds = 0
        while not self.progress.settled:
            await self._take(await self._get(self._task_id))
            if self._streams and not self.progress.settled and await self._resubscribe():
                rounds = 0
            if not self.progress.settled:
                await asyncio.sleep(pause_after(rounds))
                rounds += 1

    async def _resubscribe(self) -> bool:
        """Follow the task's stream while it lasts; returns whether it said anything."""
        try:
            return await self._read(self.wire.subscribe(self._task_id), self._glimpse) > 0
        except Refused:  # Not offered, or the task is over by now: asking for it tells.
            self._streams = False
        except Fault:
            pass
        return False

    async def _get(self, task_id: str) -> RemoteTask:
        async def ask() -> RemoteTask:
            try:
                task = await self.wire.get(task_id)
            except Fault as fault:
                self.fault = fault
                raise
            self.fault = None
            return task

        try:
            return await patiently(ask, begun=True)
        except NoSuchTask:
            raise ExecutionFailed(
                f"outcome unknown: the remote no longer knows task {task_id}, which it had begun"
            ) from None

    @property
    def _task_id(self) -> str:
        return self.state.task_id or ""

    async def _read(self, events: AsyncIterator[Event], take: Callable[[Event], Awaitable[None]]) -> int:
        """Take in a stream, and a little longer than until all is said; returns how much was heard.

        The SDK's streams are generators in generators. Only an end, or a cancellation from within, closes them
        all at once; leaving the loop would leave them to the garbage collector.
        """
        heard, failure = 0, None
        now = asyncio.get_running_loop().time
        linger = asyncio.timeout(None)
        try:
            async with linger:
                async for event in events:
                    if failure is not None:
                        continue
                    heard += 1
                    try:
                        await take(event)
                    except BaseException as error:
                        failure = error
                        linger.reschedule(now())
                    else:
                        linger.reschedule(now() + LINGER if self.progress.settled else None)
        except TimeoutError:
            if not linger.expired():
                raise
        if failure is not None:
            raise failure
        return heard

    async def _glimpse(self, event: Event) -> None:
        """Take in an event of a stream that was taken up again. What it adds may be in a snapshot already, so the
        task itself is asked for, now and then and at the end."""
        settles = isinstance(event, StatusUpdate) and event.status.state in SETTLED
        now = asyncio.get_running_loop().time()
        if not settles and not isinstance(event, ArtifactUpdate):
            await self._take(event)
        elif settles or now >= self._look_at:
            self._look_at = now + BETWEEN_LOOKS
            await self._take(await self._get(self._task_id))

    async def _take(self, event: Event) -> None:
        named = _ids(event)
        if named is not None and self.state.stage == "intent":
            task_id, context_id = named
            context_id = context_id or self.state.context_id
            self.state = structs.replace(self.state, stage="sent", task_id=task_id, context_id=context_id)
            await self._save(self.state.dump())
        elif named is not None and named[0] != self.state.task_id:
            return  # What becomes of another task is nothing to us.
        elif isinstance(event, RemoteMessage) and event.context_id:
            self.state = structs.replace(self.state, context_id=event.context_id)
        self.progress.take(event)

    async def _pause(self, fault: Unreachable) -> None:
        if self._patience.ends_with(fault) and self.state.task_id is None:  # One that began a task is waited for.
            raise self._patience.told("attempts to send the message", fault, doubted=self._doubted)
        await asyncio.sleep(pause_after(self._patience.failures - 1, fault))


def _ids(event: Event) -> tuple[str, str] | None:
    match event:
        case RemoteTask(id=task_id, context_id=context_id) if task_id:
            return task_id, context_id
        case StatusUpdate(task_id=task_id, context_id=context_id) if task_id:
            return task_id, context_id
        case ArtifactUpdate(task_id=task_id, context_id=context_id) if task_id:
            return task_id, context_id
        case _:
            return None
