"""The guardrails of an agent: they judge input before a request shows it, and answers before their commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from inspect import isawaitable
from typing import Any, Literal

from msgspec.structs import replace

from ...bus import Channel, LocalBus
from ...errors import HookFailed
from ...plugins import Block, Guardrail, HookContext, JudgedInput, Rewrite, Verdict
from ...types.content import Content, Text, ToolCall
from ...types.copies import copy_mutable
from ...types.ids import new_id
from ...types.messages import Message
from ...types.runs import Blocked
from ..activation import Activation
from ..commits import flush
from ..disclosure import disclose
from ..hooks import STRAY, is_cancelled
from .failure import keep_partial
from .inference import Inference

__all__ = ["channel_of", "judge_input", "judge_output"]

_WITHHELD = (Text("[This message was blocked, and is not shown.]"),)

# The channel of answers that nobody may read yet.
_SILENT = LocalBus().hold("withheld")


def channel_of(act: Activation) -> Channel:
    """The channel for the deltas of an answer: one without readers if a guardrail must judge the answer first."""
    return _SILENT if act.agent.withholds else act.channel


async def judge_input(act: Activation) -> bool:
    """Judge the input that the agent's guardrails haven't judged; returns False if the run ends."""
    if not _unjudged(act):
        return True
    await flush(act)  # It gives the messages their positions.
    changed: dict[int, tuple[Content, ...]] = {}
    blocked = None
    unjudged = _unjudged(act)
    judged = unjudged[-1].id
    for message in unjudged:
        content, reason = await _judge(act, "input", message)
        if reason is not None:
            content = _WITHHELD
        if content != message.content:
            changed[message.seq] = content
            act.draft.log.append(
                Message(new_id(), "user", content, act.now, None, "internal", rewrites=message.seq)
            )
        # A blocked message of an earlier run, which ended before a model read it, doesn't end this one.
        if reason is not None and message.seq >= act.view.run.first_seq:
            judged, blocked = message.id, Blocked(reason)
            break
    act.now = act.clock.now()
    if changed:
        act.history = [
            replace(message, content=changed[message.seq]) if message.seq in changed else message
            for message in act.history
        ]
    act.state.apply([(JudgedInput, (act.agent.id, judged))])
    if blocked is not None:
        act.set_run(ending=blocked)
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


async def judge_output(act: Activation, inference: Inference, message: Message) -> Message | None:
    """Judge an answer; returns it as it may be committed, or None if it is blocked and the run ends."""
    await flush(act)
    content, reason = await _judge(act, "output", message)
    act.now = act.clock.now()
    if reason is not None:
        keep_partial(act, inference, keep=False)
        act.set_run(ending=Blocked(reason))
        return None
    if content is message.content:
        return message
    inference.answer.calls = [part for part in content if type(part) is ToolCall]
    return replace(message, content=content)


async def _judge(
    act: Activation, side: Literal["input", "output"], message: Message
) -> tuple[tuple[Content, ...], str | None]:
    """Ask the guardrails in turn; returns the content after all rewrites, and the reason of a block."""
    calls = {call.id for call in message.calls}
    for guardrail in act.agent.agent.guardrails:
        verdict = await _ask(act, guardrail, getattr(guardrail, side), message, calls)
        if isinstance(verdict, Block):
            return message.content, verdict.reason
        if verdict is not None:
            message = replace(message, content=verdict.parts)
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
    if not isinstance(verdict, Block | Rewrite | None):
        raise HookFailed(
            f"it returned {verdict!r:.80}; return None to let the message pass, Block(reason) or Rewrite(content)"
        )
    if ctx.command:
        raise HookFailed("it wrote something; a guardrail may be asked many times and only returns a verdict")
    if isinstance(verdict, Rewrite) and (added := _added(verdict.parts, calls)):
        raise HookFailed(f"it added the tool calls {added}; a rewrite may only drop or change calls of the model")
    return verdict


def _added(content: Sequence[Content], calls: set[str]) -> str:
    return ", ".join([part.name for part in content if type(part) is ToolCall and part.id not in calls])


def _failure(act: Activation, guardrail: Guardrail, error: BaseException) -> Block:
    name = f"guardrail {guardrail.name!r}"
    return Block(f"{name} failed: {disclose(act, error, name)}")
