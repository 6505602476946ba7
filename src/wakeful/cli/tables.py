"""Tables for lists: a header, aligned columns, and short ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.cells import cell_len

from ..types.codec import encode
from .render import Renderer

__all__ = ["print_list", "print_table", "shorten_ids"]

# Generated ids begin with their time: this much of one has the milliseconds and the counter.
MIN_SHORT = 18
_GAP = "  "
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def shorten_ids(ids: Iterable[str | None]) -> dict[str | None, str]:
    """Prefixes of generated ids, of one length, that tell them apart; other ids stay whole."""
    found = {one for one in ids if one is not None}
    generated = [one for one in found if _UUID.fullmatch(one)]
    length = MIN_SHORT
    while len({one[:length] for one in generated}) < len(generated):
        length += 1
    short: dict[str | None, str] = {one: one[:length] if _UUID.fullmatch(one) else one for one in found}
    return short | {None: "-"}


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a header and rows; the last column may be of any width."""
    renderer = Renderer()
    widths = [max(cell_len(row[at]) for row in (columns, *rows)) for at in range(len(columns) - 1)]
    for number, row in enumerate((columns, *rows)):
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=False)]
        renderer.line(_GAP.join([*cells, row[-1]]).rstrip(), "" if number else "bold")


def print_list(
    json: bool, values: Sequence[Any], columns: Sequence[str], rows: Sequence[Sequence[str]], nothing: str
) -> None:
    """Print a list: with `json` one value a line, else a table, or a remark if it is empty."""
    if json:
        for value in values:
            typer.echo(encode(value))
    elif rows:
        print_table(columns, rows)
    else:
        Renderer().note(nothing)
