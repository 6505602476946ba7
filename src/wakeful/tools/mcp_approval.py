"""The question of a vendor whether a tool of an MCP server may be called, as a tool that needs approval."""

from __future__ import annotations

from typing import Any, cast

from ..types.requests import ModelSettings
from ..types.tickets import Approval
from .definition import Tool
from .terms import Terms, terms_of

__all__ = ["McpApproval", "asks_before_mcp"]


class McpApproval(Tool):
    """Answers a vendor that asks before it calls a tool of an MCP server. The ticket has that call.

    The vendor asks by a call of its own, so no request offers the tool.
    """

    name = "mcp_approval_request"
    effect = "pure"
    approval = True
    on_demand = True

    async def run(self, server_label: str, name: str, arguments: str = "{}") -> str:
        """Allow the vendor to call a tool of an MCP server."""
        return "approved"

    def approval_terms(self, who: Approval) -> Terms:
        """The terms of the ticket: the vendor takes a yes or a no."""
        return terms_of(
            ("proceed",), who=who, deadline=self.deadline, on_deadline=self.on_deadline, escalate=self.escalate
        )


def asks_before_mcp(settings: ModelSettings) -> bool:
    """Whether a vendor may ask: an MCP server is among its tools."""
    tools: Any = (*settings.extra.get("tools", ()), *settings.body.get("tools", ()))
    return any(isinstance(tool, dict) and cast(dict[str, Any], tool).get("type") == "mcp" for tool in tools)
