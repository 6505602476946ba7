"""`wakeful grants`: list and revoke remembered approvals."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import UsageError
from ..runtime import TenantRuntime
from ..types.ids import now_ms
from ..types.records import Grant
from .ids import find_grant
from .locations import Json, Place, Tenant, ask, show
from .tables import print_list
from .text import one_line, time_text
from .tickets import Scope, Who, author_of

__all__ = ["grants_app"]

grants_app = typer.Typer(
    name="grants",
    help="List and revoke remembered approvals.\n\nAn id may be shortened to an unambiguous prefix.",
    no_args_is_help=True,
)


@grants_app.command("list")
def list_(
    place: Place,
    scope: Annotated[Scope | None, typer.Option(help="Those for a run, thread, user or agent.")] = None,
    scope_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="The id of that.")] = None,
    before: Annotated[str | None, typer.Option(metavar="GRANT", help="Only older grants than this one.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The number of grants at most.")] = 100,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """List grants, newest first, with expired and revoked ones."""
    wanted = None if scope is None else scope.value

    async def look(runtime: TenantRuntime) -> list[Grant]:
        seen = None if before is None else await find_grant(runtime, before)
        if (wanted is None) is not (scope_id is None):
            raise UsageError("--scope and --id belong together: --scope user --id ada")
        return list(await runtime.grants.list(scope=wanted, scope_id=scope_id, before=seen, limit=limit))

    grants = ask(place, tenant, look)
    rows = [
        (
            grant.id,
            _state(grant),
            f"{grant.scope} {grant.scope_id}",
            grant.agent_id,
            grant.granted_by or "-",
            time_text(grant.created_at),
            one_line(grant.pattern, 80),
        )
        for grant in grants
    ]
    print_list(json, grants, ("GRANT", "STATE", "FOR", "AGENT", "BY", "GIVEN", "PATTERN"), rows, "no grants")


@grants_app.command()
def revoke(
    place: Place,
    grant: Annotated[str, typer.Argument(metavar="GRANT", help="The grant's id.", show_default=False)],
    who: Who = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Revoke a grant: it lifts no rule from the next call on."""

    async def work(runtime: TenantRuntime) -> Grant:
        return await runtime.grants.revoke(await find_grant(runtime, grant), **author_of(place, who))

    found = ask(place, tenant, work)
    show(json, found, f"revoked grant {found.id} of {one_line(found.pattern, 80)}")


def _state(grant: Grant) -> str:
    if grant.revoked_at is not None:
        return "revoked"
    return f"until {time_text(grant.expires_at)}" if grant.counts(now_ms()) else "expired"
