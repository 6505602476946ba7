"""Replies about agents."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

__all__ = ["AgentView", "ToolView"]


class ToolView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool that an agent's model is offered. `effect` and `approval` are for those who may inspect agents."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    effect: str | None = None
    approval: bool | None = None


class AgentView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent. `instructions`, `delegates` and `handoffs` are for those who may inspect agents.

    Instructions that are functions are shown as empty.
    """

    id: str
    description: str = ""
    model: str = ""
    tools: tuple[ToolView, ...] = ()
    output: dict[str, Any] | None = None
    instructions: str | None = None
    delegates: tuple[str, ...] | None = None
    handoffs: tuple[str, ...] | None = None
