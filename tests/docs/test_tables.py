"""The tables of the pages equal the code: phases, events, moves, options, layers."""

from __future__ import annotations

import inspect
import re
from configparser import ConfigParser
from pathlib import Path
from typing import get_args

from wakeful import Retention, SqliteStore, Tool
from wakeful.loop.moves import Move
from wakeful.plugins import PHASES, ContextMessage, Plugin
from wakeful.types import calls, runs
from wakeful.types.events import AnyEvent, UnknownEvent
from wakeful.types.limits import StopPolicy

ROOT = Path(__file__).parents[2]


def section(page: str, title: str) -> str:
    """A section of a page, without those below it."""
    text = (ROOT / "docs" / page).read_text()
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no section {title!r}"
    return found[1]


def names(text: str) -> list[str]:
    """The names in the first cells of a section's tables."""
    cells = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)", cell)]


def events(text: str, kind: str) -> set[str]:
    row = re.search(rf"^\| {kind} \| (.+) \|$", text, re.MULTILINE)
    assert row is not None
    return set(re.findall(r"`(\w+)`", row[1]))


def test_table_of_phases() -> None:
    listed = names(section("state-and-plugins.md", "The nine phases"))
    assert tuple(listed[:9]) == PHASES
    assert set(PHASES) <= set(dir(Plugin))


def test_table_of_context_message_fields() -> None:
    assert tuple(names(section("state-and-plugins.md", "Context messages"))) == ContextMessage.__struct_fields__


def test_table_of_events() -> None:
    text = section("concepts.md", "Events and cursors")
    kinds = [kind for kind in get_args(AnyEvent) if kind is not UnknownEvent]
    assert events(text, "durable") == {kind.__struct_config__.tag for kind in kinds if kind.durable}
    assert events(text, "live") == {kind.__struct_config__.tag for kind in kinds if not kind.durable}


def test_table_of_terminations_and_stop_policies() -> None:
    endings = [kind.__name__ for kind in get_args(runs.Termination) if kind.__name__ != "Unknown"]
    policies = [kind.__name__ for kind in get_args(StopPolicy)]
    assert names(section("concepts.md", "What ends a run")) == [*endings, *policies]


def test_table_of_tool_options() -> None:
    options = [name for name in Tool.__annotations__ if name != "check"]
    assert sorted(names(section("tools.md", "Options"))) == sorted([*options, "check"])


def test_table_of_effects() -> None:
    for page in ("tools.md", "tool-effects.md"):
        assert [name for name in names(section(page, "Effects")) if name in get_args(calls.Effect)] == [
            *get_args(calls.Effect)
        ]


def test_table_of_retention_fields() -> None:
    assert tuple(names(section("stores.md", "Retention"))) == Retention.__struct_fields__


def test_table_of_sqlite_options() -> None:
    listed = names(section("stores.md", "SQLite"))
    assert sorted(listed) == sorted(set(inspect.signature(SqliteStore).parameters) - {"path"})


def test_table_of_store_commands() -> None:
    from wakeful.cli.store import store_app

    listed = re.findall(r"^\| `wakeful store (\w+)", section("cli.md", "`wakeful store`"), re.MULTILINE)
    assert listed == [command.name or command.callback.__name__ for command in store_app.registered_commands]


async def test_sqlite_sync_levels_equal_page(tmp_path: Path) -> None:
    levels: dict[str, tuple[str, int]] = {}
    for synchronous in ("FULL", "NORMAL"):
        store = SqliteStore(tmp_path / f"{synchronous}.db", synchronous=synchronous)
        journal = await store._database.writer.write(lambda db: db.execute("PRAGMA journal_mode").fetchone()[0])
        level = await store._database.writer.write(lambda db: db.execute("PRAGMA synchronous").fetchone()[0])
        await store.close()
        levels[synchronous] = (journal, level)
    assert levels == {"FULL": ("wal", 2), "NORMAL": ("wal", 1)}
    assert inspect.signature(SqliteStore).parameters["synchronous"].default == "FULL"
    assert "`journal_mode=WAL` and `synchronous=FULL`" in section("durability.md", "SQLite")


def test_table_of_moves() -> None:
    assert set(names(section("architecture.md", "next_move"))) == {kind.__name__ for kind in get_args(Move)}


def test_table_of_layers() -> None:
    text = section("architecture.md", "Layers")
    config = ConfigParser()
    config.read(ROOT / ".importlinter")
    layers = config["importlinter:contract:layers"]["layers"].replace("wakeful.", "").split("\n")
    block = re.search(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert block[1].split("\n") == [*layers[1:], ""]

    folders = {path.stem for path in (ROOT / "src/wakeful").iterdir() if not path.name.startswith(("_", "py."))}
    assert set(names(text)) == folders


def test_architecture_names_files_that_exist() -> None:
    named = re.findall(r"`([a-z_]+/[a-z_/0-9]+\.py)`", (ROOT / "docs/architecture.md").read_text())
    assert named
    assert [path for path in named if not (ROOT / "src/wakeful" / path).is_file()] == []
