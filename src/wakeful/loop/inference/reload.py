"""Loading the history of a run again, for another agent or model."""

from __future__ import annotations

from ...context import SummaryKey
from ...models import Model
from ..activation import Activation
from ..commits import flush
from .history import Reach, load_history, reach_of

__all__ = ["extend_history", "reload_history"]


async def reload_history(act: Activation) -> None:
    """Load the history that the run's agent is shown."""
    await _load(act, reach_of(act.agent, None, act.env.registry.models, act.env.gauges))


async def extend_history(act: Activation, model: Model) -> None:
    """Load more of a history that was cut for a model with a much smaller window."""
    if act.cut is None:
        return
    reach = reach_of(act.agent, model, act.env.registry.models, act.env.gauges)
    if reach.weight is None or reach.weight > act.cut * 3 // 2:
        await _load(act, reach)


async def _load(act: Activation, reach: Reach) -> None:
    await flush(act)
    mark, run = act.state.snapshot()[SummaryKey], act.view.run
    loaded = await load_history(act.env.store, run.thread_id, reach, mark, run.first_seq)
    act.history, act.cut, act.loaded = loaded.messages, loaded.cut, loaded
