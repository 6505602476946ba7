"""One request to a backend: its control, emissions, saved state and result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from ..agents import Backend, BackendHandles
from ..errors import ExecutionFailed, StoreError, WakefulError
from ..loop import Answer, Checkpoints, flush
from ..models import PartChunk, ReasoningChunk, TextChunk
from ..plugins import InferencePlan
from ..state import AnyKey
from ..stores import UsageEntry
from ..types.content import Artifact, Content, ServerTool, Thinking, ToolCall, clean_text, text_of
from ..types.events import ArtifactAdded, ToolProgress
from ..types.ids import new_id
from ..types.messages import Message, Producer
from ..types.runs import Usage
from .contract import (
    BackendResult,
    Capabilities,
    Control,
    DelegateRequest,
    check_delegate,
    check_root,
    is_cooperative,
)
from .emitter import Emission, Emitter, Progress
from .grace import abandon, abort, retrieve_exception, wait
from .requests import Request, model_name, record_attempt, request_of, saved_state
from .signals import Signals

if TYPE_CHECKING:
    from ..loop import Activation

__all__ = ["Exchange"]


class _TookTooLong(WakefulError, TimeoutError):
    """A backend didn't return within its timeout."""


class Exchange:
    """One request to a backend, from its start to its result."""

    def __init__(self, act: Activation, plan: InferencePlan, cut_off: tuple[str, int] | None) -> None:
        self._act = act
        self._plan = plan
        self._backend = cast(Backend, act.agent.backend)
        self.capabilities = cast(Capabilities, self._backend.capabilities)
        self._answer = self._new_answer(*(cut_off or (None, 0)))
        self._cancelled = asyncio.Event()
        self._checkpoints: Checkpoints | None = None
        if act.env.store.durable:
            self._checkpoints = Checkpoints(act, lambda: self._answer.unsaved(), act.clock.now())
        self._writer: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._signals = Signals(act, self._writing)
        self._pieces: list[str] = []
        self._artifacts: dict[str, Artifact] = {}
        self._broken: StoreError | None = None
        self._over = False
        self.usage = Usage()
        # Whether the backend was called, and not refused the request before.
        self.called = False

    def _new_answer(self, message_id: str | None, attempt: int) -> Answer:
        act = self._act
        answer = act.remote = Answer(act.identity, act.head, act.channel, act.clock)
        if message_id is not None:
            answer.message_id, answer.attempt = message_id, attempt
        return answer

    async def run(self) -> Any:
        """Call the backend and wait for its result; raises TimeoutError after the backend's timeout."""
        able = self.capabilities
        cooperative = is_cooperative(able.cancellation)
        request = await request_of(
            self._act,
            self._plan,
            able,
            control=Control(
                self._cancelled if cooperative else None,
                self._signals.ask if able.decisions else None,
                self._signals.receive if able.steering else None,
            ),
            emit=Emitter(self._show),
            save=self.save,
            update=self.update,
        )
        task = asyncio.get_running_loop().create_task(self._execute(request))
        try:
            if await wait(self._act, task, self._backend.timeout):
                return task.result()
        except asyncio.CancelledError:
            if task.done() and task.cancelled() and not self._act.cancellation.is_pending:
                raise ExecutionFailed("the backend's task was cancelled, but the run was not") from None
            await self._stop(task, cooperative)
            raise
        await self._stop(task, cooperative)
        await abort(self._act)
        raise _TookTooLong(f"the backend took longer than its timeout of {self._backend.timeout:g} s")

    async def _execute(self, request: Request) -> Any:
        if isinstance(request, DelegateRequest):
            check_delegate(self.capabilities, request)
            self.called = True
            return await self._backend.execute_delegate(request)
        check_root(self.capabilities, request)
        self.called = True
        return await self._backend.execute_root(request)

    async def _stop(self, task: asyncio.Task[Any], cooperative: bool) -> None:
        """Stop the backend: a cooperative one gets half the grace to return, then its task is cancelled."""
        self._cancelled.set()
        grace = self._act.env.grace / (2 if cooperative else 1)
        try:
            if not (cooperative and await wait(self._act, task, grace)):
                task.cancel()
                await wait(self._act, task, grace)
        finally:
            if task.done():
                retrieve_exception(task)
            else:
                abandon(self._act, task)

    # -- callbacks of the backend -----------------------------------------------------------------------------

    def _show(self, emission: Emission) -> None:
        """Publish an emission of the backend."""
        if self._over:
            raise ExecutionFailed("the request is over; emit before the backend returns")
        act, answer = self._act, self._answer
        match emission:
            case Progress(call_id):
                name, at = emission.name or act.agent.id, (act.head, act.clock.now())
                call_id = call_id or act.identity.parent_call_id or ""
                amount = (emission.fraction, emission.done, emission.total, emission.message)
                act.channel.publish(ToolProgress(act.identity, *at, call_id, name, *amount))
            case Artifact():
                self._add_artifact(emission)
            case Usage():
                self.usage += emission
            case TextChunk("") | ReasoningChunk(""):
                pass
            case _:
                if isinstance(emission, TextChunk):
                    self._pieces.append(emission.text)
                answer.add(emission)
                idle = self._writer is None or self._writer.done()
                if self._checkpoints is not None and idle and self._checkpoints.is_due():
                    self._writer = asyncio.get_running_loop().create_task(self._checkpoints.write())

    def _add_artifact(self, artifact: Artifact) -> None:
        if self.capabilities.output == "text":
            raise ExecutionFailed("the backend emitted an artifact, but its capabilities declare output='text'")
        act, answer = self._act, self._answer
        self._artifacts[artifact.id or new_id()] = artifact
        act.channel.publish(ArtifactAdded(act.identity, answer.seq, act.clock.now(), answer.message_id, artifact))

    @asynccontextmanager
    async def _writing(self, method: str) -> AsyncGenerator[None]:
        """Guard a commit within the request; its failure fails the run, also if the backend catches it."""
        async with self._lock:
            if self._over:
                raise ExecutionFailed(f"the request is over; {method} before the backend returns")
            act = self._act
            act.now = act.clock.now()
            try:
                yield
            except StoreError as error:
                self._broken = error
                raise
            self._answer.resume(act.head)  # The rest of the answer is streamed after the new log entries.

    async def save(self, state: dict[str, Any]) -> None:
        """Save the backend's state; it is durable when this returns."""
        async with self._writing("save"):
            act = self._act
            if not isinstance(cast(Any, state), dict):
                raise ExecutionFailed(f"save takes a JSON object, not {type(state).__name__}")
            if saved_state(act) == state:
                return
            try:
                state = msgspec.json.decode(msgspec.json.encode(state))
            except (TypeError, ValueError, RecursionError) as error:
                raise ExecutionFailed(f"save takes a JSON object; this one can't be encoded: {error}") from error
            act.state.apply([(BackendHandles, (act.identity.thread_id, act.agent.id, state))])
            await flush(act)

    async def update(self, key: AnyKey, update: Any) -> None:
        """Change a state key; the change is durable when this returns."""
        async with self._writing("update"):
            act = self._act
            act.env.registry.catalog.check_key(key)
            act.state.apply([(key, update)])
            await flush(act)

    # -- the end ----------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Refuse further callbacks and wait for pending writes; raises the store error of a failed save."""
        self._over = True
        async with self._lock:
            self._signals.close()
        if self._writer is not None:
            await asyncio.wait({self._writer})
            self._writer.result()
        if self._broken is not None:
            raise self._broken  # Also if the backend caught it: the run can't continue without its commit.

    def settle(self, text: str, failed: bool) -> tuple[str, tuple[Content, ...]]:
        """Return the answer's message id and content.

        The streamed text is completed, or withdrawn if it isn't a prefix of the final answer.
        """
        streamed = clean_text("".join(self._pieces))
        if (failed and not text) or (streamed and text and not text.startswith(streamed)):
            shown = self._answer.content()
            self._answer.withdraw("the backend failed" if failed else "the backend's final answer is another one")
            self._answer = self._new_answer(self._answer.message_id, self._answer.attempt + 1)
            for part in () if failed else shown:
                self._show_again(part)
            streamed = ""
        if rest := text[len(streamed) :]:
            self._answer.add(TextChunk(rest))
        return self._answer.message_id, self._content()

    def _show_again(self, part: Content) -> None:
        """Show a part of a withdrawn answer again, unless it is text."""
        if isinstance(part, Thinking):
            self._answer.add(ReasoningChunk(part.text))
        elif isinstance(part, ServerTool):
            self._answer.add(PartChunk(part))

    def _content(self) -> tuple[Content, ...]:
        """The parts of the answer, after the questions that the backend asked meanwhile. A call without a result
        failed."""
        asked = [ToolCall(call.id, call.name, call.arguments) for call in self._act.view.calls.values()]
        parts = [
            replace(part, status="failed") if isinstance(part, ServerTool) and not part.is_over else part
            for part in self._answer.content()
        ]
        return (*asked, *parts)

    def with_artifacts(self, result: BackendResult) -> BackendResult:
        """The result with the artifacts that were emitted; its own replace those with the same id."""
        own = {artifact.id or new_id(): artifact for artifact in result.output.artifacts}
        artifacts = tuple({**self._artifacts, **own}.values())
        return replace(result, output=replace(result.output, artifacts=artifacts))

    def record_usage(self, started: int, failed: bool) -> None:
        """Add the usage that the backend reported to the run's."""
        act, used = self._act, self.usage
        if used != Usage():
            now = act.clock.now()
            act.view.tree.usage += used
            act.set_run(usage=act.view.run.usage + used)
            act.draft.usage.append(UsageEntry(act.agent.id, model_name(act), now, now - started, used, failed))

    def keep_partial(self) -> None:
        """Keep the answer streamed before a cancellation as a message; without text, record the attempt."""
        act, content = self._act, self._content()
        if not text_of(content):
            if self.called and act.history:
                record_attempt(act, act.history[-1].id)
            return
        run = act.view.run
        act.now = act.clock.now()
        producer = Producer(run.identity.run_id, run.steps, act.agent.id)
        message = Message(self._answer.message_id, "assistant", content, act.now, producer)
        act.view.answer = message
        act.log(message)
        act.set_run(stage="acting", answer_id=message.id)
