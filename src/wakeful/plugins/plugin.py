"""The base class of plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ..state import AnyKey
from ..tools import Tool
from .contexts import (
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
    """Base of plugins. Override the methods of the phases you need.

    Methods marked `@tool` are offered to the model; methods marked `@action` or `@notice` are handlers. `keys` are
    the plugin's state keys. `config` is the type of its section in an agent's `config`; hooks read their section,
    or its default, as `ctx.config`. The hooks of a `concurrent` plugin run beside those of other concurrent
    plugins and before the rest: set it for hooks that wait for the network.
    """

    name: ClassVar[str] = ""
    keys: ClassVar[Sequence[AnyKey]] = ()
    config: ClassVar[type[Any] | None] = None
    concurrent: ClassVar[bool] = False

    async def run_start(self, ctx: Step) -> None:
        """An activation of a run starts."""

    async def step_start(self, ctx: Step) -> None:
        """A step starts."""

    async def before_inference(self, ctx: BeforeInference) -> None:
        """A request is about to leave the process; edit it with `ctx.plan`."""

    async def after_inference(self, ctx: AfterInference) -> None:
        """The model answered or failed; the answer is not committed yet."""

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        """Decide whether a call may run; None allows it."""

    async def before_tool(self, ctx: BeforeTool) -> None:
        """A call is about to start."""

    async def after_tool(self, ctx: AfterTool) -> None:
        """A call is finished."""

    async def step_end(self, ctx: Step) -> None:
        """Every call of the step is finished."""

    async def run_end(self, ctx: RunEnd) -> None:
        """The activation ends, for whatever reason."""

    async def activate(self, ctx: Step) -> None:
        """The plugin's agent starts a run or takes one over."""

    async def deactivate(self, ctx: Step) -> None:
        """The plugin's agent hands the run over to an agent without this plugin."""

    def tools(self) -> Sequence[Tool]:
        """The plugin's tools; by default its methods marked `@tool`."""
        found = [m for m in dir(type(self)) if isinstance(getattr(type(self), m, None), Tool)]
        return [getattr(self, member) for member in found]

    def problems(self, agents: Mapping[str, Mapping[str, Tool]], configs: Mapping[str, Any]) -> Sequence[str]:
        """List what is wrong with the plugin, when the runtime is made.

        `agents` are the agents that have the plugin, with their tools by name; `configs` are their sections.
        """
        return ()

    @property
    def label(self) -> str:
        """The plugin's `name`, else the name of its class."""
        return self.name or type(self).__name__
