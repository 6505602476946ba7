"""What a tool can see and do while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from msgspec import Struct

from ..errors import ConfigurationError, InvalidInput, ToolCancelled, ToolError, UsageError
from ..state import AnyKey, Command, Snapshot
from ..types.content import Content, given_text
from ..types.events import ActivityDelta, ActivitySnapshot, ToolOutput, ToolProgress
from ..types.mail import Receipt
from ..types.messages import Message, input_of, user_message
from ..types.runs import Call, Identity, Principal, TaskRecord, TaskRef, TaskWake
from ..types.tickets import Decision, Escalation, OnDeadline, ResumeMode, Seconds
from ._awaited import is_awaited
from ._begun import arguments_of, check_task, closing, moment_of, seconds_of
from ._mail import Addressee, Mail, check_text, recipient_of
from ._schema import Shape
from ._services import ChildRequest, ChildResult, Services, Spawnable, SpawnRequest
from ._showing import check_progress, check_shown
from ._signals import Asked, Parked
from ._terms import terms_of

if TYPE_CHECKING:
    from ._tool import Tool

__all__ = ["ToolContext"]

T = TypeVar("T")


class _Over(Struct, frozen=True, gc=False):
    """What is in the place of a call's services once it has ended: whatever is asked of it is refused."""

    call: Call

    def __getattr__(self, name: str) -> Any:
        raise self.refusal()

    def refusal(self) -> UsageError:
        return UsageError(
            f"the call {self.call.id} of {self.call.name} has ended, and its context with it: nothing can be "
            "changed, shown or begun by it any more; do so before the tool returns, or let ctx.spawn(...) begin "
            "what is to go on"
        )


class ToolContext(Struct, eq=False):
    """Given to a tool that has a parameter of this type.

    `run` says which run this is and where it stands in its tree; `state` is the state when the call began;
    `decision` is the latest answer to a ticket of this call; `idempotency_key` is the same for every attempt at
    the call; `fence` is a number that grows with every takeover of the thread. It is the call's: once that has
    ended, whatever would change, show or begin something raises `UsageError`.
    """

    run: Identity
    _call: Call
    state: Snapshot
    principal: Principal | None
    fence: int
    _services: Services
    _tool: Tool
    # What the tool wants changed, if anything.
    changes: Command | None = None
    # What the tool is being unwound for: that counts, whatever becomes of the signal on its way out.
    unwinding: Asked | Parked | None = None
    _asked: int = 0
    _places: int = 0
    _cancelled: bool = False

    @property
    def call_id(self) -> str:
        """The call's id."""
        return self._call.id

    @property
    def name(self) -> str:
        """The tool's name."""
        return self._call.name

    @property
    def attempt(self) -> int:
        """How often the call was started, this time included."""
        return self._call.attempt

    @property
    def decision(self) -> Decision | None:
        """The latest answer to a ticket of this call."""
        return self._call.decisions[-1] if self._call.decisions else None

    @property
    def command(self) -> Command:
        """What the tool wants changed."""
        self._check_open()
        if self.changes is None:
            self.changes = Command()
        return self.changes

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this call, and for no other call."""
        return f"{self.run.run_id}:{self.call_id}"

    @property
    def cancelled(self) -> bool:
        """Whether the call was told to stop. A tool in a thread looks at this now and then."""
        return self._cancelled

    def check_cancelled(self) -> None:
        """Raise `ToolCancelled` if the call was told to stop."""
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
        """End the run once this step's calls are finished."""
        self.command.ending = given_text(reason, "the reason to end a run")

    def handoff(self, agent_id: str) -> None:
        """Let another agent take over the run from its next step."""
        self._services.check_agent(agent_id)
        self.command.handoff = agent_id

    @overload
    def ask(
        self,
        message: str,
        *,
        schema: type[T],
        mode: ResumeMode = "replay",
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
        mode: ResumeMode = "replay",
        assignee: str | None = None,
        deadline: Seconds | None = None,
        on_deadline: OnDeadline = "deny",
        escalate: Sequence[Escalation] = (),
    ) -> Any: ...
    def ask(self, message: str, *, schema: Any = None, mode: ResumeMode = "replay", **terms: Any) -> Any:
        """Ask a person and return the answer.

        The first time, the tool is unwound here and the run is suspended. When the answer has come, the tool
        runs again from the top, and each `ask` it reaches returns what was answered to it. Code before an
        `ask` runs again too: it must be repeatable.

        `schema` is a JSON schema or a Python type that the answer must fit; with a type, the answer is a value of
        it. At the `deadline` (seconds or a timedelta) the question goes to the first in `escalate`, and with
        nobody left `on_deadline` decides: `approve`, `deny` or `Answer(value)`.
        """
        self._check_open()
        if not self._tool.suspendable:
            raise ToolError(
                f"{self.name} can't ask while it runs: its effect is 'once', so it must not run again from the "
                "top; declare it resumable=True if that is safe, or ask before it starts with approval=True"
            )
        answers = [d for d in self._call.decisions if d.asked_by == "tool"]
        if self._asked < len(answers):
            self._asked += 1
            value = answers[self._asked - 1].value
            return value if schema is None or isinstance(schema, dict) else Shape(schema).convert(value)
        if is_awaited():
            # Else it would fail when the answer has come, and the answer would be lost.
            raise ToolError(f"{self.name} awaits ctx.ask(...), which returns the answer: leave the await out")
        if isinstance(self.unwinding, Asked):
            # Another is being asked, side by side with this one: the next answer is to that.
            raise self.unwinding
        # Whoever may edit the arguments may also leave them as they are.
        accepts: tuple[ResumeMode, ...] = ("arguments", "replay") if mode == "arguments" else (mode,)
        try:
            self.unwinding = Asked(given_text(message, "a question"), terms_of(accepts, schema, **terms))
        except (ConfigurationError, UsageError) as error:
            raise ToolError(f"{self.name} can't ask {message!r:.80}: {error}") from error
        raise self.unwinding

    def stream(self, text: str) -> None:
        """Show a piece of output while the tool runs."""
        text = given_text(text, "what a tool streams")
        if (at := self._moment()) is not None:
            self._services.publish(ToolOutput(self.run, *at, self.call_id, self.name, text))

    def progress(
        self,
        fraction: float | None = None,
        *,
        done: int | None = None,
        total: int | None = None,
        message: str = "",
    ) -> None:
        """Show how far the tool has come."""
        check_progress(fraction, done, total)
        message = given_text(message, "the message of a progress")
        if (at := self._moment()) is not None:
            self._services.publish(
                ToolProgress(self.run, *at, self.call_id, self.name, fraction, done, total, message)
            )

    def activity(self, name: str, content: Any) -> None:
        """Show something of the tool's own, such as a plan; the same name again replaces it."""
        name = given_text(name, "an activity's name")
        check_shown(content)
        if (at := self._moment()) is not None:
            self._services.publish(ActivitySnapshot(self.run, *at, self.call_id, name, content))

    def activity_delta(self, name: str, patch: list[dict[str, Any]]) -> None:
        """Change what `activity` showed, by a JSON patch."""
        name = given_text(name, "an activity's name")
        check_shown(patch)
        if (at := self._moment()) is not None:
            self._services.publish(ActivityDelta(self.run, *at, self.call_id, name, patch))

    async def run_agent(
        self,
        agent_id: str,
        prompt: str | Sequence[Content] | object,
        *,
        durable: bool = False,
        fork: bool = False,
        state: Mapping[AnyKey, Any] | None = None,
    ) -> ChildResult:
        """Run another agent as a child of this call and wait for what it comes to.

        The prompt is a text, content parts, or a value of the type that the agent declares as its `input`. A
        `durable` child has a thread that any process can run. With `fork` the child is shown this conversation
        before the prompt. `state` is what a local child's state begins with; the result has what it left behind.
        A tool that may run again (`resumable=True`, or any effect but `once`) is unwound while the child waits for
        a person or runs elsewhere, and runs again from the top once it is done; any other waits in memory.
        """
        message, seed = self._prompt(agent_id, prompt), self._seed(state)
        for name, value in (("durable", durable), ("fork", fork)):
            if not isinstance(cast(Any, value), bool):
                raise InvalidInput(f"{name} is True or False, not {value!r:.80}")
        return await self.begin(ChildRequest(agent_id, message, durable=durable, fork=fork, state=seed))

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
        """Begin work in the background: another agent with a prompt, a function of `Runtime(tasks=...)` with its
        arguments, or a coroutine, which ends with this process.

        It is written down before this returns; the run is told when it is done, and a tool that runs again finds
        the task that it began before. A `detached` task is the thread's and outlives the run. If nothing runs on
        the thread when it is done, its result waits in the inbox, or with `wake="run"` begins a run. Arguments
        whose names are options here go into `arguments`.
        """
        with closing(target):
            check_task(name, detached, wake)
            given = arguments_of(arguments, more)
            message = None if prompt is None else self._message(self._said(target, prompt))
            seed = self._seed(state)
            if iscoroutine(target) and (message is not None or given or seed):
                raise InvalidInput(
                    f"a coroutine has its arguments already, and takes no prompt, arguments or state: spawn("
                    f"{target.__name__}(...), name=...)"
                )
        return await self._services.spawn(self, SpawnRequest(target, message, given, name, seed, detached, wake))

    async def sleep(self, seconds: float | timedelta) -> None:
        """Wait so long by the runtime's clock; see `sleep_until`."""
        wanted = seconds_of(seconds, "what to sleep", least=-math.inf)
        await self._sleep(lambda: self.now + round(max(0, wanted) * 1000))

    async def sleep_until(self, time: datetime) -> None:
        """Wait until a time. A tool that may run again (`resumable=True`, or any effect but `once`) is unwound
        meanwhile, however long that is, and holds nothing; it runs again from the top, and passes by here. Any
        other waits in memory."""
        until = moment_of(time, "what to sleep until")
        await self._sleep(lambda: until)

    async def _sleep(self, wanted: Callable[[], int]) -> None:
        place = self.next_place()
        until = dict(self._call.timers).get(place)
        until = wanted() if until is None else until
        if until <= self.now:
            return
        if self.suspendable:
            raise self.park(timer=(place, until))
        await self._services.sleep(until)

    def _prompt(self, agent_id: Any, prompt: Any) -> Message:
        if not isinstance(agent_id, str):
            raise InvalidInput(f"an agent is named by its id, a text, not {agent_id!r:.80}")
        return self._message(self._said(agent_id, prompt))

    def _said(self, target: Any, prompt: Any) -> Any:
        known = isinstance(prompt, str) or not isinstance(target, str)
        return prompt if known else self._services.said_to(target, prompt)

    def _message(self, prompt: Any) -> Message:
        if isinstance(prompt, str) and not prompt.strip():
            raise InvalidInput("prompt must not be empty")
        return user_message(input_of(prompt), at=self.now)

    def _seed(self, state: Any) -> dict[str, bytes]:
        if state is not None and not isinstance(state, Mapping):
            raise InvalidInput(f"state is a dict of state keys and values, not {state!r:.80}")
        seed: dict[str, bytes] = {}
        for key, value in cast(Mapping[AnyKey, Any], state or {}).items():
            encoded = self._seeded(key, value)  # What isn't a key has no name either, and is refused here.
            seed[key.name] = encoded
        return seed

    async def send(self, to: Addressee, text: str) -> Receipt:
        """Write to another agent: `"parent"`, a task that works for this thread, or a `Recipient`.

        The message goes out with this call's result: once that is committed, it is sent, exactly once; a call that
        fails sends nothing. The receipt says `staged`, or `failed` and why."""
        return await self._services.mail.send(self, recipient_of(to), check_text(text))

    async def result_of(self, call_id: str) -> tuple[str, int] | None:
        """The text of the result that a call of this thread had, and how many characters of it the model is shown
        at once; None if there is no such result."""
        return await self._services.result_of(call_id)

    @property
    def mail(self) -> Mail:
        """The messages of this thread that were given up, to be sent again or dropped."""
        return self._services.mail

    def begin(self, request: ChildRequest) -> Coroutine[Any, Any, ChildResult]:
        """Run another agent as a child of this call."""
        return self._services.run_agent(self, request)

    @property
    def now(self) -> int:
        """The time in milliseconds, by the runtime's clock."""
        return self._services.now()

    @property
    def task(self) -> TaskRef | None:
        """The task that the run is, if another one began it."""
        return self._services.task()

    async def tasks(self) -> Sequence[TaskRecord]:
        """The tasks of this thread, oldest first, those that are over too."""
        return await self._services.tasks()

    async def refresh_task(self, task: TaskRecord) -> TaskRecord:
        """How a task stands now. A remote one that nobody follows any more is followed from here on."""
        return await self._services.refresh_task(task)

    async def task_output(self, task: TaskRecord) -> str:
        """The last answer of a task's agent."""
        return await self._services.task_output(task)

    async def cancel_task(self, task: TaskRecord, reason: str = "") -> int:
        """Stop a task with all that works for it, once this call's result is committed; how many runs that are."""
        return await self._services.cancel_task(task, given_text(reason, "the reason to cancel"))

    async def cancel_self(self, reason: str = "") -> tuple[str, int]:
        """Stop this run with all that works for it, once this call has returned."""
        return await self._services.cancel_self(given_text(reason, "the reason to cancel"))

    async def resume_task(self, task: TaskRecord, prompt: str = "") -> TaskRecord:
        """Let a task go on that was stopped; the task as it is then."""
        return await self._services.resume_task(self, task, prompt)

    def _seeded(self, key: AnyKey, value: Any) -> bytes:
        self._services.check_key(key)
        return key.encode(value)

    @property
    def suspendable(self) -> bool:
        """Whether the tool may be unwound and run again from the top."""
        return self._tool.suspendable

    @property
    def one_child(self) -> bool:
        """Whether the tool awaits one child, and nothing beside it."""
        return self._tool.one_child

    def park(self, task_id: str | None = None, timer: tuple[int, int] | None = None) -> Parked:
        """What to raise in a tool that waits for a task or a time; it may wait for several things at once."""
        parked = self.unwinding if isinstance(self.unwinding, Parked) else Parked()
        parked.task_id = parked.task_id or task_id
        if timer is not None:
            parked.timers += (timer,)
        self.unwinding = self.unwinding or parked
        return parked

    def next_place(self) -> int:
        """The number of the next thing that the call waits for: the same in every attempt at it."""
        self._places += 1
        return self._places

    def _moment(self) -> tuple[int, int] | None:
        return (self._services.head(), self._services.now()) if self._services.watched() else None

    def cancel(self) -> None:
        """Tell the tool to stop; used by the loop."""
        self._cancelled = True

    def end(self) -> None:
        """The call is over; used by the loop."""
        over: Any = _Over(self._call)
        self._services = over

    def _check_open(self) -> None:
        if isinstance(self._services, _Over):
            raise self._services.refusal()
