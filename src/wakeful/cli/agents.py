"""`wakeful agents`: list the agents of a runtime and their tools."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..agents import Agent
from ..runtime import Runtime
from .exit_codes import reported
from .locations import Json, with_runtime
from .render import Renderer
from .tables import print_list
from .target import load_runtime
from .text import one_line

__all__ = ["agents_app"]

agents_app = typer.Typer(name="agents", help="List the agents of a runtime.", no_args_is_help=True)


@agents_app.command("list")
def list_(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:RUNTIME", help="The runtime, such as app:runtime.", show_default=False)
    ],
    json: Json = False,
) -> None:
    """List agents with their models and tools."""

    async def look(runtime: Runtime) -> list[dict[str, Any]]:
        return [_describe(runtime, agent) for agent in runtime.agents.values()]

    with reported(Renderer()):
        runtime = load_runtime(target)
        found = with_runtime(runtime, None, lambda _: look(runtime))
    rows = [
        (one["id"], one["model"], one_line(", ".join(one["tools"]) or "-", 60), one_line(one["description"], 80))
        for one in found
    ]
    print_list(json, found, ("AGENT", "MODEL", "TOOLS", "DESCRIPTION"), rows, "no agents")


def _describe(runtime: Runtime, agent: Agent) -> dict[str, Any]:
    model = (
        agent.model if isinstance(agent.model, str) else getattr(agent.model, "name", type(agent.model).__name__)
    )
    return {
        "id": agent.id,
        "model": model or "-",
        "description": agent.description,
        "tools": [spec.name for spec in runtime.agents.tools(agent.id)],
        "delegates": [other if isinstance(other, str) else other.agent for other in agent.delegates],
        "handoffs": list(agent.handoffs),
    }
