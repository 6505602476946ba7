"""The `wakeful` command; it needs the extra `wakeful[cli]`, and nothing else imports it."""

from __future__ import annotations

import sys
from io import TextIOWrapper

__all__ = ["main"]

_EXTRA = ("typer", "rich")


def main() -> None:
    """Run the command line; the entry point of `wakeful` and of `python -m wakeful.cli`."""
    try:
        from ._app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        print(f"wakeful: the command line needs {error.name}: pip install 'wakeful[cli]'", file=sys.stderr)
        sys.exit(1)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # A terminal that can't show a character is no reason to fail.
    app(prog_name="wakeful")
