"""The STORE argument: a file's path, a database's URL, `module:runtime`, or the URL of a server."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer

from ..agents import Agent
from ..errors import ConfigurationError, NotAuthenticated, UsageError
from ..models import ScriptedModel
from ..runtime import Runtime, TenantRuntime
from ..stores import open_store
from ..types.codec import encode
from .exit_codes import reported
from .render import Renderer
from .target import load_runtime

__all__ = [
    "PLACE",
    "STORE",
    "Json",
    "Place",
    "StorePlace",
    "Tenant",
    "ask",
    "ask_store",
    "is_target",
    "is_url",
    "runtime_of",
    "secret_of",
    "show",
    "with_runtime",
]

T = TypeVar("T")

STORE = "A file's path, postgres://..., or module:runtime."
PLACE = f"{STORE.removesuffix('.')}, or a server's URL (key: WAKEFUL_KEY)."
KEY = "WAKEFUL_KEY"

Place = Annotated[str, typer.Argument(metavar="STORE", help=PLACE, show_default=False)]
StorePlace = Annotated[str, typer.Argument(metavar="STORE", help=STORE, show_default=False)]
Tenant = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="The tenant; 'default' by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def is_target(place: str) -> bool:
    """Whether this is `module:runtime` and not a path or URL; an existing file is a path."""
    return re.fullmatch(r"[^:]{2,}:[A-Za-z_]\w*", place) is not None and not Path(place).exists()


def is_url(place: str) -> bool:
    """Whether this is the URL of a server."""
    return place.startswith(("http://", "https://"))


def runtime_of(place: str, *, may_be_new: bool = False) -> Runtime:
    """The runtime of a target; for a path or a database's URL, a runtime that executes nothing on that store."""
    if is_url(place):
        raise UsageError(f"this command needs the store itself, not a server: {STORE}")
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


def _client_of(place: str, tenant: str | None) -> Runtime:
    """A client of a server, which has the verbs of a runtime."""
    if tenant is not None:
        raise UsageError(f"a server's key says which tenant it belongs to; leave --tenant out, and set {KEY}")
    try:
        from ..client import Client
    except ImportError as error:
        raise UsageError(str(error)) from error
    return cast(Runtime, Client(place, os.environ.get(KEY)))


def secret_of(name: str) -> str:
    """A secret from the environment, which process lists don't show."""
    if not (secret := os.environ.get(name, "")):
        raise UsageError(f"the variable {name!r} is empty or not set; put the secret there: export {name}=...")
    return secret


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
    """Run a coroutine function with the store or the server at a place; errors go to stderr."""
    with reported(Renderer()):
        if is_url(place):
            try:
                return with_runtime(_client_of(place, tenant), None, work)
            except NotAuthenticated as error:
                raise NotAuthenticated(f"{error}; the command line sends the key in {KEY}") from error
        return with_runtime(runtime_of(place, may_be_new=may_be_new), tenant, work)


def ask_store(place: str, tenant: str | None, work: Callable[[TenantRuntime], Awaitable[T]]) -> T:
    """`ask` for what a server doesn't do."""
    with reported(Renderer()):
        return with_runtime(runtime_of(place), tenant, work)


def show(json: bool, value: Any, text: str) -> None:
    """Print a result as JSON or as text."""
    if json:
        typer.echo(encode(value))
    else:
        Renderer().line(text)
