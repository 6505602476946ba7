"""Plugins: objects whose methods are hooks, and which may bring tools, state keys, actions and notices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..state import AnyKey
from ..tools import Tool
from ._contexts import (
    AfterInference,
    AfterTool,
    BeforeInference,
    BeforeTool,
    GateAnswer,
    GateTool,
    RunEnd,
    Step,
)

__all__ = ["Plugin"]


class Plugin:
    """Subclass it and define the phases you want: the method's name is the phase.

    Methods marked `@tool` are offered to the model, methods marked `@action` and `@notice` handle those. `keys`
    are state keys it brings; `config` is the type of its section in an agent's `config`, and the hooks find
    their section, or its default, as `ctx.config`.
    """

    name: ClassVar[str] = ""
    keys: ClassVar[Sequence[AnyKey]] = ()
    config: ClassVar[type[Any] | None] = None

    async def run_start(self, ctx: Step) -> None:
        """An activation of a run begins."""

    async def step_start(self, ctx: Step) -> None:
        """A step begins."""

    async def before_inference(self, ctx: BeforeInference) -> None:
        """The model is about to be called; `ctx.plan` shapes the call."""

    async def after_inference(self, ctx: AfterInference) -> None:
        """The model answered or failed; the answer is not committed yet."""

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        """May this call run? None allows it."""

    async def before_tool(self, ctx: BeforeTool) -> None:
        """A call is about to start."""

    async def after_tool(self, ctx: AfterTool) -> None:
        """A call is finished."""

    async def step_end(self, ctx: Step) -> None:
        """Every call of the step is finished."""

    async def run_end(self, ctx: RunEnd) -> None:
        """The activation ends, whichever way."""

    async def activate(self, ctx: Step) -> None:
        """The plugin's agent begins a run or takes one over."""

    async def deactivate(self, ctx: Step) -> None:
        """The plugin's agent hands the run over to one without this plugin."""

    def tools(self) -> Sequence[Tool]:
        """The tools it brings: by default its methods marked `@tool`."""
        found = [m for m in dir(type(self)) if isinstance(getattr(type(self), m, None), Tool)]
        return [getattr(self, member) for member in found]

    @property
    def label(self) -> str:
        """The name it goes by: `name`, else its class's."""
        return self.name or type(self).__name__
