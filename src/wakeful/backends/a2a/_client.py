"""A remote agent as wakeful uses it: exchanges that any process can take up, stop or look after."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Container
from contextlib import asynccontextmanager
from typing import Any

import httpx
from msgspec import structs

from ..._outside import open_http
from ...errors import BackendError, ConfigurationError, ExecutionFailed, NoCredentials, RemoteError, WakefulError
from ...types.ids import new_id
from ...types.runs import Failed
from .._contract import BackendOutput, BackendResult, DelegateRequest, RootRequest
from .._status import CancelledStatus, Completed, FailedStatus, TimedOut, WaitingAuth, WaitingInput
from ._card import Endpoint, connect, discover
from ._credentials import Credentials
from ._faults import Fault, NoSuchTask, NotCancelable, Refused, Unreachable
from ._objects import INTERRUPTED, RemotePart, RemoteTask
from ._parts import answered_in, parts_of
from ._progress import Progress
from ._questions import is_addressed
from ._session import Session, find_task, patiently
from ._settings import Settings
from ._state import RemoteState, load_state, next_message
from ._wire import CALL_TIMEOUT, Wire

__all__ = ["A2AClient"]

# Seconds that a card is taken to be true, and that a farewell may take.
_CARD_LIFE = 300.0
_GRACE = 5.0

_UNSAID = {
    "TASK_STATE_FAILED": "remote run failed",
    "TASK_STATE_REJECTED": "the remote agent rejected the message",
}

_log = logging.getLogger("wakeful")


class A2AClient:
    """Speaks to one remote agent. It keeps the card and the tokens; connections last as long as an exchange."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._credentials = Credentials(settings.auth, self._open_http)
        self._endpoint: tuple[float, Endpoint] | None = None

    async def execute(self, request: RootRequest | DelegateRequest) -> BackendResult:
        """Say what is new to the remote and follow it, or take up what another activation left."""
        async with self._faults_told(request.agent_id):
            return await self._execute(request)

    async def _execute(self, request: RootRequest | DelegateRequest) -> BackendResult:
        state = load_state(request.state, request.agent_id)
        parts = parts_of(request.new_messages or request.messages)
        if not parts:
            raise ExecutionFailed("no user message content to send")
        again = state is not None and state.under_way and state.run_id == request.identity.run_id
        if again and state is not None and state.url != self._settings.url:
            raise ExecutionFailed(
                f"outcome unknown: the message went to {state.url}, and agent '{request.agent_id}' is now at "
                f"{self._settings.url}"
            )
        begun = again or (state is not None and state.stage == "waiting")
        async with self._speak(begun=begun, patience=self._settings.patience) as (wire, endpoint):
            if state is None or not again:
                state = await self._intend(wire, state, request.identity.run_id)
            session = Session(
                wire,
                state,
                save=request.save,
                emit=request.emit,
                streams=endpoint.streams,
                exact=endpoint.dedupes or self._settings.effect != "once",
                patience=self._settings.patience,
            )
            limit = asyncio.timeout(self._settings.timeout)
            refused = ""
            try:
                async with limit:
                    try:
                        await (session.take_up(parts) if again else session.begin(parts))
                    except Refused as fault:
                        if not session.answers:
                            raise
                        refused = await self._take_back(session, parts, str(fault), request.is_continuation)
            except TimeoutError:
                if not limit.expired():
                    raise
                return await self._give_up(wire, session, request.agent_id)
            except Refused as fault:
                self._endpoint = None  # It may have moved.
                return self._failed(request.agent_id, str(fault), _refused(session.state))
            except WakefulError:
                if session.unsent:
                    await request.save(_refused(session.state).dump())
                raise
        return self._result(request.agent_id, session.progress, session.state, refused, answered_in(parts))

    async def _intend(self, wire: Wire, state: RemoteState | None, run_id: str) -> RemoteState:
        if state is not None and state.stage == "waiting" and state.run_id != run_id and state.task_id is not None:
            # Another run's question. The task may have been cancelled with that run; and where answers name their
            # ticket, input is none: it takes the waiting task's place, as it took that run's.
            task_id = state.task_id
            try:
                status = (await patiently(lambda: wire.get(task_id))).status
                waits = status.state in INTERRUPTED and not is_addressed(status.message)
            except Refused:
                waits = False
            state = state if waits else structs.replace(state, stage="done")
        return next_message(state, url=self._settings.url, run_id=run_id, message_id=new_id(), context_id=new_id())

    async def _take_back(
        self, session: Session, parts: tuple[RemotePart, ...], reason: str, is_answer: bool
    ) -> str:
        """The remote won't have what was sent to a task that waits. An answer is asked for again, with the reason;
        other input takes the task's place. Returns the reason, if it is to be told."""
        if is_answer:
            await session.look()
            return reason
        await self._cancel(session.wire, session.state)
        session.begin_anew(
            next_message(
                structs.replace(session.state, stage="done"),
                url=self._settings.url,
                run_id=session.state.run_id,
                message_id=new_id(),
                context_id=new_id(),
            )
        )
        await session.begin(parts)
        return ""

    async def abort(self, agent_id: str, run_id: str, stored: dict[str, Any] | None) -> None:
        """Cancel what a run began, if anything; a task that is over or unknown by now is no error."""
        try:
            state = load_state(stored, agent_id)
        except ExecutionFailed as error:
            # There is nothing to stop by it, and the run is over either way.
            _log.warning("agent %r: run %s could not be stopped there: %s", agent_id, run_id, error.detail)
            return
        if state is None or state.run_id != run_id or state.stage == "done" or state.url != self._settings.url:
            return
        async with self._faults_told(agent_id), self._speak() as (wire, _):
            await self._cancel(wire, state)

    async def refresh(self, agent_id: str, stored: dict[str, Any]) -> BackendResult | None:
        """What a stored handle's task has come to, without waiting for it; None while the remote is at work."""
        async with self._faults_told(agent_id), self._speak() as (wire, _):
            return await self._fetch(wire, agent_id, load_state(stored, agent_id))

    async def stop(self, agent_id: str, stored: dict[str, Any]) -> BackendResult | None:
        """Cancel a stored handle's task, and say what it has come to; None if the remote is still at work."""
        state = load_state(stored, agent_id)
        async with self._faults_told(agent_id), self._speak() as (wire, _):
            if state is not None:
                await self._cancel(wire, state)
            return await self._fetch(wire, agent_id, state)

    async def _fetch(self, wire: Wire, agent_id: str, state: RemoteState | None) -> BackendResult | None:
        if state is None or state.url != self._settings.url:
            raise ExecutionFailed(f"agent '{agent_id}' at {self._settings.url} has no task there")
        task = await self._task_of(wire, state)
        if task is None:
            raise ExecutionFailed(
                f"outcome unknown: the remote can't tell whether it took message {state.message_id}"
            )
        progress = Progress(_unseen)
        progress.take(task)
        state = structs.replace(
            state, stage="sent", task_id=task.id, context_id=task.context_id or state.context_id
        )
        return self._result(agent_id, progress, state) if progress.settled else None

    async def _task_of(self, wire: Wire, state: RemoteState) -> RemoteTask | None:
        task_id = state.task_id
        if task_id is None:
            found = await patiently(lambda: find_task(wire, state))
            if found is None:
                return None
            task_id = found.id
        return await patiently(lambda: wire.get(task_id))

    async def _cancel(self, wire: Wire, state: RemoteState) -> None:
        task_id = state.task_id
        if task_id is None:
            task = await find_task(wire, state)
            if task is None:
                return
            task_id = task.id
        try:
            await wire.cancel(task_id)
        except (NoSuchTask, NotCancelable):
            pass

    async def _give_up(self, wire: Wire, session: Session, agent_id: str) -> BackendResult:
        try:
            async with asyncio.timeout(_GRACE):
                await self._cancel(wire, session.state)
        except (Fault, WakefulError, TimeoutError) as error:
            _log.warning(
                "agent %r: its task could not be cancelled: %s", agent_id, self._credentials.redact(str(error))
            )
        # The state stays as it is: whoever retries the run asks for this task, which may have come to something.
        why = "" if session.fault is None else f": the remote doesn't say how the task stands ({session.fault})"
        late = Failed("TimedOut", f"polling timeout exceeded{self._credentials.redact(why)}")
        return BackendResult(agent_id, TimedOut(), late, state=session.state.dump())

    def _failed(self, agent_id: str, reason: str, state: RemoteState) -> BackendResult:
        text = self._credentials.redact(reason)
        return BackendResult(agent_id, FailedStatus(text), Failed("RemoteError", text), state=state.dump())

    def _result(
        self,
        agent_id: str,
        progress: Progress,
        state: RemoteState,
        refused: str = "",
        answered: Container[str] = (),
    ) -> BackendResult:
        """What a task came to. If the last answers were `refused`, the questions that they were for say why."""
        if progress.waits:
            state = structs.replace(state, stage="waiting", asked=progress.status.mark)
            asks = WaitingInput if progress.status.state == "TASK_STATE_INPUT_REQUIRED" else WaitingAuth
            output = BackendOutput(progress.made or None, progress.artifacts, progress.asked or None)
            said, why, questions = progress.said or None, self._credentials.redact(refused), progress.questions
            if why and not questions:
                said = _anew(said or "", why)
            elif why:
                anew = {q.id: structs.replace(q, message=_anew(q.message, why)) for q in questions}
                questions = tuple([anew[q.id] if q.id in answered else q for q in questions])
            return BackendResult(agent_id, asks(said), output=output, state=state.dump(), questions=questions)
        state = structs.replace(state, stage="done", asked="")
        if progress.failed:
            said = progress.said or _UNSAID[progress.status.state]
            return self._failed(agent_id, said, state)
        cancelled = progress.reply is None and progress.status.state == "TASK_STATE_CANCELED"
        output = BackendOutput(progress.answer or None, progress.artifacts)
        status = CancelledStatus() if cancelled else Completed()
        return BackendResult(agent_id, status, output=output, steps=1, state=state.dump())

    # The connection.

    @asynccontextmanager
    async def _speak(
        self, *, begun: bool = False, patience: float = 0
    ) -> AsyncGenerator[tuple[Wire, Endpoint], None]:
        endpoint = await self._found(begun=begun, patience=patience)
        settings = self._settings
        async with connect(
            endpoint, self._credentials, allow_private=settings.allow_private, timeout=settings.timeout
        ) as wire:
            yield wire, endpoint

    async def _found(self, *, begun: bool, patience: float) -> Endpoint:
        """How the remote is spoken to. One that began something and can't be reached is waited for."""
        now = time.monotonic()
        if self._endpoint is None or now - self._endpoint[0] > _CARD_LIFE:
            seconds = self._settings.timeout if begun else None
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    found = await patiently(self._discover, tries=3, begun=begun, seconds=patience)
                    self._endpoint = (now, found)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise RemoteError(
                    f"no agent card at {self._settings.url} in {seconds:g} s, though it may be at work on a "
                    "message of ours: retry the run to ask what became of it"
                ) from None
        return self._endpoint[1]

    async def _discover(self) -> Endpoint:
        settings = self._settings
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                return await discover(settings.url, self._credentials, allow_private=settings.allow_private)
        except TimeoutError:
            why = f"no agent card at {settings.url}: it took longer than {CALL_TIMEOUT:g} s"
            raise Unreachable(why, begun=False) from None

    def _open_http(self) -> httpx.AsyncClient:
        return open_http(allow_private=self._settings.allow_private, timeout=CALL_TIMEOUT)

    @asynccontextmanager
    async def _faults_told(self, agent_id: str) -> AsyncGenerator[None, None]:
        """Faults become errors of ours, without any secret; the card is looked at anew after one. What is wrong
        with our own secret says whose it is."""
        try:
            yield
        except ConfigurationError as error:
            raise ConfigurationError(f"agent '{agent_id}': {error}") from None
        except NoCredentials as error:
            raise NoCredentials(f"agent '{agent_id}': {error.detail}") from None
        except Fault as fault:
            self._endpoint = None
            raise RemoteError(self._credentials.redact(str(fault))) from None
        except BackendError as error:
            self._endpoint = None
            raise type(error)(self._credentials.redact(error.detail)) from None


def _anew(message: str, why: str) -> str:
    """A question that is asked again, and why."""
    return f"The answer was refused: {why}\n{message}".rstrip()


def _refused(state: RemoteState) -> RemoteState:
    """The state after the remote refused something. A message that it refused is out of the world; a task that it
    won't tell about is not, and can be asked for again."""
    if state.stage != "intent":
        return state
    return structs.replace(state, stage="done" if state.task_id is None else "waiting")


def _unseen(text: str) -> None:
    """Nobody reads along."""
