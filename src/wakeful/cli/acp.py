"""`wakeful acp`: a runtime's agents for an editor, over stdio."""

from __future__ import annotations

import asyncio
from contextlib import redirect_stdout
from sys import stderr
from typing import Annotated

import typer

from ..errors import UsageError
from .exit_codes import reported
from .logs import show_log
from .prompts import decider
from .render import Renderer
from .target import load_runtime
from .worker import StoreUrl

__all__ = ["acp"]


def acp(
    target: Annotated[str, typer.Argument(metavar="MODULE:RUNTIME", show_default=False)],
    agents: Annotated[
        str, typer.Option(metavar="A,B", help="The agents to serve; all by default. They are the modes.")
    ] = "",
    who: Annotated[
        str | None,
        typer.Option("--as", metavar="WHO", help="The principal of runs and decisions: a name,group:<name>,..."),
    ] = None,
    store: StoreUrl = None,
) -> None:
    """Serve agents to an editor over stdio by the Agent Client Protocol.

    An editor starts this command itself: name it in the editor's settings.
    """
    with reported(Renderer()):
        try:
            from ..server.acp import serve_stdio
        except ImportError as error:
            raise UsageError(
                "serving an editor needs packages that aren't installed: pip install 'wakeful[acp]'"
            ) from error
        with redirect_stdout(stderr):
            runtime = load_runtime(target, store)
        names = [name.strip() for name in agents.split(",") if name.strip()] or list(runtime.agents)
        if unknown := [name for name in names if name not in runtime.agents]:
            known = ", ".join(runtime.agents)
            raise UsageError(f"no agent {', '.join(map(repr, unknown))} to serve; this runtime has {known}")
        author = decider(who)
        show_log()
        asyncio.run(serve_stdio(runtime, names, author, None if who is None else author.principal))
