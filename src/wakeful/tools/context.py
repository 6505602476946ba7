"""The context of a tool call: what a tool can see and do while it runs."""

from __future__ import annotations

import dis
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from inspect import currentframe, iscoroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from ..errors import ConfigurationError, InvalidInput, ToolCancelled, ToolError, UsageError
from ..state import AnyKey, Snapshot
from ..types.content import Artifact, Content, require_text
from ..types.events import ActivityDelta, ActivitySnapshot, ToolOutput, ToolProgress
from ..types.generics import Deps
from ..types.mail import Receipt
from ..types.messages import Message, parse_input, user_message
from ..types.runs import Principal, TaskRecord, TaskRef, TaskWake
from ..types.tickets import Approval, Decision, Escalation, OnDeadline, ResumeMode, Seconds
from .call import CallContext, EndedServices
from .checks import (
    check_json,
    check_progress,
    check_task,
    close_on_error,
    merge_arguments,
    to_milliseconds,
    to_seconds,
)
from .deps import require_deps
from .mail import Addressee, Mail, check_text, recipient_of
from .schema import Shape
from .services import ChildRequest, ChildResult, Memories, Services, Spawnable, SpawnRequest
from .signals import Asked
from .terms import terms_of

if TYPE_CHECKING:  # Few tools show surfaces.
    from ..ui import Surface

__all__ = ["ToolContext"]

T = TypeVar("T")


class ToolContext(CallContext, Generic[Deps], eq=False, kw_only=True):
    """Given to a tool that has a parameter of this type. `ToolContext[T]` says that its `deps` are a `T`.

    `run` identifies the run and its place in its tree, `state` is the state when the call began, and `fence` is a
    number that grows with every takeover of the thread. Once the call has ended, methods that would change, show
    or start something raise `UsageError`.
    """

    state: Snapshot
    principal: Principal | None
    _services: Services
    _deps: Any = None
    _asked: int = 0
    _surfaces: tuple[Artifact, ...] = ()

    @property
    def deps(self) -> Deps:
        """The dependencies of this process's runtime; raises `UsageError` if it has none."""
        return require_deps(self._deps)

    @property
    def decision(self) -> Decision | None:
        """The latest answer to a ticket of this call."""
        return self._call.decisions[-1] if self._call.decisions else None

    @property
    def decisions(self) -> Sequence[Decision]:
        """All answers to questions of the tool, in order, denials included."""
        return [decision for decision in self._call.decisions if decision.asked_by == "tool"]

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt at this call, and for no other call."""
        return f"{self.run.run_id}:{self.call_id}"

    @property
    def now(self) -> int:
        """The time in milliseconds, by the runtime's clock."""
        return self._services.now()

    @property
    def memories(self) -> Memories:
        """The long-term memories of the run's tenant, for tools of extensions."""
        return self._services.memories

    def check_cancelled(self) -> None:
        """Raise `ToolCancelled` if the call was cancelled."""
        if self._cancelled:
            raise ToolCancelled(f"{self.name} was told to stop")

    def update(self, key: AnyKey, update: Any) -> None:
        """Change state; applied through the key's reducer when this call's result is committed."""
        self._services.check_key(key)
        self.command.updates.append((key, update))

    def notify(self, name: str, payload: Any = None) -> None:
        """Send a notice to its handler once this call's result is committed."""
        self._services.notify(self.command, name, payload)

    def schedule(self, name: str, payload: Any = None, *, phase: str) -> None:
        """Schedule an action for the next time the run reaches that phase."""
        self._services.schedule(self.command, name, payload, phase)

    def end_run(self, reason: str = "") -> None:
        """End the run once this step's calls have finished."""
        self.command.ending = require_text(reason, "the reason to end a run")

    def handoff(self, agent_id: str) -> None:
        """Let another agent take over the run from its next step."""
        self._services.check_agent(agent_id)
        self.command.handoff = agent_id

    # -- questions -------------------------------------------------------------------------------------------

    @overload
    def ask(
        self,
        message: str,
        *,
        schema: type[T],
        mode: ResumeMode = "proceed",
        assignee: str | None = None,
        deadline: Seconds | None = None,
        on_deadline: OnDeadline = "deny",
        escalate: Sequence[Escalation] = (),
    ) -> T: ...
    @overload
    def ask(
        self,
        message: str,
        *,
        schema: Any = None,
        mode: ResumeMode = "proceed",
        assignee: str | None = None,
        deadline: Seconds | None = None,
        on_deadline: OnDeadline = "deny",
        escalate: Sequence[Escalation] = (),
    ) -> Any: ...
    def ask(self, message: str, *, schema: Any = None, mode: ResumeMode = "proceed", **terms: Any) -> Any:
        """Ask a person and return the answer.

        The first time, the tool is unwound here and the run is suspended. When the answer has arrived, the tool
        runs again from the top, and each `ask` that it reaches returns the answer to it. Code before an `ask`
        runs again too: it must be repeatable.

        `schema` is a JSON schema or a Python type that the answer must fit; with a type, the answer is a value of
        it. The `assignee` answers, or the requester of the run if there is none. At the `deadline` (seconds or a
        timedelta) the question goes to the first of `escalate`, and after the last one `on_deadline` decides:
        `approve`, `deny` or `Answer(value)`.
        """
        self.check_open()
        if not self.can_suspend:
            raise ToolError(
                f"{self.name} can't ask while it runs: its effect is 'once', so it must not run again from the "
                "top; declare it resumable=True if that is safe, or ask before it starts with approval=True"
            )
        answers = self.decisions
        if self._asked < len(answers):
            self._asked += 1
            value = answers[self._asked - 1].value
            return value if schema is None or isinstance(schema, dict) else Shape(schema).convert(value)
        if _is_awaited():
            # Refused now: after the answer has arrived, the await would fail and the answer would be lost.
            raise ToolError(f"{self.name} awaits ctx.ask(...), which returns the answer: leave the await out")
        raise self.question(message, schema=schema, mode=mode, **terms)

    def question(self, message: str, *, schema: Any = None, mode: ResumeMode = "proceed", **terms: Any) -> Asked:
        """The signal to raise in a tool that asks and reads the answers from `decisions`; see `ask`, `keep`."""
        if isinstance(self.unwinding, Asked):
            # A concurrent `ask` comes first: the next answer belongs to it.
            return self.unwinding
        # A person who may edit the arguments may also leave them as they are.
        accepts: tuple[ResumeMode, ...] = ("arguments", "proceed") if mode == "arguments" else (mode,)
        try:
            who = Approval(terms.pop("assignee", None))
            self.unwinding = Asked(
                require_text(message, "a question"), terms_of(accepts, schema, who=who, **terms)
            )
        except (ConfigurationError, UsageError) as error:
            raise ToolError(f"{self.name} can't ask {message!r:.80}: {error}") from error
        return self.unwinding

    # -- live output -----------------------------------------------------------------------------------------

    def stream(self, text: str) -> None:
        """Show a piece of output while the tool runs."""
        text = require_text(text, "what a tool streams")
        if (at := self._live()) is not None:
            self._services.publish(ToolOutput(self.run, *at, self.call_id, self.name, text))

    def progress(
        self,
        fraction: float | None = None,
        *,
        done: int | None = None,
        total: int | None = None,
        message: str = "",
    ) -> None:
        """Show the progress of the call."""
        check_progress(fraction, done, total)
        message = require_text(message, "the message of a progress")
        if (at := self._live()) is not None:
            self._services.publish(
                ToolProgress(self.run, *at, self.call_id, self.name, fraction, done, total, message)
            )

    def activity(self, name: str, content: Any) -> None:
        """Show an activity of the tool's own, such as a plan; the same name again replaces it."""
        name = require_text(name, "an activity's name")
        check_json(content)
        if (at := self._live()) is not None:
            self._services.publish(ActivitySnapshot(self.run, *at, self.call_id, name, content))

    def activity_delta(self, name: str, patch: list[dict[str, Any]]) -> None:
        """Change a shown activity by a JSON patch."""
        name = require_text(name, "an activity's name")
        check_json(patch)
        if (at := self._live()) is not None:
            self._services.publish(ActivityDelta(self.run, *at, self.call_id, name, patch))

    def ui(self, surface: Surface) -> None:
        """Show a user interface of `wakeful.ui`; the same surface again replaces it.

        It stays with the call's result: readers who come later are shown it, too.
        """
        self.check_open()
        artifact = surface.to_artifact()
        self._surfaces = (*[one for one in self._surfaces if one.id != surface.id], artifact)
        if (at := self._live()) is not None:
            name = artifact.name or ""
            self._services.publish(ActivitySnapshot(self.run, *at, self.call_id, name, artifact.content))

    @property
    def surfaces(self) -> tuple[Artifact, ...]:
        """The surfaces that the call shows."""
        return self._surfaces

    def _live(self) -> tuple[int, int] | None:
        """The log position and time of a live event; None if nobody is watching."""
        return (self._services.head(), self._services.now()) if self._services.watched() else None

    # -- children and tasks ----------------------------------------------------------------------------------

    async def run_agent(
        self,
        agent_id: str,
        prompt: str | Sequence[Content] | object,
        *,
        durable: bool = False,
        fork: bool = False,
        state: Mapping[AnyKey, Any] | None = None,
    ) -> ChildResult:
        """Run another agent as a child of this call and wait for its result.

        The prompt is a text, content parts, or a value of the type that the agent declares as its `input`. A
        `durable` child has a thread that any process can run. With `fork` the child is shown this conversation
        before the prompt. `state` is the initial state of a local child; the result has its final state.

        A tool that may run again (`resumable=True`, or any effect but `once`) is unwound while the child waits for
        a person or runs elsewhere, and runs again from the top when the child is done. Other tools wait in memory.
        """
        message, seed = self._prompt(agent_id, prompt), self._seed(state)
        for name, value in (("durable", durable), ("fork", fork)):
            if not isinstance(cast(Any, value), bool):
                raise InvalidInput(f"{name} is True or False, not {value!r:.80}")
        return await self.run_child(ChildRequest(agent_id, message, durable=durable, fork=fork, state=seed))

    def run_child(self, request: ChildRequest) -> Coroutine[Any, Any, ChildResult]:
        """Run another agent as a child of this call, by a request that is already checked."""
        return self._services.run_agent(self, request)

    async def spawn(
        self,
        target: Spawnable,
        prompt: str | Sequence[Content] | object | None = None,
        *,
        name: str | None = None,
        state: Mapping[AnyKey, Any] | None = None,
        detached: bool = False,
        wake: TaskWake = "inbox",
        arguments: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> TaskRecord:
        """Start a background task: another agent with a prompt, a function of `Runtime(tasks=...)` with its
        arguments, or a coroutine, which ends with this process.

        The task is committed before this returns; the run is told when it is done. A tool that runs again finds
        the task that it started before. A `detached` task belongs to the thread and outlives the run. If nothing
        runs on the thread when the task is done, its result waits in the inbox, or starts a run with `wake="run"`.
        Arguments whose names are options here go into `arguments`.
        """
        with close_on_error(target):
            check_task(name, detached, wake)
            given = merge_arguments(arguments, more)
            message = None if prompt is None else self._message(self._convert_prompt(target, prompt))
            seed = self._seed(state)
            if iscoroutine(target) and (message is not None or given or seed):
                raise InvalidInput(
                    f"a coroutine has its arguments already, and takes no prompt, arguments or state: spawn("
                    f"{target.__name__}(...), name=...)"
                )
        return await self._services.spawn(self, SpawnRequest(target, message, given, name, seed, detached, wake))

    def _prompt(self, agent_id: Any, prompt: Any) -> Message:
        if not isinstance(agent_id, str):
            raise InvalidInput(f"an agent is named by its id, a text, not {agent_id!r:.80}")
        return self._message(self._convert_prompt(agent_id, prompt))

    def _convert_prompt(self, target: Any, prompt: Any) -> Any:
        is_text = isinstance(prompt, str) or not isinstance(target, str)
        return prompt if is_text else self._services.convert_input(target, prompt)

    def _message(self, prompt: Any) -> Message:
        if isinstance(prompt, str) and not prompt.strip():
            raise InvalidInput("prompt must not be empty")
        return user_message(parse_input(prompt), at=self.now)

    def _seed(self, state: Any) -> dict[str, bytes]:
        if state is not None and not isinstance(state, Mapping):
            raise InvalidInput(f"state is a dict of state keys and values, not {state!r:.80}")
        seed: dict[str, bytes] = {}
        for key, value in cast(Mapping[AnyKey, Any], state or {}).items():
            self._services.check_key(key)
            seed[key.name] = key.encode(value)
        return seed

    @property
    def task(self) -> TaskRef | None:
        """The task that this run carries out, if it carries out one."""
        return self._services.task()

    async def tasks(self) -> Sequence[TaskRecord]:
        """The tasks of this thread, oldest first, finished ones included."""
        return await self._services.tasks()

    async def refresh_task(self, task: TaskRecord) -> TaskRecord:
        """The present state of a task; a remote one that nobody follows is followed from now on."""
        return await self._services.refresh_task(task)

    async def task_output(self, task: TaskRecord) -> str:
        """The last answer of a task's agent."""
        return await self._services.task_output(task)

    async def cancel_task(self, task: TaskRecord, reason: str = "") -> int:
        """Cancel a task and its whole tree once this call's result is committed; returns the number of runs."""
        return await self._services.cancel_task(task, require_text(reason, "the reason to cancel"))

    async def cancel_self(self, reason: str = "") -> tuple[str, int]:
        """Cancel this run and its tree once this call has returned; returns its id and the number of runs."""
        return await self._services.cancel_self(require_text(reason, "the reason to cancel"))

    async def resume_task(self, task: TaskRecord, prompt: str = "") -> TaskRecord:
        """Continue a cancelled task; returns its new record."""
        return await self._services.resume_task(self, task, prompt)

    # -- timers ----------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float | timedelta) -> None:
        """Wait for a time by the runtime's clock; see `sleep_until`."""
        duration = to_seconds(seconds, "what to sleep", least=-math.inf)
        await self._sleep(lambda: self.now + round(max(0, duration) * 1000))

    async def sleep_until(self, time: datetime) -> None:
        """Wait until a time.

        A tool that may run again (`resumable=True`, or any effect but `once`) is unwound meanwhile and holds
        nothing; it runs again from the top and passes this point. Other tools wait in memory.
        """
        until = to_milliseconds(time, "what to sleep until")
        await self._sleep(lambda: until)

    async def _sleep(self, wanted: Callable[[], int]) -> None:
        place = self.next_place()
        until = dict(self._call.timers).get(place)
        until = wanted() if until is None else until
        if until <= self.now:
            return
        if self.can_suspend:
            raise self.park(timer=(place, until))
        await self._services.sleep(until)

    # -- messages and results --------------------------------------------------------------------------------

    async def send(self, to: Addressee, text: str) -> Receipt:
        """Send a message to another agent: `"parent"`, a task of this thread, or a `Recipient`.

        The message is committed with this call's result and then delivered exactly once; a call that fails sends
        nothing. The receipt says `staged`, or `failed` and why.
        """
        return await self._services.mail.send(self, recipient_of(to), check_text(text))

    @property
    def mail(self) -> Mail:
        """The dead letters of this thread, to be replayed or dropped."""
        return self._services.mail

    async def result_of(self, call_id: str) -> tuple[str, int] | None:
        """The text of a call's result on this thread, and how many characters of it the model is shown at once;
        None if there is no such result."""
        return await self._services.result_of(call_id)

    def end(self) -> None:
        """Close the context: the call has ended; used by the loop."""
        super().end()
        services: Any = EndedServices(self._call)
        self._services = services


def _is_awaited() -> bool:
    """Whether the caller's caller awaits the call: only its next instruction tells."""
    here = currentframe()
    frame = here and here.f_back and here.f_back.f_back
    if frame is None:
        return False
    rest = (each.opname for each in dis.get_instructions(frame.f_code) if each.offset > frame.f_lasti)
    return next(rest, "") == "GET_AWAITABLE"
