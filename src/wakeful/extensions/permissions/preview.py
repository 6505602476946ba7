"""A preview of the decision on a call that nobody made."""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import ToolError
from ...tools import Tool
from ...types.runs import Principal
from .evaluation import CallFacts, Verdict
from .facts import asks_itself, facts_of, principal_values
from .matches import Facts
from .plugin import Permissions
from .policy import Policy

__all__ = ["preview_call"]


def preview_call(
    plugin: Permissions,
    section: Policy,
    agent: str,
    tool: Tool,
    arguments: dict[str, Any],
    *,
    principal: Principal | None = None,
    tainted: bool = False,
) -> tuple[Verdict, Verdict | None]:
    """Decide on a call of an agent's own run, without grants; and by the shadow policy, if there is one."""
    values = {
        "agent": agent,
        "depth": 0,
        "origin": "user",
        "principal": None if principal is None else principal_values(principal),
    }
    asks, seen = asks_itself(tool, arguments), arguments
    try:
        bound = tool.bind(arguments)
        seen = tool.arguments_seen(bound)
        asks = asks_itself(tool, bound)
    except (ToolError, TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        pass  # A call with such arguments gives the model an error.
    return plugin.preview(CallFacts(facts_of(tool), seen, Facts(values, tainted), asks), section)
