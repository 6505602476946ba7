"""Requests to backends, built from a run and its conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ..agents import QUESTIONS, BackendAttempts, BackendHandles, BackendInput
from ..errors import StateError
from ..loop import shape_plan
from ..plugins import InferencePlan
from ..types.content import Text, ToolReply, text_of
from ..types.messages import Message
from ..types.requests import ModelSettings
from ..types.tickets import Decision
from .contract import (
    AbortRequest,
    Capabilities,
    DelegatePolicy,
    DelegateRequest,
    Parent,
    RootRequest,
)

if TYPE_CHECKING:
    from ..loop import Activation

__all__ = [
    "abort_request",
    "answered_calls",
    "heard_input",
    "model_name",
    "plan_of",
    "record_attempt",
    "request_of",
    "saved_state",
    "shaped",
]

Request = RootRequest | DelegateRequest


async def plan_of(act: Activation, capabilities: Capabilities) -> InferencePlan:
    """Plan the request for a run: its messages as far as the backend takes them, shaped by hooks."""
    options = act.view.run.options
    new = _unanswered(act)
    messages = _conversation(act) if capabilities.transcript == "full" else new
    settings = ModelSettings() if options is None else options.settings
    plan = InferencePlan(settings, "remote", messages=messages)
    if act.has_hooks("before_inference"):
        await shape_plan(act, plan)
    return plan


async def request_of(
    act: Activation, plan: InferencePlan, capabilities: Capabilities, **callbacks: Any
) -> Request:
    """Build the request for a run: a delegate request for a child run, else a root request."""
    identity, options = act.identity, act.view.run.options
    new = _unanswered(act)
    messages, new_messages = _transcript(_conversation(act), plan.messages, new, capabilities)
    shared: dict[str, Any] = {
        "agent_id": act.agent.id,
        "messages": messages,
        "new_messages": new_messages,
        "identity": identity,
        "state": saved_state(act),
        "deps": act.env.deps.value,
        "local": act if act.env.registry.is_internal(act.agent.id) else None,
        **callbacks,
    }
    continues = _is_continuation(new, identity.run_id)
    if identity.parent_run_id is not None:
        task = act.view.run.task
        durable = task is not None and task.durable
        policy = DelegatePolicy("durable" if durable else "ephemeral", continues)
        return DelegateRequest(parent=_parent_of(act), policy=policy, **shared)
    asked = ModelSettings() if options is None else options.settings
    # A hook's settings are for backends that take some; the run's own are refused by the others.
    settings = plan.settings if capabilities.overrides else asked
    overrides = None if settings == ModelSettings() else settings
    tools = () if options is None else options.client_tools
    decisions = await _decisions(act, plan.messages) if continues and capabilities.decisions else ()
    return RootRequest(
        is_continuation=continues, decisions=decisions, overrides=overrides, frontend_tools=tools, **shared
    )


async def _decisions(act: Activation, messages: Sequence[Message]) -> tuple[Decision, ...]:
    """The decisions behind the answers that the backend is to get, as far as these messages show them."""
    store, calls = act.env.store, answered_calls(act)
    replies = {m.reply.call_id: m.reply for m in messages if m.reply is not None and m.reply.call_id in calls}
    found: list[Decision] = []
    for ticket in await store.tickets(act.identity.run_id):
        if (reply := replies.get(ticket.call_id)) is not None:
            taken = [one for one in await store.decisions(ticket.id) if one.not_taken is None]
            found += [_as_shown(one, reply) for one in taken if one.verdict in ("approve", "deny")]
    return tuple(found)


def _as_shown(decision: Decision, reply: ToolReply) -> Decision:
    """A decision with the value and the reason of its answer, as hooks left it."""
    reason, value = reply.metadata.get("reason", ""), None
    if decision.verdict == "approve":
        value = text_of(reply.content) if reply.data is UNSET else msgspec.json.decode(reply.data)
    return replace(decision, value=value, reason=reason, message=None)


def abort_request(act: Activation) -> AbortRequest:
    """Build the request to stop a run's remote work."""
    return AbortRequest(
        agent_id=act.agent.id,
        identity=act.identity,
        parent=None if act.identity.parent_run_id is None else _parent_of(act),
        state=saved_state(act),
        deps=act.env.deps.value,
        is_continuation=_is_continuation(_unanswered(act), act.identity.run_id),
    )


def saved_state(act: Activation) -> dict[str, Any] | None:
    """The state that the agent's backend saved on the thread, if any.

    Raises `StateError` if it can't be read: without it, remote work would be started again.
    """
    found: Any = act.state.snapshot()[BackendHandles]
    state: Any = found
    if isinstance(found, dict):
        handles = cast(dict[str, Any], found)
        state = handles.get(act.agent.id)
        if state is None or not BackendHandles.belongs_to(handles, act.identity.thread_id):
            return None
    if not isinstance(state, dict):
        raise StateError(
            f"state key {BackendHandles.name!r}: the state of the backend of agent {act.agent.id!r} on thread "
            f"{act.identity.thread_id!r} can't be read: {state!r:.80} is no object"
        )
    return cast(dict[str, Any], state)


def _parent_of(act: Activation) -> Parent:
    identity = act.identity
    return Parent(identity.parent_run_id, identity.parent_thread_id, identity.parent_call_id or None)


def record_attempt(act: Activation, sent: str) -> None:
    """Record the last message that the backend got, though it gave no answer."""
    act.state.apply([(BackendAttempts, (act.agent.id, act.identity.run_id, sent))])


def model_name(act: Activation) -> str:
    """The name under which a backend's answers are recorded: the agent's model, else its id."""
    return str(act.agent.agent.model) or act.agent.id


async def shaped(act: Activation, message: Message) -> Message | None:
    """A message for a running backend, as the hooks leave it; None if one removed it."""
    if not act.has_hooks("before_inference"):
        return message
    plan = InferencePlan(ModelSettings(), "remote", messages=(message,))
    await shape_plan(act, plan)
    return next((one for one in plan.messages if one.id == message.id), next(iter(plan.messages), None))


def heard_input(act: Activation) -> tuple[Message, ...]:
    """The input that the backend received in this step, before a crash."""
    step, ids = act.state.snapshot()[BackendInput]
    if step != act.view.run.steps or act.view.run.stage != "inferring":
        return ()
    return tuple([message for message in act.history if message.id in ids])


def _conversation(act: Activation) -> tuple[Message, ...]:
    """The history without the messages that came during the request, which a repeated request gets again."""
    run = act.view.run
    if run.stage != "inferring":
        return tuple(act.history)
    shown_ids = {message.id for message in heard_input(act)}
    return tuple([m for m in act.history if m.id not in shown_ids and not _answers_step(m, run.id, run.steps)])


def _answers_step(message: Message, run_id: str, step: int) -> bool:
    """Whether a message answers a question that the backend asked in this step."""
    by = message.producer
    return message.role == "tool" and by is not None and by.run_id == run_id and by.step == step


def _unanswered(act: Activation) -> tuple[Message, ...]:
    """The messages after the agent's last answer, and after its last attempt in another run."""
    history, agent_id = _conversation(act), act.agent.id
    run_id, sent = act.state.snapshot()[BackendAttempts].get(agent_id, ("", ""))
    for index in range(len(history) - 1, -1, -1):
        message = history[index]
        is_answer = message.role == "assistant" and message.producer and message.producer.agent_id == agent_id
        if is_answer or (message.id == sent and run_id != act.identity.run_id):
            return tuple(history[index + 1 :])
    return tuple(history)


def answered_calls(act: Activation) -> frozenset[str]:
    """The ids of the backend's questions of this run whose answers the backend is to get."""
    return _answers_in(_unanswered(act), act.identity.run_id)


def _is_continuation(new: Sequence[Message], run_id: str) -> bool:
    """Whether a message answers a question that the backend asked in this run."""
    return bool(_answers_in(new, run_id))


def _answers_in(new: Sequence[Message], run_id: str) -> frozenset[str]:
    own = [m for m in new if m.producer is not None and m.producer.run_id == run_id]
    answers = [m.reply for m in own if m.reply is not None and not _is_unanswered(m)]
    return frozenset([reply.call_id for reply in answers if reply.name in QUESTIONS])


def _is_unanswered(message: Message) -> bool:
    """Whether a message closes a question without an answer: new input or the end of the run came first."""
    return message.reply is not None and message.reply.error in ("superseded", "cancelled")


def _transcript(
    history: Sequence[Message], planned: Sequence[Message], new: Sequence[Message], capabilities: Capabilities
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The planned messages, and the new ones among them: those that the agent hasn't answered."""
    messages = tuple(planned)
    if capabilities.transcript == "full":
        answered = {message.id for message in history[: len(history) - len(new)]}
        return messages, tuple([message for message in messages if message.id not in answered])
    if capabilities.transcript == "single_prompt":
        messages = _prompt(messages)
    return messages, messages


def _prompt(new: tuple[Message, ...]) -> tuple[Message, ...]:
    """Join the input and answers since the last answer into one message; non-text parts are kept."""
    inputs = [m for m in new if m.role == "user" or (m.reply is not None and not _is_unanswered(m))]
    if len(inputs) == 1 and inputs[0].role == "user":
        return (inputs[0],)
    texts = [m.text for m in inputs]
    others = [p for m in inputs if m.reply is None for p in m.content if type(p) is not Text]
    content = (Text("\n\n".join(text for text in texts if text)), *others)
    # The last message's id makes the request the same after a crash.
    return (Message(inputs[-1].id, "user", content, inputs[-1].created_at),) if inputs else ()
