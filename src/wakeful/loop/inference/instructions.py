"""Instructions that functions make: evaluated for each request, on committed state."""

from __future__ import annotations

import asyncio
from inspect import isawaitable

from ...agents import InstructionsFunction, RunContext, join_instructions
from ...errors import HookFailed, UsageError, quote
from ...types.content import require_text
from ..activation import Activation
from ..commits import flush
from ..hooks import STRAY, is_cancelled

__all__ = ["evaluate_instructions"]


async def evaluate_instructions(act: Activation) -> str:
    """Commit the draft, then call the agent's instructions functions in turn; returns the whole text.

    Raises `HookFailed` if a function fails or doesn't return a text.
    """
    await flush(act)
    run = act.view.run
    ctx: RunContext = RunContext(
        act.identity, run.steps, act.state.snapshot(), run.principal, act.clock.now(), act.env.deps.value
    )
    texts = [part if isinstance(part, str) else await _call(part, ctx) for part in act.agent.parts]
    act.now = act.clock.now()
    return join_instructions(texts)


async def _call(function: InstructionsFunction, ctx: RunContext) -> str:
    name = f"instructions function {getattr(function, '__name__', type(function).__name__)!r}"
    try:
        text = function(ctx)
        if isawaitable(text):
            text = await text
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise quote(HookFailed, f"{name} failed", STRAY) from error
    except Exception as error:
        raise quote(HookFailed, f"{name} failed", error) from error
    try:
        return require_text(text, f"the result of {name}")
    except UsageError as error:
        raise HookFailed(str(error)) from error
