"""Validation of an agent's limits and policies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isnan
from typing import Any, cast

from ..models import RetryPolicy
from ..tools import valid_name
from ..types.limits import ContentMatch, LoopDetection, StopOnTool, StopPolicy
from .agent import Agent

__all__ = ["policy_problems"]

_MAY_BE_ZERO = ("repairs", "continuations", "handoffs")


def policy_problems(agent: Agent) -> list[str]:
    """List the problems of an agent's retry policy, limits and stop policies."""
    found: list[str] = []
    if not isinstance(cast(Any, agent.retry), RetryPolicy | None):
        found.append(f"retry is a RetryPolicy, not {agent.retry!r:.80}")
    for name in agent.limits.__struct_fields__:
        lowest = 0 if name in _MAY_BE_ZERO else 1
        value = getattr(agent.limits, name)
        if value is not None and value < lowest:
            found.append(f"limits.{name} must be at least {lowest}")
    for policy in agent.stop:
        kind = str(policy.__struct_config__.tag)
        found += [f"stop policy {kind}: {problem}" for problem in _stop_problems(policy)]
    return found


def _stop_problems(policy: StopPolicy) -> Iterator[str]:
    if isinstance(policy, ContentMatch):
        try:
            re.compile(policy.pattern)
        except re.error as error:
            yield f"bad pattern: {error}"
    # A client may bring a tool that the agent doesn't have, so only the form of the name is checked.
    if isinstance(policy, StopOnTool) and not valid_name(policy.tool):
        yield f"no tool can be named {policy.tool!r:.80}: a name has 1 to 64 letters, digits, '_' or '-'"
    lowest = 2 if isinstance(policy, LoopDetection) else 0
    first = getattr(policy, policy.__struct_fields__[0])
    if isinstance(first, int | float) and not (first > 0 and first >= lowest):
        yield f"{first!r} {'is no number' if isnan(first) else 'is too small'}"
