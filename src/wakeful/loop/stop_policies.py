"""Limits and stop policies: when a run ends, and what an answer means for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..errors import InvalidArguments
from ..tools import Shape
from ..types.base import Data
from ..types.content import ToolCall
from ..types.events import StopReason
from ..types.ids import digest_of
from ..types.limits import (
    ContentMatch,
    CostBudget,
    Limits,
    LoopDetection,
    StopOnTool,
    StopPolicy,
    TokenBudget,
    WallTime,
)
from ..types.messages import Message
from ..types.runs import Failed, NaturalEnd, RunRecord, Stopped, Termination, Usage

__all__ = ["Tree", "Verdict", "budget_spent", "judge", "limit_reached", "output_of", "signature"]


class Tree(Struct, eq=False):
    """The usage of a whole tree of runs. Runs of a tree in one process share this object.

    If one of them may run `apart` in another process, the usage is read from the store before each check.
    """

    usage: Usage = Usage()
    calls: int = 0
    started_at: int = 0
    apart: bool = False


class Verdict(Data):
    """The judgement of an answer: the run ends, or continues, perhaps after a hint for the model."""

    ending: Termination | None = None
    hint: str | None = None
    repaired: bool = False
    output: Raw | UnsetType = UNSET


_CONTINUE = Verdict()
_NATURAL = Verdict(NaturalEnd())
_CUT = Verdict(NaturalEnd(truncated=True))


def limit_reached(
    run: RunRecord, limits: Limits, stop: Sequence[StopPolicy], tree: Tree, now: int
) -> Stopped | None:
    """The limit that forbids another model call, if one does; a budget that is just used up doesn't."""
    if run.steps >= limits.steps:
        return Stopped("max_steps", f"the run has had its {limits.steps} steps")
    if tree.calls > limits.tree_calls:
        return Stopped("tree_calls", f"more than {limits.tree_calls} tool calls in the tree")
    return budget_spent(run, stop, tree, now) if stop else None


def budget_spent(run: RunRecord, stop: Sequence[StopPolicy], tree: Tree, now: int) -> Stopped | None:
    """The budget of time, tokens or money that is exceeded, if one is."""
    for policy in stop:
        match policy:
            case WallTime(seconds, whole):
                since = tree.started_at if whole else run.started_at or run.created_at
                if now - since > seconds * 1000:
                    return Stopped("wall_time", f"more than {seconds:g} s since the start")
            case TokenBudget(tokens, whole):
                used = (tree.usage if whole else run.usage).total_tokens
                if used > tokens:
                    return Stopped("token_budget", f"{used:,} tokens used of {tokens:,}")
            case CostBudget(cost, whole):
                spent = (tree.usage if whole else run.usage).cost
                if spent > cost:
                    return Stopped("cost_budget", f"{spent:,} micro-units spent of {cost:,}")
            case _:
                pass
    return None


def judge(
    answer: Message,
    calls: Sequence[ToolCall],
    stop: StopReason,
    truncated_call: bool,
    run: RunRecord,
    limits: Limits,
    policies: Sequence[StopPolicy],
    patterns: Mapping[str, Any],
    shape: Shape | None,
    tree: Tree,
    now: int,
    rejection: str | None = None,
) -> Verdict:
    """Judge an answer. One without calls is a natural end, whatever the limits say, unless it was rejected."""
    if not calls:
        unfinished = stop in ("max_tokens", "pause_turn") and run.continuations < limits.continuations
        if unfinished and (stopped := budget_spent(run, policies, tree, now)):
            return Verdict(stopped)  # Only the budget kept it from being continued.
        if truncated_call:
            return Verdict(Failed("AnswerTruncated", "the model's tool call was cut off at the output limit"))
        if rejection is not None:
            failed = Failed("OutputRejected", f"the final answer was rejected: {rejection}")
            hint = f"That answer was rejected: {rejection}\nAnswer again."
            return _repair(failed, hint, run, limits, policies, tree, now)
        if shape is None:
            return _CUT if stop in ("max_tokens", "pause_turn") else _NATURAL
        return _typed(answer, run, limits, policies, shape, tree, now)
    for policy in policies:
        match policy:
            case StopOnTool(tool) if tool in [call.name for call in calls]:
                return Verdict(Stopped("stop_on_tool", tool))
            case ContentMatch(pattern) if patterns[pattern].search(answer.text):
                return Verdict(Stopped("content_match", pattern))
            case LoopDetection(window) if _repeats(run.signatures, window):
                return Verdict(Stopped("loop_detection", f"{window} answers in a row were the same"))
            case _:
                pass
    stopped = limit_reached(run, limits, policies, tree, now)
    return _CONTINUE if stopped is None else Verdict(stopped)


def _typed(
    answer: Message,
    run: RunRecord,
    limits: Limits,
    policies: Sequence[StopPolicy],
    shape: Shape,
    tree: Tree,
    now: int,
) -> Verdict:
    try:
        output = output_of(answer, shape)
    except InvalidArguments as error:
        failed = Failed("OutputInvalid", f"the final answer doesn't fit the output type: {error}")
        hint = f"That answer doesn't fit the required output: {error}. Answer again with only the corrected JSON."
        return _repair(failed, hint, run, limits, policies, tree, now)
    return Verdict(NaturalEnd(), output=output)


def _repair(
    failed: Failed,
    hint: str,
    run: RunRecord,
    limits: Limits,
    policies: Sequence[StopPolicy],
    tree: Tree,
    now: int,
) -> Verdict:
    """Send an answer back to the model, unless that was done too often or a limit is reached."""
    if run.repairs >= limits.repairs:
        return Verdict(failed)
    if stopped := limit_reached(run, limits, policies, tree, now):
        return Verdict(stopped)
    return Verdict(hint=hint, repaired=True)


def output_of(answer: Message, shape: Shape) -> Raw:
    """Decode the typed output of an answer; raises `InvalidArguments` if it doesn't fit."""
    return Raw(_json(shape.decode(answer.text)))


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=lambda v: v.model_dump(mode="json"))


def signature(answer: Message) -> str:
    """A digest of an answer's text and calls, for loop detection."""
    wanted = [answer.text, [(call.name, call.arguments) for call in answer.calls]]
    return digest_of(msgspec.json.encode(wanted))


def _repeats(signatures: tuple[str, ...], window: int) -> bool:
    return len(signatures) >= window and len(set(signatures[-window:])) == 1
