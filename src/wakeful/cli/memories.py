"""`wakeful memories`: list, search, edit and erase long-term memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from ..errors import UsageError
from ..runtime import TenantRuntime
from ..types.records import MemoryNote
from .locations import Json, Place, Tenant, ask, show
from .tables import print_list
from .text import time_text

__all__ = ["memories_app"]

Scope = Annotated[str, typer.Argument(metavar="SCOPE", help="user, agent or thread.", show_default=False)]
Owner = Annotated[
    str, typer.Argument(metavar="ID", help="The id of the user, the agent or the thread.", show_default=False)
]
Memory = Annotated[str, typer.Argument(metavar="MEMORY", help="The memory's id.", show_default=False)]
Text = Annotated[str, typer.Argument(metavar="TEXT", show_default=False)]

memories_app = typer.Typer(
    name="memories", help="List, search, edit and erase long-term memories.", no_args_is_help=True
)


@memories_app.command("list")
def list_(place: Place, scope: Scope, owner: Owner, tenant: Tenant = None, json: Json = False) -> None:
    """List the notes about a user, an agent or a thread, the newest first."""
    _print(json, ask(place, tenant, lambda runtime: runtime.memories.list(cast(Any, scope), owner, limit=1000)))


@memories_app.command()
def search(
    place: Place, scope: Scope, owner: Owner, query: Text, tenant: Tenant = None, json: Json = False
) -> None:
    """Find the notes with words of a query, the best match first."""
    _print(json, ask(place, tenant, lambda runtime: runtime.memories.search(cast(Any, scope), owner, query)))


@memories_app.command()
def put(
    place: Place,
    scope: Scope,
    owner: Owner,
    key: Annotated[str, typer.Argument(metavar="KEY", show_default=False)],
    text: Text,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Write the note under a key, or replace it."""
    note = ask(place, tenant, lambda runtime: runtime.memories.put(cast(Any, scope), owner, key, text))
    show(json, note, f"wrote memory {note.id}")


@memories_app.command()
def edit(place: Place, memory: Memory, text: Text, tenant: Tenant = None, json: Json = False) -> None:
    """Replace the text of a note."""
    show(json, ask(place, tenant, lambda runtime: runtime.memories.edit(memory, text)), f"edited memory {memory}")


@memories_app.command()
def delete(place: Place, memory: Memory, tenant: Tenant = None, json: Json = False) -> None:
    """Delete a note."""

    async def remove(runtime: TenantRuntime) -> bool:
        if not await runtime.memories.delete(memory):
            raise UsageError(f"no memory {memory!r:.80} in this store; see wakeful memories list")
        return True

    show(json, {"memory": memory, "deleted": ask(place, tenant, remove)}, f"deleted memory {memory}")


@memories_app.command()
def erase(place: Place, scope: Scope, owner: Owner, tenant: Tenant = None, json: Json = False) -> None:
    """Delete all notes about a user, an agent or a thread."""
    erased = ask(place, tenant, lambda runtime: runtime.memories.erase(cast(Any, scope), owner))
    show(json, {"erased": erased}, f"erased {erased} memories of {scope} {owner!r}")


def _print(json: bool, notes: Sequence[MemoryNote]) -> None:
    rows = [
        (note.id, note.key, note.text, "untrusted" if note.tainted else "-", time_text(note.updated_at))
        for note in notes
    ]
    print_list(json, notes, ("MEMORY", "KEY", "TEXT", "SOURCE", "WRITTEN"), rows, "no memories")
