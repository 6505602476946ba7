"""Effects of a backend's result on its run: answer, tickets, termination and saved state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..agents import BackendHandles, BackendOutputs
from ..errors import BackendError, ExecutionFailed, StateTooLarge
from ..loop import disclose, judge, note_error, suspend_call
from ..state import MAX_VALUE_BYTES
from ..tools import Terms, schema_faults
from ..types.calls import Call
from ..types.content import (
    Artifact,
    Audio,
    Base64,
    Content,
    Document,
    Image,
    ToolCall,
    Url,
    Video,
    clean_text,
    text_of,
)
from ..types.events import InferenceComplete, ToolCallReady
from ..types.ids import new_id
from ..types.messages import Message, Producer
from ..types.runs import (
    BackendEnd,
    Cancelled,
    EndRequested,
    Failed,
    NaturalEnd,
    Termination,
    Usage,
    WaitReason,
)
from ..types.tickets import Ticket
from .contract import BackendOutput, BackendResult, Capabilities, Question
from .polls import next_poll
from .requests import model_name
from .status import (
    BackendStatus,
    CancelledStatus,
    Completed,
    FailedStatus,
    Suspended,
    TimedOut,
    WaitingAuth,
    WaitingInput,
    durable_reason,
    durable_status,
    label,
    wait_reason,
)

if TYPE_CHECKING:
    from ..loop import Activation

__all__ = ["apply_result", "ask", "call_of", "check_questions", "check_result", "failure_of"]


_STATUSES = get_args(BackendStatus)


def check_result(result: Any, capabilities: Capabilities) -> BackendResult:
    """Check and normalize a result; raises `ExecutionFailed` if it is invalid or the capabilities rule it out."""
    if not isinstance(result, BackendResult):
        raise ExecutionFailed(f"the backend returned {type(result).__name__}, not a BackendResult")
    if not isinstance(cast(Any, result.status), _STATUSES):
        raise ExecutionFailed(f"the backend returned {result.status!r:.80}, which is no backend status")
    if not isinstance(cast(Any, result.text), str):
        raise ExecutionFailed(f"the backend returned {result.text!r:.80} as its text")
    kept = _round_trip(result)
    result = replace(result, state=kept.state, output=replace(result.output, raw=kept.output.raw))
    if result.questions:
        result = replace(result, questions=check_questions(result.questions))
    if result.output.artifacts and capabilities.output == "text":
        raise ExecutionFailed("the backend returned artifacts, but its capabilities declare output='text'")
    waits = capabilities.waits.split("_and_")
    match result.status:
        case WaitingInput() if "input" not in waits:
            undeclared = "waits: input"
        case WaitingAuth() if "auth" not in waits:
            undeclared = "waits: auth"
        case Suspended() if capabilities.continuation == "none":
            undeclared = "continuation"
        case _:
            return result
    raise ExecutionFailed(f"the backend returned {result.status}, but its capabilities don't declare {undeclared}")


class _Stored(Struct):
    """The parts of a result that are stored."""

    output: BackendOutput
    state: dict[str, Any] | None
    status: BackendStatus
    status_reason: str | None
    termination: Termination | None


def _round_trip(result: BackendResult) -> _Stored:
    """Encode and decode the stored parts, so that nothing is written that can't be read again."""
    ending = cast("Termination | None", result.termination)
    stored = _Stored(result.output, result.state, result.status, result.status_reason, ending)
    try:
        found = msgspec.json.decode(msgspec.json.encode((stored, result.questions)), type=tuple[_Stored, Any])[0]
    except msgspec.ValidationError as error:
        problem = str(error).replace("$[0].", "")
        raise ExecutionFailed(f"the backend returned an invalid result: {problem}") from None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ExecutionFailed(f"the backend returned a result that can't be stored as JSON: {error}") from error
    if odd := [a for a in cast("tuple[Any, ...]", result.output.artifacts) if not isinstance(a, Artifact)]:
        raise ExecutionFailed(f"the backend returned {odd[0]!r:.80} as an artifact: use Artifact(...)")
    return found


def check_questions(asked: Any) -> tuple[Question, ...]:
    """Check the questions of a backend; raises `ExecutionFailed`."""
    try:
        questions = msgspec.convert(msgspec.to_builtins(asked), tuple[Question, ...])
    except (msgspec.ValidationError, TypeError) as error:
        raise ExecutionFailed(f"the backend returned invalid questions: {error}") from None
    ids = [question.id for question in questions]
    if len(set(ids)) < len(ids) or not all(ids) or any(not question.accepts for question in questions):
        raise ExecutionFailed("each question of a backend needs a unique id and at least one accepted mode")
    for question in questions:
        if question.schema is not None and (faults := schema_faults(question.schema)):
            raise ExecutionFailed(f"the schema of the backend's question {question.id!r:.80}: {'; '.join(faults)}")
    return questions


def failure_of(act: Activation, error: Exception) -> BackendResult:
    """The failed result for an error that a backend raised, with the part of its message that isn't hidden."""
    agent_id = act.agent.id
    text = disclose(act, error, f"the backend of agent {agent_id}").partition(": ")[2]
    if _is_timeout(error):
        return BackendResult(agent_id, TimedOut(), Failed("TimedOut", text or "timeout"))
    if isinstance(error, BackendError) and error.quoted is None:
        text = clean_text(error.detail)
    text = text or type(error).__name__
    return BackendResult(agent_id, FailedStatus(text), Failed(type(error).__name__, text))


def _is_timeout(error: BaseException | None) -> bool:
    """Whether an error was caused by a timeout, which HTTP clients wrap; a `BackendError` is taken as it is."""
    while error is not None and not isinstance(error, BackendError):
        if isinstance(error, TimeoutError):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def apply_result(
    act: Activation,
    result: BackendResult,
    message_id: str,
    content: tuple[Content, ...],
    spent: tuple[int, Usage],
    refused: Iterable[Ticket] = (),
) -> bool:
    """Write a result's effects into the activation's draft; returns whether the answer is a message.

    `spent` are the time of the start and the usage. `refused` are tickets whose answers the remote did not take:
    they are asked again, or settled.
    """
    status, run, now, text = result.status, act.view.run, act.now, text_of(content)
    termination = _termination_of(result)
    output = result.output if result.output.text or not text else replace(result.output, text=text)
    waits = durable_status(status, termination) == "waiting"
    parts = list(content)
    parts += [part for artifact in output.artifacts if (part := _part_of(artifact)) is not None]
    asked = _calls_of(act, result, text) if waits else []
    parts += [ToolCall(call.id, call.name, call.arguments) for call, _ in asked]
    reason = result.status_reason or durable_reason(status, termination)
    end = _end(label(status, termination), reason, output, wait_reason(reason) if waits else None)
    if waits:
        deadlines = [question.deadline for _, question in asked]
        end = replace(end, poll_at=next_poll(act.agent.backend, now, deadlines, now))
    _save_output(act, result, output)
    run = replace(run, failures=0, ending=None if waits else termination, backend=end, updated_at=now)
    message: Message | None = None
    if parts:
        producer = Producer(run.identity.run_id, run.steps, act.agent.id)
        message = act.view.answer = Message(message_id, "assistant", tuple(parts), now, producer)
        run = replace(run, stage="acting", answer_id=message.id)
        act.log(message)
    act.put_run(run)
    if not waits and isinstance(termination, NaturalEnd | EndRequested):
        _complete(act, message, message_id, spent, termination)
    open_tickets = [*act.view.tickets.values(), *refused]
    held = {ticket.arguments.get("question", ""): ticket for ticket in open_tickets}
    for call, question in asked:
        ask(act, call, question, held.pop(question.id, None))
    # The backend no longer asks these questions: it continued without an answer, or failed.
    act.give_up(held.values(), "cancelled" if isinstance(status, FailedStatus | TimedOut) else "settled")
    return message is not None


def _termination_of(result: BackendResult) -> Termination | None:
    """The run's termination; the status wins over a termination that contradicts it."""
    given = cast("Termination | None", result.termination)
    match result.status:
        case Completed():
            return given
        case FailedStatus(message):
            ends_well = given is None or isinstance(given, NaturalEnd | EndRequested | Cancelled)
            return Failed("ExecutionFailed", message) if ends_well else given
        case CancelledStatus():
            own = isinstance(given, Cancelled) and given.reason
            return given if own else Cancelled("its backend cancelled it")
        case TimedOut():
            return given if isinstance(given, Failed) else Failed("TimedOut", "timeout")
        case _:
            return None


def _complete(
    act: Activation,
    message: Message | None,
    message_id: str,
    spent: tuple[int, Usage],
    termination: Termination,
) -> None:
    agent, run, now = act.agent, act.view.run, act.now
    (started, usage), name = spent, model_name(act)
    act.log(InferenceComplete(act.identity, 0, now, name, message_id, "end_turn", usage, now - started))
    if message is None:
        # Without a message, the step closes as it is.
        act.set_run(stage="acting")
    if agent.shape is None or not isinstance(termination, NaturalEnd):
        return
    limits = act.rules.limits
    if agent.backend is not None and agent.backend.capabilities.continuation == "none":
        limits = replace(limits, repairs=0)  # The backend doesn't remember the answer that it would repair.
    answer = message or Message(message_id, "assistant", (), now)
    verdict = judge(
        answer, (), "end_turn", False, run, limits, act.rules.stop, {}, agent.shape, act.view.tree, now
    )
    act.set_run(ending=verdict.ending, repairs=run.repairs + verdict.repaired)
    act.output = verdict.output
    if verdict.hint is not None:
        act.hint(verdict.hint)


_NAMES: dict[type, str] = {WaitingInput: "input_required", WaitingAuth: "auth_required"}


def _calls_of(act: Activation, result: BackendResult, text: str) -> list[tuple[Call, Question]]:
    """Make a call for each question of the backend; the call's result will be the answer."""
    message = getattr(result.status, "message", None) or text
    default = Question("", message, result.output.raw)
    name, asked = _NAMES.get(type(result.status), "suspended"), len(act.view.calls)
    questions = result.questions or (default,)
    return [(call_of(act, name, question, asked + n), question) for n, question in enumerate(questions)]


def call_of(act: Activation, name: str, question: Question, index: int) -> Call:
    """The call for a question of the backend."""
    arguments: dict[str, Any] = {"message": question.message}
    if question.id:
        arguments["question"] = question.id
    if question.data is not None:
        arguments["data"] = question.data
    return Call(new_id(), act.view.run.id, act.view.run.steps, index, name, arguments)


def ask(act: Activation, call: Call, question: Question, held: Ticket | None) -> None:
    """Write the call and the ticket of a question; `held` is the ticket that has asked it before."""
    act.log(ToolCallReady(act.identity, 0, act.now, call.id, call.name, call.arguments))
    message = question.message or f"Agent {act.agent.id} waits: {call.name}"
    deadline = None if question.deadline is None else question.deadline - act.now
    terms = Terms(tuple(question.accepts), question.schema, deadline=deadline)
    suspend_call(act, call, message, "remote", terms, held)


# -- stored output -------------------------------------------------------------------------------------------


def _save_output(act: Activation, result: BackendResult, output: BackendOutput) -> None:
    """Write the backend's state and output into the thread's state."""
    if result.state is not None:
        act.state.apply([(BackendHandles, (act.identity.thread_id, act.agent.id, result.state))])
    if output == BackendOutput():
        return
    for kept in (output, _without_contents(output)):
        try:
            act.state.apply([(BackendOutputs, msgspec.to_builtins(kept))])
        except StateTooLarge as error:
            note_error(act, error, "backend")
        else:
            return


def _without_contents(output: BackendOutput) -> BackendOutput:
    """The output's artifacts without their contents, for an output that is too large; the message has them."""
    return BackendOutput(artifacts=tuple([replace(a, content=None) for a in output.artifacts]))


def _end(status: str, reason: str, output: BackendOutput, wait: WaitReason | None) -> BackendEnd:
    """The backend's part of the run record; a large output is stored without its contents."""
    if len(msgspec.json.encode(output)) > MAX_VALUE_BYTES:
        output = _without_contents(output)
    made = tuple([replace(a, content=msgspec.to_builtins(a.content)) for a in output.artifacts])
    return BackendEnd(status, reason, made, msgspec.to_builtins(output.raw), wait)


_PARTS: dict[str, type[Image] | type[Audio] | type[Video]] = {"image": Image, "audio": Audio, "video": Video}


def _part_of(artifact: Artifact) -> Content | None:
    """The message part for an artifact that is a file; None for others, which are for the application."""
    content, media = artifact.content, artifact.media_type
    source = content if isinstance(content, Base64 | Url) else None
    if isinstance(source, Url) and source.media_type is None:
        source = Url(source.url, media)
    if isinstance(content, dict) and media is not None:
        fields = cast(dict[str, Any], content)
        if isinstance(data := fields.get("bytes"), str):
            source = Base64(media, data)
        elif isinstance(url := fields.get("uri", fields.get("url")), str):
            source = Url(url, media)
    if source is None:
        return None
    kind = _PARTS.get((media or getattr(source, "media_type", "")).partition("/")[0])
    return Document(source, artifact.name) if kind is None else kind(source)
