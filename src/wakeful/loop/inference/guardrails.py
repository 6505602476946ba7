"""The guardrails of an agent: they judge input before a request shows it, and answers before their commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from inspect import isawaitable
from typing import Any, Literal

from msgspec.structs import replace

from ...bus import Channel, LocalBus
from ...errors import ConfigurationError, HookFailed, StateTooLarge
from ...models import ModelRequest
from ...plugins import (
    Block,
    Guardrail,
    HeldKey,
    HeldMessage,
    HookContext,
    JudgedInput,
    Rewrite,
    Suspend,
    Verdict,
)
from ...types.base import Data
from ...types.calls import GUARDRAIL_PREFIX, Call
from ...types.content import Content, ToolCall
from ...types.copies import copy_mutable
from ...types.events import InferenceComplete
from ...types.ids import new_id
from ...types.messages import Message
from ...types.runs import Blocked
from ..activation import Activation
from ..calls.lifecycle import suspend_call
from ..commits import flush
from ..disclosure import disclose
from ..held import WITHHELD, held_message, rewrite_input
from ..hooks import STRAY, is_cancelled
from .answer import Answer
from .assembler import NO_USAGE
from .failure import keep_partial
from .inference import Inference
from .step_start import open_step

__all__ = ["channel_of", "judge_input", "judge_output", "resume_inference"]

# The channel of answers that nobody may read yet.
_SILENT = LocalBus().hold("withheld")


class _Question(Data):
    """The question of a guardrail about a message, and the guardrail's place."""

    asked: Suspend
    guardrail: str
    place: int


_Judgment = Block | _Question | None


def channel_of(act: Activation) -> Channel:
    """The channel for the deltas of an answer: one without readers if a guardrail must judge the answer first."""
    return _SILENT if act.agent.withholds else act.channel


# -- input ---------------------------------------------------------------------------------------------------


async def judge_input(act: Activation) -> bool:
    """Judge the input that the agent's guardrails haven't judged; returns False if the run ends or waits."""
    if not _unjudged(act):
        return True
    await flush(act)  # It gives the messages their positions.
    changed: dict[int, tuple[Content, ...]] = {}
    found: _Judgment = None
    held, judged = held_message(act), None
    for message in _unjudged(act):
        begun = held if held is not None and held.message_id == message.id else None
        content, found = await _judge(act, "input", message, begun)
        if isinstance(found, _Question):
            held = HeldMessage(message.id, content, found.guardrail, found.place)
            break
        if isinstance(found, Block):
            content = WITHHELD
        if content != message.content:
            changed[message.seq] = content
        judged = message.id
        # A blocked message of an earlier run, which ended before a model read it, doesn't end this one.
        if found is not None and message.seq >= act.view.run.first_seq:
            break
        found = None
    act.now = act.clock.now()
    if judged is not None:
        rewrite_input(act, changed, judged)
    if isinstance(found, _Question) and held is not None:
        await _ask_about_input(act, found, held)
        return False
    if held is not None:
        act.state.apply([(HeldKey, None)])
    if isinstance(found, Block):
        act.set_run(ending=Blocked(found.reason))
    return act.view.run.ending is None and act.view.run.cancel is None


def _unjudged(act: Activation) -> list[Message]:
    """The user messages that the agent's guardrails haven't judged, oldest first."""
    judged = act.state.snapshot()[JudgedInput].get(act.agent.id)
    found: list[Message] = []
    for message in reversed(act.history):
        if message.id == judged:
            break
        if message.role == "user" and message.visibility == "all":
            found.append(message)
    return found[::-1]


async def _ask_about_input(act: Activation, question: _Question, held: HeldMessage) -> None:
    """Ask about a message, in the step whose request will show it."""
    if act.view.run.stage == "between":
        await open_step(act)
        if act.view.run.ending is not None or act.view.run.cancel is not None:
            return
    _hold(act, question, held)


# -- answers -------------------------------------------------------------------------------------------------


async def judge_output(act: Activation, inference: Inference, message: Message) -> Message | None:
    """Judge an answer; returns it as it may be committed, or None if it is blocked or waits for a person."""
    await flush(act)
    held = held_message(act) if inference.is_recorded else None
    content, found = await _judge(act, "output", message, held)
    act.now = act.clock.now()
    if isinstance(found, _Question):
        _ask_about_answer(act, inference, replace(message, content=content), found)
        return None
    if held is not None:
        act.state.apply([(HeldKey, None)])
    if found is not None:
        if not inference.is_recorded:
            keep_partial(act, inference, keep=False)
        act.set_run(ending=Blocked(found.reason))
        return None
    if content is message.content:
        return message
    inference.answer.calls = [part for part in content if type(part) is ToolCall]
    return replace(message, content=content)


def _ask_about_answer(act: Activation, inference: Inference, message: Message, question: _Question) -> None:
    """Ask about an answer. What it cost is recorded now: it is paid, whatever becomes of it."""
    answer = inference.answer
    if not inference.is_recorded:
        used, model, took = answer.total, inference.current.name, act.now - inference.started
        if used is not NO_USAGE:
            act.view.tree.usage += used
            act.set_run(usage=act.view.run.usage + used)
        sent = (inference.instructions, inference.digest, inference.offered)
        act.log(InferenceComplete(act.identity, 0, act.now, model, message.id, answer.stop, used, took, *sent))
    held = HeldMessage(
        message.id,
        message.content,
        question.guardrail,
        question.place,
        is_answer=True,
        stop=answer.stop,
        is_truncated=answer.is_truncated,
        usage=answer.total,
        offered=tuple([spec.name for spec in inference.request.tools]),
        problems=dict(answer.problems),
    )
    _hold(act, question, held)


def resume_inference(act: Activation, held: HeldMessage) -> Inference:
    """The inference of an answer about which a guardrail asked, as far as the answer's acceptance needs it."""
    agent, run = act.agent, act.identity
    answer = Answer(run, act.head, channel_of(act), act.clock, held.message_id)
    answer.stop, answer.is_truncated, answer.usage = held.stop, held.is_truncated, held.usage
    answer.problems, answer.calls = held.problems, [part for part in held.content if type(part) is ToolCall]
    specs = tuple([agent.tools[name].spec for name in held.offered if name in agent.tools])
    if [spec.name for spec in specs] == [spec.name for spec in agent.specs]:
        specs = agent.specs
    wanted = act.env.registry.models.resolve(agent.agent.model)
    request = ModelRequest("", (), specs)
    return Inference(answer=answer, started=act.now, wanted=wanted, request=request, is_recorded=True)


# -- judging -------------------------------------------------------------------------------------------------


def _hold(act: Activation, question: _Question, held: HeldMessage) -> None:
    """Open a ticket for a guardrail's question, and keep the message until it is answered.

    Readers of the run's events see the ticket, so the message isn't in it. One that is too large to be kept is
    blocked.
    """
    side, ask = ("output", "be given") if held.is_answer else ("input", "be read")
    try:
        act.state.apply([(HeldKey, held)])
    except StateTooLarge as error:
        act.set_run(ending=Blocked(f"guardrail {question.guardrail!r} can't ask about this {side}: {error}"))
        return
    index, name = len(act.view.calls), f"{GUARDRAIL_PREFIX}{question.guardrail}"
    call = Call(new_id(), act.identity.run_id, act.view.run.steps, index, name, {"side": side})
    act.set_run(stage="acting")
    text = question.asked.message or f"May this {'answer' if held.is_answer else 'message'} {ask}?"
    suspend_call(act, call, text, "guardrail", question.asked.terms)


async def _judge(
    act: Activation, side: Literal["input", "output"], message: Message, held: HeldMessage | None
) -> tuple[tuple[Content, ...], _Judgment]:
    """Ask the guardrails in turn; returns the content after all rewrites, and the block or question of one.

    A `held` message was approved: the guardrails after the one that had asked judge it on.
    """
    guardrails, first = act.agent.agent.guardrails, 0
    if held is not None:
        message = replace(message, content=held.content)
        place = held.place
        # If the guardrail is gone, all of the present ones judge.
        first = place + 1 if [g.name for g in guardrails[place : place + 1]] == [held.guardrail] else 0
    calls = {call.id for call in message.calls}
    for place, guardrail in enumerate(guardrails[first:], first):
        verdict = await _ask(act, guardrail, getattr(guardrail, side), message, calls)
        match verdict:
            case Block():
                return message.content, verdict
            case Suspend():
                return message.content, _Question(verdict, guardrail.name, place)
            case Rewrite():
                message = replace(message, content=verdict.parts)
            case None:
                pass
    return message.content, None


async def _ask(act: Activation, guardrail: Guardrail, check: Any, message: Message, calls: set[str]) -> Verdict:
    """The verdict of one guardrail; one that fails blocks."""
    if check is None:
        return None
    run = act.view.run
    ctx: HookContext[Any] = HookContext(
        act.identity,
        run.steps,
        act.state.snapshot(),
        run.principal,
        act.env.registry.catalog,
        None,
        act.env.deps.value,
    )
    try:
        verdict = check(copy_mutable(message), ctx)
        if isawaitable(verdict):
            verdict = await verdict
        return _checked(verdict, ctx, calls)
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        return _failure(act, guardrail, STRAY)
    except Exception as error:
        return _failure(act, guardrail, error)


def _checked(verdict: Any, ctx: HookContext[Any], calls: set[str]) -> Verdict:
    if not isinstance(verdict, Block | Rewrite | Suspend | None):
        raise HookFailed(
            f"it returned {verdict!r:.80}; return None to let the message pass, Block(reason), Rewrite(content) "
            "or Suspend(question)"
        )
    if ctx.command:
        raise HookFailed("it wrote something; a guardrail may be asked many times and only returns a verdict")
    if isinstance(verdict, Suspend):
        return _approvable(verdict)
    if isinstance(verdict, Rewrite) and (added := _added(verdict.parts, calls)):
        raise HookFailed(f"it added the tool calls {added}; a rewrite may only drop or change calls of the model")
    return verdict


def _approvable(verdict: Suspend) -> Suspend:
    """A question that a person approves or denies, with valid terms."""
    if verdict.again or verdict.schema is not None or tuple(verdict.accepts) != Suspend().accepts:
        raise HookFailed(
            "its question has a schema, accepts or again, which are for gates: a person approves or denies a "
            "message"
        )
    verdict = replace(verdict, accepts=("proceed",))
    try:
        _ = verdict.terms
    except ConfigurationError as error:
        raise HookFailed(f"it asked what can't be asked: {error}") from error
    return verdict


def _added(content: Sequence[Content], calls: set[str]) -> str:
    return ", ".join([part.name for part in content if type(part) is ToolCall and part.id not in calls])


def _failure(act: Activation, guardrail: Guardrail, error: BaseException) -> Block:
    name = f"guardrail {guardrail.name!r}"
    return Block(f"{name} failed: {disclose(act, error, name)}")
