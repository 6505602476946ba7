"""`wakeful usage`: tokens, cost, latency and errors of requests to models."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, cast

import typer

from ..stores import UsageRow
from .locations import Json, Place, Tenant, ask
from .tables import print_list

__all__ = ["usage"]

_FORMATS = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]

Since = Annotated[
    datetime | None,
    typer.Option(metavar="TIME", formats=_FORMATS, help="Only requests that ended then or later, in UTC."),
]
Until = Annotated[
    datetime | None,
    typer.Option(metavar="TIME", formats=_FORMATS, help="Only requests that ended before, in UTC."),
]


def usage(
    place: Place,
    since: Since = None,
    until: Until = None,
    by: Annotated[str, typer.Option(metavar="KEYS", help="Of agent, model and day.")] = "agent,model,day",
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Sum the requests to models: tokens, cost in dollars, latency and errors.

    A time is a date such as 2026-11-18, or 2026-11-18T09:30. With --by "" there is one sum.
    """
    keys = cast(Any, tuple([key.strip() for key in by.split(",") if key.strip()]))
    start, end = [None if at is None else at.replace(tzinfo=UTC) for at in (since, until)]
    found = ask(place, tenant, lambda runtime: runtime.usage(since=start, until=end, by=keys))
    columns = ("REQUESTS", "ERRORS", "INPUT", "CACHED", "OUTPUT", "REASONING", "COST", "P50", "P95")
    rows = [(*[str(getattr(row, key)) for key in keys], *_cells(row)) for row in found]
    print_list(json, found, (*[key.upper() for key in keys], *columns), rows, "no requests")


def _cells(row: UsageRow) -> tuple[str, ...]:
    used = row.usage
    tokens = (used.input_tokens, used.cached_tokens, used.output_tokens, used.reasoning_tokens)
    counts = [f"{count:,}" for count in (row.requests, row.errors, *tokens)]
    return (*counts, f"${used.cost / 1_000_000:,.6f}", f"{row.p50_ms:,} ms", f"{row.p95_ms:,} ms")
