"""Runs as A2A tasks: state, status, artifacts and history, always from the store."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec
from a2a.types import a2a_pb2 as pb
from msgspec import Raw
from msgspec.structs import replace

from ...dispatch import RunResult
from ...runtime import Runtime
from ...stores import InboxItem
from ...types.events import MessageAdded, RunStart
from ...types.messages import Message
from ...types.runs import BehaviourRequested, Blocked, Cancelled, Identity, NaturalEnd, Outcome, RunRecord
from ...types.tickets import Ticket
from ._tickets import asking_parts
from ._wire import data_part, parts_of, text_part, timestamp_of

__all__ = [
    "ANSWER",
    "INTERRUPTED",
    "TERMINAL",
    "artifacts_of",
    "find",
    "fresh_task",
    "is_silent",
    "is_unbegun",
    "state_of",
    "status_of",
    "task_of",
    "unbegun",
]

# The artifact that holds a run's answer, and the one that holds its typed output.
ANSWER, OUTPUT = "answer", "output"

TERMINAL = frozenset(
    {
        pb.TASK_STATE_COMPLETED,
        pb.TASK_STATE_FAILED,
        pb.TASK_STATE_CANCELED,
        pb.TASK_STATE_REJECTED,
    }
)
NATURAL = (NaturalEnd, BehaviourRequested)
INTERRUPTED = frozenset({pb.TASK_STATE_INPUT_REQUIRED, pb.TASK_STATE_AUTH_REQUIRED})


async def find(runtime: Runtime, task_id: str) -> RunRecord | None:
    """The run of a task, also of one that waits its turn, or was cancelled while it did."""
    run = await runtime.store.run(task_id)
    if run is not None or (item := await runtime.store.item_of_run(task_id)) is None:
        return run
    return unbegun(item) if item.taken_by is None else await runtime.store.run(item.taken_by)


def unbegun(item: InboxItem) -> RunRecord:
    """The run that an input is to become, or would have become."""
    run_id, agent_id = item.run_id or item.id, item.agent_id or ""
    at = item.message.created_at if item.message is not None else 0
    identity = Identity(run_id, item.thread_id, agent_id, run_id)
    run = RunRecord(identity=identity, agent_id=agent_id, principal=item.principal, created_at=at)
    if item.status == "pending":
        return run
    return replace(run, status="done", outcome=Outcome(Cancelled("its message was taken back")))


def is_unbegun(run: RunRecord) -> bool:
    """Whether it is such a run: there is nothing more of it."""
    return run.first_seq == 0


def is_silent(run: RunRecord) -> bool:
    """Whether more may happen to it than its own thread tells: those below it ask without a word there, and one
    that has yet to begin is cancelled without one."""
    return is_unbegun(run) or (run.waiting is not None and (run.apart or bool(run.waiting.tasks)))


def state_of(run: RunRecord | RunResult, tickets: Sequence[Ticket]) -> pb.TaskState:
    """Where a run stands, in A2A's words. One that waits for tasks or a time works."""
    match run.status:
        case "created":
            return pb.TASK_STATE_SUBMITTED
        case "waiting" if tickets:
            auth = any(ticket.asked_by == "remote" and ticket.tool == "auth_required" for ticket in tickets)
            return pb.TASK_STATE_AUTH_REQUIRED if auth else pb.TASK_STATE_INPUT_REQUIRED
        case "done":
            return _ended(run)
        case _:
            return pb.TASK_STATE_WORKING


def _ended(run: RunRecord | RunResult) -> pb.TaskState:
    if isinstance(run, RunResult):
        ending, failed = run.termination, run.error is not None
    else:
        ending = None if run.outcome is None else run.outcome.termination
        failed = not isinstance(ending, NATURAL)
    match ending:
        case Cancelled():
            return pb.TASK_STATE_CANCELED
        case Blocked():
            return pb.TASK_STATE_REJECTED
        case _:
            return pb.TASK_STATE_FAILED if failed else pb.TASK_STATE_COMPLETED


async def status_of(runtime: Runtime, run: RunRecord) -> pb.TaskStatus:
    """A run's status, with what it waits for or why it failed."""
    return (await _standing(runtime, run))[0]


async def _standing(runtime: Runtime, run: RunRecord) -> tuple[pb.TaskStatus, RunRecord]:
    """A run's status, and its record as of then: the one that is known may be from before the run went on."""
    if is_unbegun(run):
        return pb.TaskStatus(state=state_of(run, ()), timestamp=timestamp_of(run.created_at)), run
    while True:
        result = await runtime.result(run.id)
        run = await runtime.store.run(run.id) or run
        if run.status == result.status:
            return _status(run, result), run


def _status(run: RunRecord, result: RunResult) -> pb.TaskStatus:
    state = state_of(result, result.tickets)
    parts: list[pb.Part] = []
    if state in INTERRUPTED:
        parts = asking_parts(result.tickets)
    elif result.error is not None:
        parts = [text_part(result.error)]
    status = pb.TaskStatus(state=state, timestamp=timestamp_of(run.updated_at or run.created_at))
    if parts:
        # Another set of tickets is another question, wherever in the tree they are.
        asked = sha256("".join([ticket.id for ticket in result.tickets]).encode()).hexdigest()[:16]
        message_id = f"{run.id}:{asked if result.tickets else run.updated_at}"
        status.message.CopyFrom(_message(message_id, run, pb.ROLE_AGENT, parts))
    return status


def _message(message_id: str, run: RunRecord, role: pb.Role, parts: Sequence[pb.Part]) -> pb.Message:
    return pb.Message(message_id=message_id, context_id=run.thread_id, task_id=run.id, role=role, parts=parts)


async def artifacts_of(runtime: Runtime, run: RunRecord) -> list[pb.Artifact]:
    """What a run made: its last answer, and its typed output."""
    found: list[pb.Artifact] = []
    answer = await runtime.store.answer(run.id)
    if answer is not None and (parts := parts_of(answer.content)):
        found.append(pb.Artifact(artifact_id=ANSWER, name="answer", parts=parts))
    if run.outcome is not None and isinstance(run.outcome.output, Raw):
        value = msgspec.json.decode(run.outcome.output)
        found.append(pb.Artifact(artifact_id=OUTPUT, name="output", parts=[data_part(value)]))
    return found


async def task_of(runtime: Runtime, run: RunRecord, history: int, *, artifacts: bool = True) -> pb.Task:
    """A run as a task, with the last so many messages of its own conversation."""
    status, run = await _standing(runtime, run)
    task = pb.Task(id=run.id, context_id=run.thread_id, status=status)
    if is_unbegun(run):
        item = await runtime.store.item_of_run(run.id) if history else None
        if item is not None and item.message is not None:
            task.history.append(_told(run, item.message))
        return task
    if artifacts:
        task.artifacts.extend(await artifacts_of(runtime, run))
    if history:
        task.history.extend([_told(run, message) for message in await _messages(runtime, run, history)])
    return task


def fresh_task(run: RunRecord, message: pb.Message, history: int) -> pb.Task:
    """A task that a message just began, or went on with: what came of it is shown next."""
    state = pb.TASK_STATE_WORKING if message.task_id else pb.TASK_STATE_SUBMITTED
    status = pb.TaskStatus(state=state, timestamp=timestamp_of(run.created_at))
    sent = pb.Message()
    sent.CopyFrom(message)
    sent.task_id, sent.context_id = run.id, run.thread_id
    return pb.Task(id=run.id, context_id=run.thread_id, status=status, history=[sent] if history else [])


def _told(run: RunRecord, message: Message) -> pb.Message:
    """A message, by the id that its sender gave it."""
    role = pb.ROLE_USER if message.role == "user" else pb.ROLE_AGENT
    sent_as = None if message.producer is None else message.producer.message_id
    return _message(sent_as or message.id, run, role, parts_of(message.content))


async def _messages(runtime: Runtime, run: RunRecord, newest: int) -> list[Message]:
    """The last so many messages of a run that a caller may see: what was said, not what tools did."""
    found: list[Message] = []
    async for event in runtime.events(run.thread_id, after=run.first_seq - 1, follow=False):
        if event.run_id != run.id:
            if isinstance(event, RunStart) and event.trigger == "new":
                break  # The thread went on with another run.
            continue
        if isinstance(event, MessageAdded) and event.message.visibility == "all":
            message = event.message
            if message.role in ("user", "assistant") and parts_of(message.content):
                found.append(message)
    return found[-newest:]
