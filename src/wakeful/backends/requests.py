"""Requests to backends, built from a run and its conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ..agents import QUESTIONS, BackendHandles
from ..errors import StateError
from ..types.content import Text, text_of
from ..types.messages import Message
from ..types.requests import ModelSettings
from .contract import (
    AbortRequest,
    Capabilities,
    Control,
    DelegatePolicy,
    DelegateRequest,
    Parent,
    RootRequest,
)

if TYPE_CHECKING:
    from ..loop import Activation

__all__ = ["abort_request", "request_of", "saved_state"]

Request = RootRequest | DelegateRequest
Save = Callable[[dict[str, Any]], Awaitable[None]]


def request_of(
    act: Activation, capabilities: Capabilities, control: Control, emit: Callable[[str], None], save: Save
) -> Request:
    """Build the request for a run: a delegate request for a child run, else a root request."""
    identity, options = act.identity, act.view.run.options
    new = _unanswered(act.history, act.agent.id)
    messages, new_messages = _transcript(act.history, new, capabilities)
    shared: dict[str, Any] = {
        "agent_id": act.agent.id,
        "messages": messages,
        "new_messages": new_messages,
        "identity": identity,
        "control": control,
        "is_continuation": _is_continuation(new, identity.run_id),
        "state": saved_state(act),
        "emit": emit,
        "save": save,
        "local": act if act.env.registry.is_internal(act.agent.id) else None,
    }
    if identity.parent_run_id is not None:
        task = act.view.run.task
        durable = task is not None and task.durable
        policy = DelegatePolicy("durable" if durable else "ephemeral")
        return DelegateRequest(parent=_parent_of(act), policy=policy, **shared)
    if options is None:
        return RootRequest(**shared)
    settings = None if options.settings == ModelSettings() else options.settings
    return RootRequest(overrides=settings, frontend_tools=options.client_tools, **shared)


def abort_request(act: Activation) -> AbortRequest:
    """Build the request to stop a run's remote work."""
    return AbortRequest(
        agent_id=act.agent.id,
        identity=act.identity,
        parent=None if act.identity.parent_run_id is None else _parent_of(act),
        state=saved_state(act),
        is_continuation=_is_continuation(_unanswered(act.history, act.agent.id), act.identity.run_id),
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


def _unanswered(history: Sequence[Message], agent_id: str) -> tuple[Message, ...]:
    """The messages after the agent's last answer."""
    for index in range(len(history) - 1, -1, -1):
        message = history[index]
        if message.role == "assistant" and message.producer and message.producer.agent_id == agent_id:
            return tuple(history[index + 1 :])
    return tuple(history)


def _is_continuation(new: Sequence[Message], run_id: str) -> bool:
    """Whether a message answers a question that the backend asked in this run."""
    own = [m for m in new if m.producer is not None and m.producer.run_id == run_id]
    return any(m.reply is not None and m.reply.name in QUESTIONS and not _is_unanswered(m) for m in own)


def _is_unanswered(message: Message) -> bool:
    """Whether a message closes a question without an answer: new input or the end of the run came first."""
    return message.reply is not None and message.reply.error in ("superseded", "cancelled")


def _transcript(
    history: Sequence[Message], new: tuple[Message, ...], capabilities: Capabilities
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    if capabilities.transcript == "full":
        return tuple(history), new
    if capabilities.transcript == "single_prompt":
        new = _prompt(new)
    return new, new


def _prompt(new: tuple[Message, ...]) -> tuple[Message, ...]:
    """Join the input and answers since the last answer into one message; non-text parts are kept."""
    inputs = [m for m in new if m.role == "user" or (m.reply is not None and not _is_unanswered(m))]
    if len(inputs) == 1 and inputs[0].role == "user":
        return (inputs[0],)
    texts = [m.text if m.reply is None else text_of(m.reply.content) for m in inputs]
    others = [p for m in inputs if m.reply is None for p in m.content if type(p) is not Text]
    content = (Text("\n\n".join(text for text in texts if text)), *others)
    # The last message's id makes the request the same after a crash.
    return (Message(inputs[-1].id, "user", content, inputs[-1].created_at),) if inputs else ()
