"""The STORE argument: a file's path, a database's URL, or `module:runtime`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ..agents import Agent
from ..errors import ConfigurationError, UsageError
from ..models import ScriptedModel
from ..runtime import Runtime, TenantRuntime
from ..stores import open_store
from ..types.codec import encode
from .exit_codes import reported
from .render import Renderer
from .target import load_runtime

__all__ = ["PLACE", "Json", "Place", "Tenant", "ask", "is_target", "runtime_of", "show", "with_runtime"]

T = TypeVar("T")

PLACE = "A file's path, postgres://..., or module:runtime."

Place = Annotated[str, typer.Argument(metavar="STORE", help=PLACE, show_default=False)]
Tenant = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="The tenant; 'default' by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def is_target(place: str) -> bool:
    """Whether this is `module:runtime` and not a path or URL; an existing file is a path."""
    return re.fullmatch(r"[^:]{2,}:[A-Za-z_]\w*", place) is not None and not Path(place).exists()


def runtime_of(place: str, *, may_be_new: bool = False) -> Runtime:
    """The runtime of a target; for a path or URL, a runtime that executes nothing on that store."""
    if is_target(place):
        return load_runtime(place)
    path = place.removeprefix("sqlite://")
    if "://" not in path and not may_be_new:
        if not Path(path).exists():
            # A mistyped URL may contain a password.
            shown = re.sub(r"(?<=:)[^:]+(?=@)|(?<=password=)\S+", "...", path)
            raise UsageError(
                f"there is no file {shown!r}; a store is a file's path, postgres://... or module:runtime"
            )
        if Path(path).is_file() and Path(path).stat().st_size == 0:
            raise UsageError(f"the file {path!r} is empty: it has no store, and none was made")
    try:
        store = open_store(place, create=may_be_new)
        return Runtime([Agent("nobody", model=ScriptedModel([]))], store=store)  # A runtime needs an agent.
    except ConfigurationError as error:
        raise UsageError(str(error)) from error


def with_runtime(runtime: Runtime, tenant: str | None, work: Callable[[TenantRuntime], Awaitable[T]]) -> T:
    """Run a coroutine function with a runtime, as a tenant, and close the runtime."""

    async def main() -> T:
        try:
            return await work(runtime if tenant is None else runtime.tenant(tenant))
        finally:
            await runtime.close()

    return asyncio.run(main())


def ask(
    place: str, tenant: str | None, work: Callable[[TenantRuntime], Awaitable[T]], *, may_be_new: bool = False
) -> T:
    """Run a coroutine function with the store at a place; errors go to stderr."""
    with reported(Renderer()):
        return with_runtime(runtime_of(place, may_be_new=may_be_new), tenant, work)


def show(json: bool, value: Any, text: str) -> None:
    """Print a result as JSON or as text."""
    if json:
        typer.echo(encode(value))
    else:
        Renderer().line(text)
