"""Limits that are always on, and the stop policies an agent may add."""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from ..errors import ConfigurationError
from ..errors._arguments import Checked

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


class Limits(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True):
    """What no run may exceed.

    `steps` model calls in a run, `parallel` tool calls at once, `depth` of delegation, `tree_calls` tool calls
    in a whole tree of runs, `handoffs` in a run, `repairs` of a typed output that doesn't fit, `continuations`
    of an answer that hit its token limit, `hops` messages in a row from agent to agent. `history` is how many of a
    thread's messages the model is shown, the newest, in whole turns; all of them by default.
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


class Capacity(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """How much a runtime takes on. By default nothing is limited.

    `running` is how many activations this process has at once. `per_tenant` and `per_agent` are how many threads
    of a tenant and of an agent are claimed at once by all processes on the store; it is for those who claim to
    keep to it, so give all workers the same. What exceeds them waits its turn. `queued` is how many dispatches of
    a tenant may wait for a worker: input that would have to wait beyond that is refused with `Overloaded`.
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


class WallTime(Struct, metaclass=Checked, frozen=True, gc=False, tag="wall_time"):
    """Stop when more seconds than these have passed since the run started, waiting included."""

    seconds: float
    tree: bool = False


class TokenBudget(Struct, metaclass=Checked, frozen=True, gc=False, tag="token_budget"):
    """Stop when more input and output tokens than these were used, by the run or by its whole tree."""

    tokens: int
    tree: bool = False


class CostBudget(Struct, metaclass=Checked, frozen=True, gc=False, tag="cost_budget"):
    """Stop when the run, or its whole tree, cost more micro-units than these."""

    cost: int
    tree: bool = False


class ConsecutiveErrors(Struct, metaclass=Checked, frozen=True, gc=False, tag="consecutive_errors"):
    """Ask the model again after a transient failure, and stop after so many in a row."""

    errors: int


class StopOnTool(Struct, metaclass=Checked, frozen=True, gc=False, tag="stop_on_tool"):
    """Stop when the model asks for this tool; the call isn't run."""

    tool: str


class ContentMatch(Struct, metaclass=Checked, frozen=True, gc=False, tag="content_match"):
    """Stop when the answer's text matches this regular expression."""

    pattern: str


class LoopDetection(Struct, metaclass=Checked, frozen=True, gc=False, tag="loop_detection"):
    """Stop when so many answers in a row were the same, text and calls."""

    window: int


StopPolicy = WallTime | TokenBudget | CostBudget | ConsecutiveErrors | StopOnTool | ContentMatch | LoopDetection
