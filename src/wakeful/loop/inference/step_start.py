"""The beginning of a step."""

from __future__ import annotations

from msgspec.structs import replace

from ...plugins import Step
from ...types.events import StepStart
from ..activation import Activation
from ..phases import run_phase

__all__ = ["open_step"]


async def open_step(act: Activation) -> None:
    """Open a step, and run its hooks."""
    run = act.view.run
    act.put_run(replace(run, stage="inferring", steps=run.steps + 1, updated_at=act.now))
    act.draft.log.append(StepStart(act.identity, 0, act.now, run.steps + 1))
    if not act.hookless and act.has_hooks("step_start"):
        await run_phase(act, "step_start", act.agent.hooks["step_start"], Step)
