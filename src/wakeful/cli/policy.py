"""`wakeful policy`: check permission rules, and try them on the calls of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from ..extensions.permissions import Preview, load_policy, preview_policy
from .exit_codes import reported
from .locations import Json, Tenant, is_target, runtime_of, show, with_runtime
from .render import Renderer
from .tables import print_table
from .text import one_line

__all__ = ["policy_app"]

MAX_CHANGES = 20

policy_app = typer.Typer(name="policy", help="Check and try out permission rules.", no_args_is_help=True)

Rules = Annotated[Path, typer.Argument(metavar="RULES", help="A TOML file with rules.", show_default=False)]


@policy_app.command()
def check(rules: Rules, json: Json = False) -> None:
    """Check a file of rules: its patterns, options and examples."""
    with reported(Renderer()):
        policy = load_policy(rules)
    counts = {tier: len(getattr(policy, tier)) for tier in ("deny", "ask", "allow")}
    text = ", ".join(f"{count} {tier}" for tier, count in counts.items())
    show(json, {"rules": str(rules), **counts, "default": policy.default}, f"{rules}: {text}")


@policy_app.command()
def preview(
    rules: Rules,
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="STORE",
            help="A file's path, postgres://..., or module:runtime, which knows the tools.",
            envvar="WAKEFUL_STORE",
            show_default=False,
        ),
    ] = None,
    last: Annotated[int, typer.Option(min=1, metavar="N", help="The number of calls to try them on.")] = 10_000,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with these rules, not with what was decided.")
    ] = None,
    tenant: Tenant = None,
    json: Json = False,
) -> None:
    """Show what rules would have decided on the newest calls of a store. Nothing is changed."""
    with reported(Renderer()):
        if place is None:
            raise UsageError("say where the calls are: wakeful policy preview RULES STORE, or set WAKEFUL_STORE")
        runtime = runtime_of(place)
        agents = {name: runtime.agents.resolved(name) for name in runtime.agents} if is_target(place) else None
        found = with_runtime(
            runtime,
            tenant,
            lambda scoped: preview_policy(scoped.store, rules, last=last, against=against, agents=agents),
        )
    if json:
        show(json, found, "")
        return
    _print(found)


def _print(found: Preview) -> None:
    renderer = Renderer()
    renderer.line(f"{found.calls:,} calls; people are asked {found.would_ask:,} times instead of {found.asked:,}")
    if not found.calls:
        return
    print_table(("CALLS", "DECISION"), [(f"{count:,}", text) for text, count in found.decisions.items()])
    if not found.changes:
        return
    rows = [
        (
            f"{change.count:,}",
            change.tool,
            f"{change.before} -> {change.after}",
            f"{one_line(change.before_rule, 60)} -> {one_line(change.after_rule, 60)}",
        )
        for change in found.changes[:MAX_CHANGES]
    ]
    renderer.line("")
    print_table(("CHANGED", "TOOL", "DECISION", "RULES"), rows)
    if (more := len(found.changes) - MAX_CHANGES) > 0:
        renderer.note(f"{more} more kinds of changes; --json has all")
