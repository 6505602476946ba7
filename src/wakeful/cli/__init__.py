"""The `wakeful` command. It needs the extra `wakeful[cli]`."""

from __future__ import annotations

import sys
from io import TextIOWrapper

__all__ = ["main"]

_EXTRA = ("typer", "rich")


def main() -> None:
    """Run the command line; the entry point of `wakeful` and of `python -m wakeful.cli`."""
    try:
        from .app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        print(f"wakeful: the command line needs {error.name}: pip install 'wakeful[cli]'", file=sys.stderr)
        sys.exit(1)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # Some terminals can't show all characters.
    app(prog_name="wakeful")
