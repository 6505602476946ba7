"""Limits, which are always on, and stop policies, which an agent may add."""

from __future__ import annotations

from typing import Any, cast

from ..errors import ConfigurationError
from ..errors.arguments import Checked
from .base import Data

__all__ = [
    "Capacity",
    "ConsecutiveErrors",
    "ContentMatch",
    "CostBudget",
    "Limits",
    "LoopDetection",
    "StopOnTool",
    "StopPolicy",
    "TokenBudget",
    "WallTime",
]


class Limits(Data, metaclass=Checked, omit_defaults=True):
    """Upper bounds for every run.

    - `steps`: model calls in a run.
    - `parallel`: tool calls at once.
    - `depth`: levels of delegation.
    - `tree_calls`: tool calls in a whole tree of runs.
    - `handoffs`: handoffs in a run.
    - `repairs`: retries of a typed output that doesn't fit its schema.
    - `continuations`: continuations of an answer that reached its token limit.
    - `history`: newest messages of the thread that the model sees, in whole turns; None for all.
    - `hops`: messages in a row from agent to agent.
    """

    steps: int = 50
    parallel: int = 8
    depth: int = 5
    tree_calls: int = 200
    handoffs: int = 8
    repairs: int = 2
    continuations: int = 2
    history: int | None = None
    hops: int = 16


class Capacity(Data, metaclass=Checked, omit_defaults=True, kw_only=True):
    """Concurrency limits of a runtime; None for no limit.

    - `running`: activations in this process at once.
    - `per_tenant`, `per_agent`: claimed threads of a tenant or an agent at once, over all workers on the store.
      Each worker enforces its own values, so give all workers the same. Dispatches beyond them wait.
    - `queued`: dispatches of a tenant that may wait for a worker. Input beyond it is refused with `Overloaded`.
    """

    running: int | None = None
    per_tenant: int | None = None
    per_agent: dict[str, int] = {}
    queued: int | None = None

    def __post_init__(self) -> None:
        wrong = [
            f"Capacity: {name} is a number of at least {least}, or None for no limit, not {value!r:.80}"
            for name, value, least in (
                ("running", self.running, 1),
                ("per_tenant", self.per_tenant, 1),
                ("queued", self.queued, 0),
            )
            if value is not None and not _at_least(value, least)
        ]
        agents: Any = self.per_agent
        if not isinstance(agents, dict):
            wrong.append(f"Capacity: per_agent is a dict, such as {{'writer': 3}}, not {agents!r:.80}")
        else:
            wrong += [
                f"Capacity: per_agent maps agent ids to numbers of at least 1, not {agent!r:.80} to {limit!r:.80}"
                for agent, limit in cast(dict[Any, Any], agents).items()
                if not isinstance(agent, str) or not _at_least(limit, 1)
            ]
        if wrong:
            raise ConfigurationError(wrong)


def _at_least(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


class WallTime(Data, metaclass=Checked, tag="wall_time"):
    """Stop when the run has taken longer than `seconds`, waiting included."""

    seconds: float
    tree: bool = False


class TokenBudget(Data, metaclass=Checked, tag="token_budget"):
    """Stop when the run, or its whole tree, used more input and output tokens than this."""

    tokens: int
    tree: bool = False


class CostBudget(Data, metaclass=Checked, tag="cost_budget"):
    """Stop when the run, or its whole tree, cost more micro-units than this."""

    cost: int
    tree: bool = False


class ConsecutiveErrors(Data, metaclass=Checked, tag="consecutive_errors"):
    """DeliveryPolicy the model after a transient failure; stop after this many in a row."""

    errors: int


class StopOnTool(Data, metaclass=Checked, tag="stop_on_tool"):
    """Stop when the model requests this tool; the call doesn't run."""

    tool: str


class ContentMatch(Data, metaclass=Checked, tag="content_match"):
    """Stop when the answer's text matches this regular expression."""

    pattern: str


class LoopDetection(Data, metaclass=Checked, tag="loop_detection"):
    """Stop when this many answers in a row have the same text and calls."""

    window: int


StopPolicy = WallTime | TokenBudget | CostBudget | ConsecutiveErrors | StopOnTool | ContentMatch | LoopDetection
