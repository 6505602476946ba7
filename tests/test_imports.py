"""Importing wakeful costs what is used, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "a2a",
    "anthropic",
    "asyncpg",
    "google",
    "grpc",
    "httpx",
    "hypothesis",
    "nats",
    "openai",
    "opentelemetry",
    "pydantic",
    "pytest",
    "rich",
    "sqlite3",
    "starlette",
    "typer",
)


def imported_by(statement: str) -> set[str]:
    """The top-level modules that are there after a statement in a fresh interpreter."""
    program = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


REMOTE = "import wakeful as w; w.Runtime([w.Agent.remote('far', a2a='https://example.com')])"


@pytest.mark.parametrize(
    "statement",
    ["import wakeful", "import wakeful.testing", "import wakeful.backends, wakeful.backends.a2a", REMOTE],
)
def test_nothing_heavy_is_imported(statement: str) -> None:
    found = imported_by(statement)
    assert "wakeful" in found
    assert found & set(HEAVY) == set()


def test_star_imports_nothing_that_must_be_installed() -> None:
    assert imported_by("from wakeful import *") & set(HEAVY) == {"sqlite3"}


def test_run_with_tools_imports_nothing_heavy() -> None:
    program = (
        "import wakeful as w\n"
        "look = w.tool(name='look')(lambda at='sky': at)\n"
        "model = w.ScriptedModel([w.call('look'), 'done'])\n"
        "assert w.Runtime([w.Agent('a', model=model, tools=[look])]).run_sync('a', 'go').text == 'done'"
    )
    assert imported_by(program) & set(HEAVY) == set()
