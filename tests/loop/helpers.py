"""Helpers of the tests of the loop, the runtime and plugins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from wakeful import Agent, Decision, MemoryStore, Message, Runtime, ScriptedModel, ToolContext, tool
from wakeful.dispatch import RunResult
from wakeful.loop import drive
from wakeful.stores import Commit, Store
from wakeful.tools import FunctionTool
from wakeful.types import RunRecord
from wakeful.types.calls import Call
from wakeful.types.codec import encode
from wakeful.types.content import Text, ToolCall, ToolReply
from wakeful.types.events import Event, InferenceComplete, RunFinish, RunStart, StepStart, ToolCallReady
from wakeful.types.ids import new_id
from wakeful.types.messages import user_message
from wakeful.types.runs import Cancelled, Identity
from wakeful.types.tickets import Ticket

Scripted = Callable[..., ScriptedModel]
T = TypeVar("T")
E = TypeVar("E", bound=Event)


# -- looking -------------------------------------------------------------------------------------------------


def assert_valid_history(messages: Sequence[Message], open_calls: Iterable[str] = ()) -> None:
    """Fail unless every vendor would accept the conversation.

    Each call has exactly one reply, directly behind the turn of its assistant message and before anything else;
    no reply is without a call. `open_calls` are those that a waiting run has no reply to yet.
    """
    unanswered: dict[str, str] = {}
    seen: set[str] = set()
    for message in messages:
        encode(message)  # What can't be encoded can't be stored.
        if message.role == "tool":
            reply = message.reply
            assert reply is not None, f"a tool message without a reply: {message}"
            assert reply.call_id in unanswered, f"a reply to no open call, or a second one: {message}"
            assert unanswered.pop(reply.call_id) == reply.name
            continue
        assert not unanswered, f"a {message.role} message before the replies to {unanswered}"
        assert message.role == "assistant" or not message.calls
        assert message.content, f"an empty {message.role} message"
        for wanted in message.calls:
            assert wanted.id not in seen, f"call id {wanted.id} was used twice"
            seen.add(wanted.id)
            unanswered[wanted.id] = wanted.name
    assert set(unanswered) == set(open_calls), f"calls without a reply: {unanswered}"


async def assert_settled(runtime: Runtime, thread: str) -> None:
    """Fail unless the thread is at rest: a valid conversation, a finished log, nothing that still runs."""
    store = runtime.store
    stored = await store.load(thread)
    assert stored is not None
    assert stored.run is None
    assert not stored.thread.claimed
    assert not stored.inbox
    assert_valid_history(await store.messages(thread))
    log = await store.events(thread)
    assert isinstance(log[-1], RunFinish)
    assert log[-1].status == "done"
    for run in await store.runs(thread_id=thread):
        assert run.status == "done"
        assert run.outcome is not None
        assert run.finished_at is not None
        assert run.waiting is None
        assert all(c.state == "finished" for c in await store.calls(run.id))
        assert all(t.status != "open" for t in await store.tickets(run.id))
    assert not runtime._scope.dispatch.active
    for _ in range(3):  # Who waited for the run hears of its end some turns before all is done.
        await asyncio.sleep(0)
    assert not runtime._scope.dispatch.tasks


async def assert_cancelled(runtime: Runtime, thread: str, reason: str | None = None) -> RunRecord:
    """Fail unless the thread's newest run was cancelled in good order; returns its record."""
    await assert_settled(runtime, thread)
    run = (await runtime.runs.list(thread=thread))[0]
    assert run.outcome is not None
    assert isinstance(run.outcome.termination, Cancelled)
    assert reason is None or run.outcome.termination.reason == reason
    finish = (await events_of(runtime, thread, RunFinish))[-1]
    assert finish.run.run_id == run.id
    assert finish.termination == run.outcome.termination
    return run


async def log_of(runtime: Runtime, thread: str) -> list[Event]:
    """The thread's durable events."""
    return [event async for event in runtime.events(thread, follow=False)]


async def events_of(runtime: Runtime, thread: str, kind: type[E]) -> list[E]:
    """The thread's durable events of one kind."""
    return [event for event in await log_of(runtime, thread) if isinstance(event, kind)]


def replies(messages: Iterable[Message]) -> list[ToolReply]:
    """The tool results in a conversation, in order."""
    return [message.reply for message in messages if message.reply is not None]


def reply_text(reply: ToolReply) -> str:
    """The text of a tool result in a request."""
    return "".join(part.text for part in reply.content if isinstance(part, Text))


async def replies_on(runtime: Runtime, thread: str) -> list[ToolReply]:
    """The tool results on a thread, in order."""
    return replies(await runtime.threads.messages(thread))


async def outcomes(runtime: Runtime, run_id: str) -> dict[str, str | None]:
    """How a run's calls ended, by tool; for tests that call each tool once."""
    return {call.name: call.outcome for call in await runtime.runs.calls(run_id)}


# -- waiting -------------------------------------------------------------------------------------------------


async def soon(awaitable: Awaitable[T]) -> T:
    """The result of something that must not hang."""
    return await asyncio.wait_for(awaitable, 120)


async def until(condition: Callable[[], Any]) -> None:
    """Let tasks run until the condition holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 20
    while not condition():
        assert loop.time() < deadline, "it never came true"
        await asyncio.sleep(0)


async def until_idle(runtime: Runtime) -> None:
    """Let tasks run until nothing runs in the background."""
    await until(lambda: not runtime._scope.dispatch.tasks and not runtime._scope.dispatch.active)


class Hold:
    """A place where something waits until the test lets it go."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.released = asyncio.Event()
        self.times = 0

    async def here(self) -> None:
        """Say that it was reached, and wait."""
        self.times += 1
        self.reached.set()
        await self.released.wait()


class Spy:
    """Counts what ran, with which arguments, keys and attempts."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.keys: list[str] = []
        self.attempts: list[int] = []

    def note(self, label: str, ctx: ToolContext | None = None) -> None:
        """Write down one execution."""
        self.ran.append(label)
        if ctx is not None:
            self.keys.append(ctx.idempotency_key)
            self.attempts.append(ctx.attempt)


def spying(spy: Spy, name: str, result: Any = None, **options: Any) -> FunctionTool:
    """A tool that notes each execution and returns at once."""

    async def run(ctx: ToolContext, x: int = 0) -> Any:
        """Do it."""
        spy.note(name, ctx)
        return f"{name} {x}" if result is None else result

    return tool(name=name, **options)(run)


def holding(hold: Hold, name: str = "wait", **options: Any) -> FunctionTool:
    """A tool that waits until the test lets it go."""

    async def run() -> str:
        """Wait."""
        await hold.here()
        return f"{name} done"

    return tool(name=name, **options)(run)


# -- suspending -----------------------------------------------------------------------------------------------


class House:
    """A store, and runtimes that come and go."""

    def __init__(self, model: ScriptedModel, *tools: Any, **options: Any) -> None:
        self.store = MemoryStore()
        self._agent = Agent("agent", model=model, tools=tools, **options)

    def fresh(self) -> Runtime:
        """A runtime that remembers nothing."""
        return Runtime([self._agent], store=self.store)

    async def run(self, text: str = "go", **options: Any) -> RunResult:
        """Run in a runtime of its own, on thread `t`."""
        return await self.fresh().run("agent", text, thread="t", **options)

    async def resume(self, run_id: str, *decisions: Decision, **options: Any) -> RunResult:
        """Resume in a runtime of its own."""
        return await self.fresh().resume(run_id, *decisions, **options)

    async def replies(self) -> list[tuple[str, str | None, str]]:
        """The result of each call in the last request: tool, error, text."""
        return [(r.name, r.error, reply_text(r)) for r in await replies_on(self.fresh(), "t")]

    async def settled(self) -> None:
        """Everything is at rest and valid."""
        await assert_settled(self.fresh(), "t")


# -- crashing ------------------------------------------------------------------------------------------------


def row(name: str, state: str = "started", *, index: int = 0, run_id: str = "", **fields: Any) -> Call:
    """A row of the ledger, as a process left it behind."""
    attempt = fields.pop("attempt", 1 if state == "started" else 0)
    arguments = fields.pop("arguments", {})
    call_id = fields.pop("id", new_id())
    return Call(call_id, run_id, 1, index, name, arguments, state=state, attempt=attempt, **fields)  # type: ignore[arg-type]


async def leave_behind(
    store: Store,
    agent_id: str,
    *calls: Call,
    thread: str = "t",
    text: str = "an answer",
    **fields: Any,
) -> RunRecord:
    """Write what a process leaves behind that died after the model asked for these calls.

    Suspended calls get a ticket from `approval`. `fields` go into the run's record, e.g. `status`.
    """
    run_id, now = new_id(), 1_700_000_000_000
    identity = Identity(run_id, thread, agent_id, run_id)
    wanted = tuple(ToolCall(c.id, c.name, c.arguments) for c in calls)
    answer = Message(new_id(), "assistant", wanted or (Text(text),), now)
    rows: list[Call] = []
    tickets: list[Ticket] = []
    done: list[Message] = []
    for index, call in enumerate(calls):
        changes: dict[str, Any] = {"run_id": run_id, "index": index}
        if call.state == "suspended":
            ticket = Ticket(
                id=new_id(),
                run_id=run_id,
                thread_id=thread,
                call_id=call.id,
                tool=call.name,
                arguments=call.arguments,
                asked_by="approval",
                accepts=("proceed", "arguments", "result"),
            )
            tickets.append(ticket)
            changes["ticket_id"] = ticket.id
        if call.state == "finished":
            message = Message(new_id(), "tool", (ToolReply(call.id, call.name, (Text("done before"),)),), now)
            done.append(message)
            changes |= {"message_id": message.id, "outcome": "ok"}
        rows.append(replace(call, **changes))
    defaults: dict[str, Any] = {
        "status": "running",
        "stage": "acting",
        "steps": 1,
        "answer_id": answer.id,
        "created_at": now,
        "started_at": now,
        "first_seq": 1,
    }
    run = RunRecord(identity=identity, agent_id=agent_id, **{**defaults, **fields})
    log: list[Message | Event] = [
        RunStart(identity, 0, now, "new"),
        user_message("go", at=now),
        StepStart(identity, 0, now, 1),
        answer,
        InferenceComplete(identity, 0, now, "scripted", answer.id, "tool_use"),
        *[ToolCallReady(identity, 0, now, c.id, c.name, c.arguments) for c in rows],
        *done,
    ]
    await store.commit(
        Commit(thread_id=thread, version=0, identity=identity, log=log, runs=[run], calls=rows, tickets=tickets)
    )
    return run


async def recover(runtime: Runtime, thread: str = "t") -> RunResult:
    """Go on with a run that nobody runs any more, as a dispatcher does that found it."""
    dispatch = runtime._scope.dispatch
    stored = await dispatch.env.store.load(thread)
    assert stored is not None
    assert stored.run is not None
    act = await dispatch.activations.reopen(stored, stored.run, "recover")
    await drive(act, dispatch)
    return dispatch.result(act)
