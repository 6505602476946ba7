"""The metrics, commands and options that the pages for operators name exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from wakeful.cli.app import app
from wakeful.dispatch import INSTRUMENTS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["operating.md", "scaling.md", "workers.md"]


def test_metrics_table_is_complete() -> None:
    page = (DOCS / "operating.md").read_text()
    table = page.partition("## What to watch")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(wakeful_\w+)", table))
    assert named == INSTRUMENTS.keys()
    assert {name for page in PAGES for name in re.findall(r"\bwakeful_\w+", (DOCS / page).read_text())} <= named


@pytest.mark.parametrize("page", PAGES)
def test_documented_commands_and_options_exist(page: str) -> None:
    text = (DOCS / page).read_text().replace("\\|", "|")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    said = [line for block in blocks for line in block.splitlines()] + re.findall(r"`(wakeful [^`]+)`", text)
    for line in said:
        words = re.split(r"\s[|#]", line)[0].split()
        if not words or words[0] != "wakeful":
            continue
        command: Any = typer.main.get_command(app)
        rest = words[1:]
        while rest and hasattr(command, "commands"):
            assert rest[0] in command.commands, line
            command, rest = command.commands[rest[0]], rest[1:]
        known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
        assert {word for word in rest if word.startswith("--")} <= known, line
