"""The client of one remote agent: exchanges that any process can resume, stop or inspect."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Container
from contextlib import asynccontextmanager
from typing import Any

import httpx
from msgspec import structs

from ...errors import BackendError, ConfigurationError, ExecutionFailed, NoCredentials, RemoteError, WakefulError
from ...outbound import TooLarge, open_http
from ...types.ids import new_id
from ...types.runs import Failed
from ..contract import BackendOutput, BackendResult, DelegateRequest, RootRequest
from ..status import CancelledStatus, Completed, FailedStatus, TimedOut, WaitingAuth, WaitingInput
from .card import Endpoint, connect, discover
from .credentials import Credentials
from .faults import Fault, NoSuchTask, NotCancelable, Refused, Unreachable
from .objects import INTERRUPTED, RemotePart, RemoteTask
from .parts import answered_in, parts_of
from .progress import Progress
from .questions import has_tickets
from .session import Session, find_task, retry
from .settings import Settings
from .state import RemoteState, load_state, next_message
from .wire import CALL_TIMEOUT, Wire

__all__ = ["A2AClient"]

_CARD_CACHE_SECONDS = 300.0
_CANCEL_SECONDS = 5.0

_DEFAULT_ERRORS = {
    "TASK_STATE_FAILED": "remote run failed",
    "TASK_STATE_REJECTED": "the remote agent rejected the message",
}

_log = logging.getLogger("wakeful")


class A2AClient:
    """Talks to one remote agent. Card and tokens are cached; a connection lasts for one exchange."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._credentials = Credentials(settings.auth, self._open_http)
        self._endpoint: tuple[float, Endpoint] | None = None

    async def execute(self, request: RootRequest | DelegateRequest) -> BackendResult:
        """Send the new messages and follow the task, or resume the exchange of an earlier activation."""
        sessions: list[Session] = []
        try:
            async with self._translate_faults(request.agent_id):
                return await self._execute(request, sessions)
        except (BackendError, ConfigurationError, NoCredentials) as error:
            if not _has_unsent_answer(request, *sessions):
                raise
            text = str(error)
            failed = BackendResult(request.agent_id, FailedStatus(text), Failed(type(error).__name__, text))
            state = sessions[0].state if sessions else load_state(request.state, request.agent_id)
            return failed if state is None else _without_answer(failed, state)

    async def _execute(self, request: RootRequest | DelegateRequest, sessions: list[Session]) -> BackendResult:
        state = load_state(request.state, request.agent_id)
        parts = parts_of(request.new_messages or request.messages)
        resumes = state is not None and state.is_active and state.run_id == request.identity.run_id
        if not parts and not (resumes and state is not None and state.stage == "sent"):
            raise ExecutionFailed("no user message content to send")
        if resumes and state is not None and state.url != self._settings.url:
            raise ExecutionFailed(
                f"outcome unknown: the message went to {state.url}, and agent '{request.agent_id}' is now at "
                f"{self._settings.url}"
            )
        has_task = resumes or (state is not None and state.stage == "waiting")
        connection = self._connect(has_task=has_task, connect_timeout=self._settings.connect_timeout)
        async with connection as (wire, endpoint):
            if state is None or not resumes:
                state = await self._prepare(wire, state, request.identity.run_id)
            session = Session(
                wire,
                state,
                save=request.save,
                emit=request.emit,
                streams=endpoint.streams,
                may_resend=endpoint.dedupes or self._settings.effect != "once",
                connect_timeout=self._settings.connect_timeout,
            )
            sessions.append(session)
            return await self._run_session(session, request, parts, resumes=resumes)

    async def _run_session(
        self,
        session: Session,
        request: RootRequest | DelegateRequest,
        parts: tuple[RemotePart, ...],
        *,
        resumes: bool,
    ) -> BackendResult:
        limit = asyncio.timeout(self._settings.timeout)
        refused = ""
        try:
            async with limit:
                try:
                    await (session.resume(parts) if resumes else session.start(parts))
                except Refused as fault:
                    if not session.is_answering:
                        raise
                    refused = await self._handle_refusal(session, parts, str(fault), request.is_continuation)
        except TimeoutError:
            if not limit.expired():
                raise
            result = await self._time_out(session, request.agent_id)
            return _without_answer(result, session.state) if _has_unsent_answer(request, session) else result
        except TooLarge as error:
            ending = await self._cancel_in_time(session, request.agent_id)
            raise TooLarge(f"{error.detail}; {ending}") from None
        except Refused as fault:
            self._endpoint = None  # The agent may have moved.
            return self._failed(request.agent_id, str(fault), _after_refusal(session.state))
        except WakefulError:
            if session.is_unsent:
                await request.save(_after_refusal(session.state).dump())
            raise
        result = self._result(request.agent_id, session.progress, session.state, refused, answered_in(parts))
        return structs.replace(result, refused=self._credentials.redact(refused)) if refused else result

    async def _prepare(self, wire: Wire, state: RemoteState | None, run_id: str) -> RemoteState:
        if state is not None and state.stage == "waiting" and state.run_id != run_id and state.task_id is not None:
            # An earlier run's task. It may have been cancelled with that run. If it lists tickets, input without
            # a ticket is no answer. In both cases the input starts a new task.
            task_id = state.task_id
            try:
                status = (await retry(lambda: wire.get(task_id))).status
                takes_input = status.state in INTERRUPTED and not has_tickets(status.message)
            except Refused:
                takes_input = False
            state = state if takes_input else structs.replace(state, stage="done")
        return next_message(state, url=self._settings.url, run_id=run_id, message_id=new_id(), context_id=new_id())

    async def _handle_refusal(
        self, session: Session, parts: tuple[RemotePart, ...], reason: str, is_answer: bool
    ) -> str:
        """Handle a waiting task's refusal of a message; returns the reason if it was an answer, else nothing.

        An answer is asked for again. Other input cancels the task and starts a new one.
        """
        if is_answer:
            await session.follow_unanswered()
            return reason
        await self._cancel(session.wire, session.state)
        session.reset(
            next_message(
                structs.replace(session.state, stage="done"),
                url=self._settings.url,
                run_id=session.state.run_id,
                message_id=new_id(),
                context_id=new_id(),
            )
        )
        await session.start(parts)
        return ""

    async def abort(self, agent_id: str, run_id: str, stored: dict[str, Any] | None) -> None:
        """Cancel the task of a run, if there is one; a task that is over or unknown is no error."""
        try:
            state = load_state(stored, agent_id)
        except ExecutionFailed as error:
            _log.warning("agent %r: the task of run %s could not be cancelled: %s", agent_id, run_id, error.detail)
            return
        if state is None or state.run_id != run_id or state.stage == "done" or state.url != self._settings.url:
            return
        async with self._translate_faults(agent_id), self._connect() as (wire, _):
            await self._cancel(wire, state)

    async def poll(self, agent_id: str, run_id: str, stored: dict[str, Any] | None) -> dict[str, Any] | None:
        """Fetch a run's waiting task; returns the state to follow it with if it no longer asks the same."""
        state = load_state(stored, agent_id)
        if state is None or state.run_id != run_id or state.stage != "waiting" or state.url != self._settings.url:
            return None
        task_id = state.task_id or ""
        async with self._translate_faults(agent_id), asyncio.timeout(CALL_TIMEOUT), self._connect() as (wire, _):
            try:
                status = (await wire.get(task_id)).status
            except NoSuchTask:
                status = None  # Following the task tells that its outcome is unknown.
        if status is not None and status.state in INTERRUPTED and status.mark == state.asked:
            return None
        return structs.replace(state, stage="sent", asked="").dump()

    async def refresh(self, agent_id: str, stored: dict[str, Any]) -> BackendResult | None:
        """Fetch the result of a stored handle's task without waiting; None while the task runs."""
        async with self._translate_faults(agent_id), self._connect() as (wire, _):
            return await self._fetch(wire, agent_id, load_state(stored, agent_id))

    async def stop(self, agent_id: str, stored: dict[str, Any]) -> BackendResult | None:
        """Cancel a stored handle's task and fetch its result; None if the task still runs."""
        state = load_state(stored, agent_id)
        async with self._translate_faults(agent_id), self._connect() as (wire, _):
            if state is not None:
                await self._cancel(wire, state)
            return await self._fetch(wire, agent_id, state)

    async def _fetch(self, wire: Wire, agent_id: str, state: RemoteState | None) -> BackendResult | None:
        if state is None or state.url != self._settings.url:
            raise ExecutionFailed(f"agent '{agent_id}' at {self._settings.url} has no task there")
        task = await self._fetch_task(wire, state)
        if task is None:
            raise ExecutionFailed(
                f"outcome unknown: the remote can't tell whether it took message {state.message_id}"
            )
        progress = Progress(_ignore_text)
        progress.apply(task)
        state = structs.replace(
            state, stage="sent", task_id=task.id, context_id=task.context_id or state.context_id
        )
        return self._result(agent_id, progress, state) if progress.is_settled else None

    async def _fetch_task(self, wire: Wire, state: RemoteState) -> RemoteTask | None:
        task_id = state.task_id
        if task_id is None:
            found = await retry(lambda: find_task(wire, state))
            if found is None:
                return None
            task_id = found.id
        return await retry(lambda: wire.get(task_id))

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

    async def _cancel_in_time(self, session: Session, agent_id: str) -> str:
        """Cancel the task of an exchange that is given up; returns what became of it, as a clause."""
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self._cancel(session.wire, session.state)
        except (Fault, WakefulError, TimeoutError) as error:
            reason = self._credentials.redact(str(error))
            _log.warning("agent %r: its task could not be cancelled: %s", agent_id, reason)
            return "its task could not be cancelled and may still run"
        return "its task was cancelled"

    async def _time_out(self, session: Session, agent_id: str) -> BackendResult:
        ending = await self._cancel_in_time(session, agent_id)
        # The state is kept: a retry of the run fetches this task, which may have a result by then.
        fault = "" if session.fault is None else f": the task's status can't be fetched ({session.fault})"
        text = (
            f"agent '{agent_id}' wasn't done within {self._settings.timeout:g} s, its `timeout`{fault}; {ending}. "
            "Give Agent.remote(...) a longer timeout, or retry the run to fetch the task's result"
        )
        termination = Failed("TimedOut", self._credentials.redact(text))
        return BackendResult(agent_id, TimedOut(), termination, state=session.state.dump())

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
        """The result of a task. If an answer was `refused`, its question includes the reason."""
        if progress.is_waiting:
            return self._waiting_result(agent_id, progress, state, refused, answered)
        state = structs.replace(state, stage="done", asked="")
        if progress.has_failed:
            return self._failed(agent_id, progress.status_text or _DEFAULT_ERRORS[progress.status.state], state)
        cancelled = progress.reply is None and progress.status.state == "TASK_STATE_CANCELED"
        output = BackendOutput(progress.answer or None, progress.artifacts)
        status = CancelledStatus() if cancelled else Completed()
        return BackendResult(agent_id, status, output=output, state=state.dump())

    def _waiting_result(
        self, agent_id: str, progress: Progress, state: RemoteState, refused: str, answered: Container[str]
    ) -> BackendResult:
        state = structs.replace(state, stage="waiting", asked=progress.status.mark)
        status = WaitingInput if progress.status.state == "TASK_STATE_INPUT_REQUIRED" else WaitingAuth
        output = BackendOutput(progress.artifact_text or None, progress.artifacts, progress.question_data or None)
        text, reason, questions = (
            progress.status_text or None,
            self._credentials.redact(refused),
            progress.questions,
        )
        if reason and not questions:
            text = _ask_again(text or "", reason)
        elif reason:
            repeated = {q.id: structs.replace(q, message=_ask_again(q.message, reason)) for q in questions}
            questions = tuple([repeated[q.id] if q.id in answered else q for q in questions])
        return BackendResult(agent_id, status(text), output=output, state=state.dump(), questions=questions)

    # -- the connection ---------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _connect(
        self, *, has_task: bool = False, connect_timeout: float = 0
    ) -> AsyncGenerator[tuple[Wire, Endpoint], None]:
        endpoint = await self._find_endpoint(has_task=has_task, connect_timeout=connect_timeout)
        settings = self._settings
        async with connect(
            endpoint, self._credentials, allow_private=settings.allow_private, timeout=settings.timeout
        ) as wire:
            yield wire, endpoint

    async def _find_endpoint(self, *, has_task: bool, connect_timeout: float) -> Endpoint:
        """The endpoint, cached or discovered; if it `has_task`, an unreachable remote is waited for."""
        now = time.monotonic()
        if self._endpoint is None or now - self._endpoint[0] > _CARD_CACHE_SECONDS:
            seconds = self._settings.timeout if has_task else None
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    found = await retry(self._discover, tries=3, has_task=has_task, seconds=connect_timeout)
                    self._endpoint = (now, found)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise RemoteError(
                    f"no agent card at {self._settings.url} in {seconds:g} s, the agent's `timeout`, though it "
                    "may be working on a message of this run: retry the run to fetch the result"
                ) from None
        return self._endpoint[1]

    async def _discover(self) -> Endpoint:
        settings = self._settings
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                return await discover(
                    settings.url, self._credentials, allow_private=settings.allow_private, hosts=settings.hosts
                )
        except TimeoutError:
            reason = f"no agent card at {settings.url}: it took longer than {CALL_TIMEOUT:g} s"
            raise Unreachable(reason, may_have_started=False) from None

    def _open_http(self) -> httpx.AsyncClient:
        return open_http(allow_private=self._settings.allow_private, timeout=CALL_TIMEOUT)

    @asynccontextmanager
    async def _translate_faults(self, agent_id: str) -> AsyncGenerator[None, None]:
        """Turn faults into errors without secrets, and drop the cached card; errors in `auth` name the agent."""
        try:
            yield
        except ConfigurationError as error:
            raise ConfigurationError(f"agent '{agent_id}': {error}") from None
        except NoCredentials as error:
            raise NoCredentials(f"agent '{agent_id}': {error.detail}") from None
        except Fault as fault:
            self._endpoint = None
            raise RemoteError(f"agent '{agent_id}': {self._credentials.redact(str(fault))}") from None
        except BackendError as error:
            self._endpoint = None
            name = f"agent '{agent_id}': " if isinstance(error, RemoteError) else ""
            raise type(error)(name + self._credentials.redact(error.detail)) from None


def _ask_again(message: str, reason: str) -> str:
    return f"The answer was refused: {reason}\n{message}".rstrip()


def _after_refusal(state: RemoteState) -> RemoteState:
    """The state after a refusal: a refused message wasn't processed; a task that was sent can be fetched again."""
    if state.stage != "intent":
        return state
    return structs.replace(state, stage="done" if state.task_id is None else "waiting")


def _has_unsent_answer(request: RootRequest | DelegateRequest, session: Session | None = None) -> bool:
    """Whether the request has an answer that certainly did not reach the remote."""
    if not request.is_continuation:
        return False
    if session is not None:
        return session.is_unsent and session.is_answering
    state = load_state(request.state, request.agent_id)
    return state is not None and state.stage == "waiting"


def _without_answer(result: BackendResult, state: RemoteState) -> BackendResult:
    """A failed result whose request did not reach the remote: a retry of the run follows the task without it."""
    state = structs.replace(state, stage="sent", asked="")
    why = "it can't be reached, and the answer was not sent"
    return structs.replace(result, state=state.dump(), refused=why)


def _ignore_text(text: str) -> None:
    """Discard streamed text."""
