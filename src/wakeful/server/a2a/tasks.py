"""Runs as A2A tasks: state, status, artifacts and history, read from the store."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, cast

import msgspec
from a2a.types import a2a_pb2 as pb
from msgspec import Raw
from msgspec.structs import replace

from ...dispatch import RunResult
from ...runtime import TenantRuntime
from ...types.content import Artifact, Citation
from ...types.events import MessageAdded, RunStart, ToolCallResumed
from ...types.inbox import InboxItem, InputItem
from ...types.messages import Message
from ...types.runs import Blocked, Cancelled, EndRequested, Identity, NaturalEnd, Outcome, RunRecord
from ...types.tickets import Ticket
from .tickets import ticket_parts
from .wire import JSON, data_part, parts_of, text_part, timestamp_of

__all__ = [
    "ANSWER",
    "INTERRUPTED",
    "TERMINAL",
    "artifacts_of",
    "changes_silently",
    "find_run",
    "is_queued",
    "new_task",
    "queued_run",
    "reply_of",
    "state_of",
    "status_of",
    "task_of",
]

# The ids of the artifacts with a run's answer and its typed output.
ANSWER, OUTPUT = "answer", "output"

# The number of runs below a task whose tickets are searched for the caller's answers.
MAX_BELOW = 100

TERMINAL = frozenset(
    {
        pb.TASK_STATE_COMPLETED,
        pb.TASK_STATE_FAILED,
        pb.TASK_STATE_CANCELED,
        pb.TASK_STATE_REJECTED,
    }
)
NATURAL = (NaturalEnd, EndRequested)
INTERRUPTED = frozenset({pb.TASK_STATE_INPUT_REQUIRED, pb.TASK_STATE_AUTH_REQUIRED})


async def find_run(runtime: TenantRuntime, task_id: str) -> RunRecord | None:
    """Find the run of a task, which may be queued or have been cancelled while it was."""
    run = await runtime.store.run(task_id)
    if run is not None or (item := await runtime.store.item_of_run(task_id)) is None:
        return run
    return queued_run(item) if item.taken_by is None else await runtime.store.run(item.taken_by)


def queued_run(item: InboxItem) -> RunRecord:
    """The record of a run that is still an inbox item, or was cancelled as one."""
    run_id, agent_id = item.run_id or item.id, item.agent_id or ""
    identity = Identity(run_id, item.thread_id, agent_id, run_id)
    run = RunRecord(identity=identity, agent_id=agent_id, created_at=0)
    if isinstance(item, InputItem):
        run = replace(run, principal=item.principal, owner=item.owner, created_at=item.message.created_at)
    if item.status == "pending":
        return run
    return replace(run, status="done", outcome=Outcome(Cancelled("its message was taken back")))


def is_queued(run: RunRecord) -> bool:
    """Whether a run has not started, and is only an inbox item."""
    return run.first_seq == 0


def changes_silently(run: RunRecord) -> bool:
    """Whether a run may change without an event on its thread: by a child's question, or while it is queued."""
    return is_queued(run) or (run.waiting is not None and (run.apart or bool(run.waiting.tasks)))


def state_of(run: RunRecord | RunResult, tickets: Sequence[Ticket]) -> pb.TaskState:
    """The task state of a run; a run that waits for tasks or a time counts as working."""
    match run.status:
        case "created":
            return pb.TASK_STATE_SUBMITTED
        case "waiting" if tickets:
            auth = any(ticket.asked_by == "remote" and ticket.tool == "auth_required" for ticket in tickets)
            return pb.TASK_STATE_AUTH_REQUIRED if auth else pb.TASK_STATE_INPUT_REQUIRED
        case "done":
            return _final_state(run)
        case _:
            return pb.TASK_STATE_WORKING


def _final_state(run: RunRecord | RunResult) -> pb.TaskState:
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


async def status_of(runtime: TenantRuntime, run: RunRecord) -> pb.TaskStatus:
    """The status of a run, with its tickets or its error."""
    return (await _load_status(runtime, run))[0]


async def _load_status(runtime: TenantRuntime, run: RunRecord) -> tuple[pb.TaskStatus, RunRecord]:
    """Load a run's status and a record that matches it; the given record may be older."""
    if is_queued(run):
        return pb.TaskStatus(state=state_of(run, ()), timestamp=timestamp_of(run.created_at)), run
    while True:
        result = await runtime.runs.result(run.id)
        run = await runtime.store.run(run.id) or run
        if run.status == result.status:
            return _status(run, result), run


def _status(run: RunRecord, result: RunResult) -> pb.TaskStatus:
    state = state_of(result, result.tickets)
    parts: list[pb.Part] = []
    if state in INTERRUPTED:
        parts = ticket_parts(result.tickets)
    elif result.error is not None:
        parts = [text_part(result.error)]
    status = pb.TaskStatus(state=state, timestamp=timestamp_of(run.updated_at or run.created_at))
    if parts:
        # Another set of tickets is another question, also if the tickets are children's.
        asked = sha256("".join([ticket.id for ticket in result.tickets]).encode()).hexdigest()[:16]
        message_id = f"{run.id}:{asked if result.tickets else run.updated_at}"
        status.message.CopyFrom(_message(message_id, run, pb.ROLE_AGENT, parts))
    return status


def _message(message_id: str, run: RunRecord, role: pb.Role, parts: Sequence[pb.Part]) -> pb.Message:
    return pb.Message(message_id=message_id, context_id=run.thread_id, task_id=run.id, role=role, parts=parts)


async def artifacts_of(runtime: TenantRuntime, run: RunRecord) -> list[pb.Artifact]:
    """The artifacts of a run: its last answer and its typed output."""
    found: list[pb.Artifact] = []
    answer = await runtime.store.answer(run.id)
    parts = [] if answer is None else parts_of(answer.content)
    made = () if run.backend is None else run.backend.artifacts  # Files are parts of the answer.
    parts += [data_part(artifact.content) for artifact in made if _is_data(artifact)]
    if parts:
        made_of = () if answer is None else answer.citations
        found.append(pb.Artifact(artifact_id=ANSWER, name="answer", parts=parts, metadata=_sources(made_of)))
    if run.outcome is not None and isinstance(run.outcome.output, Raw):
        value = msgspec.json.decode(run.outcome.output)
        found.append(pb.Artifact(artifact_id=OUTPUT, name="output", parts=[data_part(value)]))
    return found


def _sources(citations: Sequence[Citation]) -> dict[str, Any] | None:
    """The metadata that name the sources of an answer, without the vendor's own form."""
    if not citations:
        return None
    return {"citations": [msgspec.to_builtins(replace(citation, raw={})) for citation in citations]}


def _is_data(artifact: Artifact) -> bool:
    """Whether a backend's artifact is JSON, not a file: bytes, a URL, or a media source."""
    content, media_type = artifact.content, artifact.media_type
    if content is None or media_type not in (None, JSON):
        return False
    if not isinstance(content, dict):
        return True
    fields = cast(dict[str, Any], content)
    is_file = media_type is not None and any(isinstance(fields.get(key), str) for key in ("bytes", "uri", "url"))
    return not is_file and fields.get("type") not in ("base64", "url")


def reply_of(task: pb.Task) -> pb.Message | None:
    """The message that says all that a completed task does; None if the task says more, or nothing."""
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    if task.status.state != pb.TASK_STATE_COMPLETED or not parts:
        return None
    metadata = next((artifact.metadata for artifact in task.artifacts if artifact.HasField("metadata")), None)
    return pb.Message(
        message_id=f"{task.id}:reply",
        context_id=task.context_id,
        role=pb.ROLE_AGENT,
        parts=parts,
        metadata=metadata,
    )


async def task_of(runtime: TenantRuntime, run: RunRecord, history: int, *, artifacts: bool = True) -> pb.Task:
    """A run as a task, with its last `history` messages."""
    status, run = await _load_status(runtime, run)
    task = pb.Task(id=run.id, context_id=run.thread_id, status=status)
    if is_queued(run):
        item = await runtime.store.item_of_run(run.id) if history else None
        if isinstance(item, InputItem):
            task.history.append(_message_of(run, item.message))
        return task
    if artifacts:
        task.artifacts.extend(await artifacts_of(runtime, run))
    if history:
        task.history.extend([_message_of(run, message) for message in await _read_messages(runtime, run, history)])
    return task


def new_task(run: RunRecord, message: pb.Message, history: int) -> pb.Task:
    """The task of a message that was just accepted, before any of its updates."""
    state = pb.TASK_STATE_WORKING if message.task_id else pb.TASK_STATE_SUBMITTED
    status = pb.TaskStatus(state=state, timestamp=timestamp_of(run.created_at))
    sent = pb.Message()
    sent.CopyFrom(message)
    sent.task_id, sent.context_id = run.id, run.thread_id
    return pb.Task(id=run.id, context_id=run.thread_id, status=status, history=[sent] if history else [])


def _message_of(run: RunRecord, message: Message) -> pb.Message:
    """A message under the id that its sender chose."""
    role = pb.ROLE_USER if message.role == "user" else pb.ROLE_AGENT
    sender_id = None if message.producer is None else message.producer.message_id
    return _message(sender_id or message.id, run, role, parts_of(message.content))


async def _read_messages(runtime: TenantRuntime, run: RunRecord, limit: int) -> list[Message]:
    """The last `limit` messages of a run that a caller may see: input, answers to tickets, the agent's texts."""
    found: list[Message] = []
    async for event in runtime.events(run.thread_id, after=run.first_seq - 1, follow=False):
        if event.run_id != run.id:
            if isinstance(event, RunStart) and event.trigger == "new":
                break  # The next run of the thread.
            continue
        if isinstance(event, ToolCallResumed) and event.decision.message is not None:
            found.append(event.decision.message)
        elif isinstance(event, MessageAdded) and event.message.visibility == "all":
            message = event.message
            if message.role in ("user", "assistant") and parts_of(message.content):
                found.append(message)
    for answer in await _answers_below(runtime, run):
        later = [place for place, message in enumerate(found) if message.created_at >= answer.created_at]
        found.insert(later[0] if later else len(found), answer)
    return _without_repetitions(found)[-limit:]


async def _answers_below(runtime: TenantRuntime, run: RunRecord) -> list[Message]:
    """The caller's answers to tickets of the runs below a task's run."""
    store = runtime.store
    below = [each for each in await store.runs(root_run_id=run.id, limit=MAX_BELOW) if each.id != run.id]
    tickets = [ticket for each in below for ticket in await store.tickets(each.id) if ticket.status == "answered"]
    decisions = [decision for ticket in tickets for decision in await store.decisions(ticket.id)]
    return [d.message for d in decisions if d.message is not None and d.not_taken is None]


def _without_repetitions(messages: Sequence[Message]) -> list[Message]:
    """Messages without the later of two with the same sender's id: text beside an answer is part of the answer."""
    found: dict[str, Message] = {}
    for message in messages:
        sender_id = None if message.producer is None else message.producer.message_id
        found.setdefault(sender_id or message.id, message)
    return list(found.values())
