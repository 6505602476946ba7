"""Matching calls of runs with a pattern, for other extensions."""

from __future__ import annotations

from collections.abc import Iterable

from ...tools import Tool
from ...types.calls import Call
from ...types.runs import Identity, Principal
from .facts import facts_of, run_values
from .matches import Facts, ToolFacts, compile_pattern, selects
from .patterns import Pattern

__all__ = ["CallMatcher"]


class CallMatcher:
    """A compiled pattern that catches calls, as rules that ask do."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._holds = compile_pattern(pattern, admits=False)

    def may_match(self, tools: Iterable[Tool]) -> bool:
        """Whether it selects one of the tools; tools of MCP servers are found later, so it may select those."""
        text = self._pattern.selector
        if self._pattern.kind != "name" or text.startswith("mcp__"):
            return True
        return any(selects(self._pattern, facts_of(tool)) for tool in tools)

    def matches(self, call: Call, tool: Tool | None, run: Identity, principal: Principal | None) -> bool:
        """Whether it catches a call, which may be of a tool that the agent no longer has."""
        if not selects(self._pattern, ToolFacts(call.name, call.effect) if tool is None else facts_of(tool)):
            return False
        return self._holds is None or self._holds(call.effective_arguments, Facts(run_values(run, principal)))
