"""`wakeful store`: what is printed, what is refused, and the exit codes."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_process import command
from typer.testing import Result

from postgres_server import server
from wakeful import Agent, FunctionModel, ModelRequest, Retention, Runtime, SqliteStore, call, tool
from wakeful.stores.sql.schema import VERSION

Wakeful = Callable[..., Result]

APP = """
from wakeful import Agent, FunctionModel, Runtime, call, tool

@tool(approval=True)
async def {tool}(order: str) -> str:
    "Refund an order."
    return f"refunded {{order}}"

def answer(request):
    return "Done."

def make():
    return Runtime([Agent("clerk", model=FunctionModel(answer), tools=[{tool}])], store="app.db")
"""


@tool(approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


def answer(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if last.role == "user" and last.text.startswith("refund"):
        return call("refund", order=last.text.split()[1])
    return "Done." if last.role == "tool" else f"You said {last.text}"


def application(store: Any) -> Runtime:
    lead = Agent(
        "lead",
        model=FunctionModel(lambda r: "?" if len(r.messages) > 1 else call("agent_run_clerk", prompt="hi")),
        delegates=["clerk"],
    )
    return Runtime([Agent("clerk", model=FunctionModel(answer), tools=[refund]), lead], store=store)


async def fill(store: Any) -> str:
    """Three threads, one of them with a run that waits, one with a child; returns the run that waits."""
    runtime = application(store)
    try:
        await runtime.run("clerk", "hello", thread="old")
        await runtime.threads.describe("parked", title="Refunds \x1b[31mof Ada", metadata={"customer": 7})
        waiting = await runtime.run("clerk", "refund A7", thread="parked")
        await runtime.run("lead", "go", thread="parent")
        await runtime.tenant("acme").run("clerk", "secret", thread="acme-1")
        return waiting.run_id
    finally:
        await runtime.close()


@pytest.fixture
def here(wakeful: Wakeful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def db(here: Path) -> str:
    """A store with some threads, by its path from the current directory."""
    asyncio.run(fill("app.db"))
    return "app.db"


def lines(result: Result) -> list[str]:
    assert result.stderr == ""
    return result.stdout.splitlines()


def refused(result: Result, code: int) -> str:
    """The one line that a command that was refused says."""
    assert result.exit_code == code, result.stdout + result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("error: ")


def rows(path: str, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


# -- info ----------------------------------------------------------------------------------------------------


def test_info_shows_version_size_and_counts(wakeful: Wakeful, db: str) -> None:
    shown = [line.split(maxsplit=1) for line in lines(wakeful("store", "info", db))]
    assert [key for key, _ in shown[:4]] == ["store", "version", "bytes", "free"]
    assert shown[:2] == [["store", "app.db"], ["version", str(rows(db, "PRAGMA user_version")[0][0])]]
    assert shown[2][1].endswith(" KiB")
    assert [" ".join(line).split() for line in shown[4:]] == [
        ["threads", "4"],
        ["messages", "10"],
        ["tickets", "1"],
        ["dispatches", "0"],
        ["waiting", "runs", "1"],
        ["done", "runs", "3"],
    ]


def test_info_prints_json(wakeful: Wakeful, db: str) -> None:
    found = msgspec.json.decode(wakeful("store", "info", db, "--json").stdout)
    assert found["store"] == "app.db"
    assert found["bytes"] == Path(db).stat().st_size > 0
    assert found["counts"]["waiting runs"] == 1


def test_info_counts_one_tenant(wakeful: Wakeful, db: str) -> None:
    found = msgspec.json.decode(wakeful("store", "info", db, "--json", "--tenant", "acme").stdout)
    assert (found["counts"]["threads"], found["counts"]["done runs"]) == (1, 1)


@pytest.mark.parametrize("place", ["app.db", "./app.db", "sqlite://app.db", "app:make"])
def test_store_is_given_by_path_url_or_target(wakeful: Wakeful, db: str, here: Path, place: str) -> None:
    (here / "app.py").write_text(APP.format(tool="refund"))
    sys.modules.pop("app", None)
    assert msgspec.json.decode(wakeful("store", "info", place, "--json").stdout)["counts"]["threads"] == 4


def test_memory_store_has_counts_only(wakeful: Wakeful) -> None:
    found = msgspec.json.decode(wakeful("store", "info", "sample:make", "--json").stdout)
    assert set(found) == {"store", "counts"}


# -- what isn't a store --------------------------------------------------------------------------------------


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE customers (name TEXT)")


def newer(path: Path) -> None:
    asyncio.run(SqliteStore(path).close())
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute("UPDATE meta SET value = '99' WHERE name = 'min_reader'")


def text(path: Path) -> None:
    path.write_text("once upon a time, a long time ago, there was a file that was no database at all\n" * 3)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (foreign, "is another program's database; it was left as it is"),
        (newer, "was written by a newer version of wakeful"),
        (text, "isn't a SQLite database; it was left as it is"),
        (Path.mkdir, "is a folder; give the path of a file"),
    ],
)
@pytest.mark.parametrize("what", ["store info", "store check", "threads list", "store prune"])
def test_foreign_file_is_refused_untouched(
    wakeful: Wakeful, here: Path, make: Callable[[Path], None], said: str, what: str
) -> None:
    make(here / "odd")
    before = (here / "odd").read_bytes() if (here / "odd").is_file() else b""
    assert said in refused(wakeful(*what.split(), "odd"), 1)
    assert ((here / "odd").read_bytes() if (here / "odd").is_file() else b"") == before


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("nowhere.db", "there is no file 'nowhere.db'"),
        ("sqlite://nowhere.db", "there is no file 'nowhere.db'"),
        ("mysql://localhost/x", "postgres://..., not a 'mysql' address"),
        ("nowhere:runtime", "no module named 'nowhere'"),
        ("", "a store's path is empty"),
    ],
)
def test_missing_path_is_named(wakeful: Wakeful, here: Path, place: str, said: str) -> None:
    assert said in refused(wakeful("store", "info", place), 2)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("what", ["info", "check", "prune"])
def test_empty_file_is_refused_untouched(wakeful: Wakeful, here: Path, what: str) -> None:
    (here / "cut.db").touch()
    assert "the file 'cut.db' is empty: it has no store" in refused(wakeful("store", what, "cut.db"), 2)
    assert [(file.name, file.stat().st_size) for file in here.iterdir()] == [("cut.db", 0)]


@pytest.mark.parametrize(
    "place",
    ["postgres:/me:s3same@h/app", "postgres:me:s3same@h/app", "me:s3same@h/app", "host=h password=s3same user=me"],
)
def test_malformed_url_hides_its_password(wakeful: Wakeful, place: str) -> None:
    for words in ("store info", "tickets list"):
        assert "s3same" not in refused(wakeful(*words.split(), place), 2)


def test_unreachable_database_is_reported_in_one_line(wakeful: Wakeful) -> None:
    line = refused(wakeful("store", "info", "postgres://ada:secret@127.0.0.1:1/x"), 1)
    assert "127.0.0.1" in line
    assert "secret" not in line


@pytest.mark.parametrize(
    "what",
    [["export", "app.db", "nobody"], ["delete", "app.db", "nobody"], ["fork", "app.db", "nobody"]],
)
@pytest.mark.parametrize("tenant", [[], ["--tenant", "acme"]])
def test_unknown_thread_is_named(wakeful: Wakeful, db: str, what: list[str], tenant: list[str]) -> None:
    assert "no thread 'nobody' in this store" in refused(wakeful("threads", *what, *tenant), 2)


def test_another_tenants_thread_is_unknown(wakeful: Wakeful, db: str) -> None:
    assert "no thread 'acme-1'" in refused(wakeful("threads", "delete", db, "acme-1"), 2)
    assert lines(wakeful("threads", "delete", db, "acme-1", "--tenant", "acme")) == ["deleted 1 thread"]


# -- check ---------------------------------------------------------------------------------------------------


def test_check_of_healthy_store_says_so(wakeful: Wakeful, db: str) -> None:
    result = wakeful("store", "check", db)
    assert (lines(result), result.exit_code) == (["all is well"], 0)


def test_check_lists_contradictions(wakeful: Wakeful, db: str) -> None:
    with closing(sqlite3.connect(db, isolation_level=None)) as broken:
        broken.execute("UPDATE threads SET head = head - 3 WHERE id = 'old'")
    result = wakeful("store", "check", db)
    assert result.exit_code == 1
    assert lines(result) == ["thread 'old': the log ends at 4, but its last entry is 7"]
    assert msgspec.json.decode(wakeful("store", "check", db, "--json").stdout)["problems"] == lines(result)


@pytest.mark.parametrize(("start", "said"), [(-4096, "the file is damaged: "), (8192, "app.db can't be opened")])
def test_damaged_file_is_reported(wakeful: Wakeful, db: str, start: int, said: str) -> None:
    data = bytearray(Path(db).read_bytes())
    data[start:] = b"\xff" * len(data[start:])
    Path(db).write_bytes(data)
    result = wakeful("store", "check", db)
    assert result.exit_code == 1
    assert said in result.stdout + result.stderr


@pytest.mark.parametrize("arguments", [["app:make"], ["app.db", "--target", "app:make"], ["--target", "app:make"]])
@pytest.mark.parametrize(("name", "code"), [("refund", 0), ("repay", 1)])
def test_check_compares_parked_runs_with_code(
    wakeful: Wakeful, here: Path, arguments: list[str], name: str, code: int
) -> None:
    run_id = asyncio.run(fill("app.db"))
    (here / "app.py").write_text(APP.format(tool=name))
    sys.modules.pop("app", None)
    result = wakeful("store", "check", *arguments)
    assert result.exit_code == code
    if code:
        (line,) = lines(result)
        assert line.startswith(f"thread 'parked': run {run_id} of agent 'clerk' can't go on: tool 'refund'")
        (parked,) = msgspec.json.decode(wakeful("store", "check", *arguments, "--json").stdout)["parked"]
        assert (parked["run_id"], parked["agent_id"]) == (run_id, "clerk")
    else:
        assert lines(result) == ["all is well"]


def test_check_compares_parked_runs_of_all_tenants(wakeful: Wakeful, here: Path) -> None:
    """A check before a deployment covers every tenant, or the named one."""

    async def park() -> None:
        runtime = application("app.db")
        await runtime.tenant("acme").run("clerk", "refund A7", thread="parked")
        await runtime.close()

    asyncio.run(park())
    (here / "app.py").write_text(APP.format(tool="repay"))
    sys.modules.pop("app", None)
    result = wakeful("store", "check", "app:make")
    assert result.exit_code == 1
    (line,) = lines(result)
    assert line.startswith("tenant 'acme', thread 'parked': run ")
    (parked,) = msgspec.json.decode(wakeful("store", "check", "app:make", "--json").stdout)["parked"]
    assert parked["tenant"] == "acme"
    assert wakeful("store", "check", "app:make", "--tenant", "acme").exit_code == 1
    assert wakeful("store", "check", "app:make", "--tenant", "default").exit_code == 0


def test_check_needs_store(wakeful: Wakeful) -> None:
    assert "say which store to check" in refused(wakeful("store", "check"), 2)


# -- prune ---------------------------------------------------------------------------------------------------


def test_prune_defaults_equal_retention_defaults() -> None:
    import inspect

    from wakeful.cli.store import _age, _count, prune

    given = inspect.signature(prune).parameters
    read = {name: _count if name.endswith("_kept") else _age for name in Retention.__struct_fields__}
    assert Retention(**{name: read[name](given[name].default, name) for name in read}) == Retention()


def test_prune_removes_little_by_default(wakeful: Wakeful, db: str) -> None:
    assert lines(wakeful("store", "prune", db)) == ["removed nothing"]


def test_prune_takes_ages_and_counts(wakeful: Wakeful, db: str) -> None:
    pruned = wakeful("store", "prune", db, "--events", "0s", "--runs", "0s", "--json").stdout
    assert msgspec.json.decode(pruned)["runs"] == 3
    assert lines(wakeful("store", "prune", db, "--threads-kept", "1")) == ["removed 1 threads"]
    left = [line.split()[0] for line in lines(wakeful("threads", "list", db))[1:]]
    assert left == ["parent", "parked"]


def test_prune_dry_run_removes_nothing(wakeful: Wakeful, db: str) -> None:
    before = wakeful("store", "info", db, "--json").stdout
    assert lines(wakeful("store", "prune", db, "--runs", "0s", "--dry-run")) == ["would remove 3 runs"]
    assert wakeful("store", "info", db, "--json").stdout == before
    assert "--dry-run is for databases" in refused(wakeful("store", "prune", "sample:make", "--dry-run"), 2)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--events", "30"),
        ("--runs", "soon"),
        ("--threads", "-1d"),
        ("--threads-kept", "1d"),
        ("--runs-kept", "-1"),
    ],
)
def test_prune_refuses_invalid_age_or_count(wakeful: Wakeful, db: str, option: str, value: str) -> None:
    line = refused(wakeful("store", "prune", db, f"{option}={value}"), 2)
    assert line.startswith(option)
    assert repr(value) in line


# -- backup --------------------------------------------------------------------------------------------------


def test_backup_contains_whole_store(wakeful: Wakeful, db: str) -> None:
    assert lines(wakeful("store", "backup", db, "copy.db")) == ["backed up into copy.db"]
    assert wakeful("threads", "list", "copy.db").stdout == wakeful("threads", "list", db).stdout
    assert lines(wakeful("store", "check", "copy.db")) == ["all is well"]


def test_backup_prints_json(wakeful: Wakeful, db: str) -> None:
    (line,) = lines(wakeful("store", "backup", db, "copy.db", "--json"))
    assert msgspec.json.decode(line) == {"file": "copy.db", "bytes": Path("copy.db").stat().st_size}


def test_backup_works_while_store_is_open_elsewhere(wakeful: Wakeful, db: str) -> None:
    with closing(sqlite3.connect(db, isolation_level=None)) as other:
        other.execute("UPDATE threads SET title = 'still in the log' WHERE id = 'old'")
        assert wakeful("store", "backup", db, "copy.db").exit_code == 0
    assert rows("copy.db", "SELECT title FROM threads WHERE id = 'old'") == [("still in the log",)]


def test_backup_overwrites_nothing(wakeful: Wakeful, db: str) -> None:
    Path("copy.db").write_text("precious")
    assert "copy.db is there already" in refused(wakeful("store", "backup", db, "copy.db"), 2)
    assert Path("copy.db").read_text() == "precious"
    assert "folder that doesn't exist" in refused(wakeful("store", "backup", db, "no/copy.db"), 2)


def test_backup_of_store_without_file_names_alternative(wakeful: Wakeful, here: Path) -> None:
    assert "pg_dump" in refused(wakeful("store", "backup", server().url(), "copy.db"), 2)
    assert "in memory" in refused(wakeful("store", "backup", "sample:make", "copy.db"), 2)
    assert not Path("copy.db").exists()


# -- threads -------------------------------------------------------------------------------------------------


def test_threads_are_listed_newest_first(wakeful: Wakeful, db: str) -> None:
    header, *listed = [line.split(maxsplit=4) for line in lines(wakeful("threads", "list", db))]
    assert header == ["THREAD", "UPDATED", "RUN", "TITLE"]
    assert [(line[0], line[3]) for line in listed] == [("parent", "idle"), ("parked", "waiting"), ("old", "idle")]
    assert [line[4:] for line in listed] == [[], ["Refunds [31mof Ada"], []]


def test_threads_are_paged_and_come_as_json(wakeful: Wakeful, db: str) -> None:
    _, *page = [line.split()[0] for line in lines(wakeful("threads", "list", db, "--limit", "2"))]
    assert page == ["parent", "parked"]
    (row,) = lines(wakeful("threads", "list", db, "--before", "parked", "--json"))
    assert msgspec.json.decode(row)["thread"]["id"] == "old"
    assert "no thread 'nobody'" in refused(wakeful("threads", "list", db, "--before", "nobody"), 2)


# -- export and import ---------------------------------------------------------------------------------------


def test_thread_moves_between_stores(wakeful: Wakeful, here: Path) -> None:
    run_id = asyncio.run(fill("app.db"))
    assert lines(wakeful("threads", "export", "app.db", "parked", "t.jsonl")) == [
        "exported thread 'parked' into t.jsonl"
    ]
    assert lines(wakeful("threads", "import", "new.db", "t.jsonl")) == ["imported thread 'parked'"]
    assert lines(wakeful("store", "check", "new.db")) == ["all is well"]

    async def go_on() -> str:
        runtime = application("new.db")
        try:
            (ticket,) = await runtime.tickets.list(run_id, status="open")
            return (await runtime.resume(run_id, ticket.approve())).text
        finally:
            await runtime.close()

    assert asyncio.run(go_on()) == "Done."


def test_export_and_import_work_in_a_pipe(here: Path) -> None:
    asyncio.run(fill("app.db"))
    exported = command("-m", "wakeful.cli", "threads", "export", "app.db", "old", cwd=here)
    assert (exported.returncode, exported.stderr) == (0, "")
    piped = command("-m", "wakeful.cli", "threads", "import", "new.db", "-", cwd=here, input=exported.stdout)
    assert (piped.stdout, piped.stderr, piped.returncode) == ("imported thread 'old'\n", "", 0)
    again = command("-m", "wakeful.cli", "threads", "export", "new.db", "old", cwd=here)
    assert again.stdout == exported.stdout


def test_copy_is_made_under_another_id(wakeful: Wakeful, db: str) -> None:
    wakeful("threads", "export", db, "parked", "t.jsonl")
    assert "thread 'parked' is in this store already" in refused(wakeful("threads", "import", db, "t.jsonl"), 2)
    made = wakeful("threads", "import", db, "t.jsonl", "--as", "copy", "--json")
    assert msgspec.json.decode(made.stdout) == {"thread": "copy"}
    assert lines(wakeful("store", "check", db)) == ["all is well"]


def test_import_of_foreign_file_writes_nothing(wakeful: Wakeful, db: str) -> None:
    wakeful("threads", "export", db, "parked", "t.jsonl")
    whole = Path("t.jsonl").read_bytes()
    Path("t.jsonl").write_bytes(whole[: len(whole) // 2])
    assert refused(wakeful("threads", "import", "new.db", "t.jsonl"), 2).startswith("line ")
    assert wakeful("threads", "list", "new.db").stdout == "no threads\n"
    assert "can't be read" in refused(wakeful("threads", "import", "new.db", "nowhere.jsonl"), 2)


def test_export_overwrites_nothing(wakeful: Wakeful, db: str, here: Path) -> None:
    Path("t.jsonl").write_text("precious")
    assert "t.jsonl is there already" in refused(wakeful("threads", "export", db, "old", "t.jsonl"), 2)
    assert Path("t.jsonl").read_text() == "precious"
    before = set(here.iterdir())
    assert "no thread" in refused(wakeful("threads", "export", db, "nobody", "n.jsonl"), 2)
    assert "can't be written" in refused(wakeful("threads", "export", db, "old", "no/t.jsonl"), 2)
    assert {path for path in set(here.iterdir()) - before if not path.name.startswith("app.db")} == set()


# -- delete and fork -----------------------------------------------------------------------------------------


def test_delete_of_thread_with_children_is_refused(wakeful: Wakeful, db: str) -> None:
    assert "child threads" in refused(wakeful("threads", "delete", db, "parent"), 2)
    gone = wakeful("threads", "delete", db, "parent", "--children", "cascade", "--json")
    assert msgspec.json.decode(gone.stdout) == {"threads": 2}
    assert [line.split()[0] for line in lines(wakeful("threads", "list", db))[1:]] == ["parked", "old"]
    assert wakeful("threads", "delete", db, "old", "--children", "maybe").exit_code == 2


def test_fork_id_is_given_or_generated(wakeful: Wakeful, db: str) -> None:
    assert lines(wakeful("threads", "fork", db, "old", "--at", "2", "--as", "new")) == ["new"]
    assert rows(db, "SELECT head FROM threads WHERE id = 'new'") == [(2,)]
    (made,) = lines(wakeful("threads", "fork", db, "old"))
    assert rows(db, f"SELECT head FROM threads WHERE id = '{made}'") == [(7,)]
    assert "can't be forked at 99" in refused(wakeful("threads", "fork", db, "old", "--at", "99"), 2)
    assert "exists already" in refused(wakeful("threads", "fork", db, "old", "--as", "new"), 2)


# -- Postgres ------------------------------------------------------------------------------------------------


def test_store_commands_work_on_postgres(wakeful: Wakeful, here: Path) -> None:
    url = server().url(database=fresh_database())
    for looked in (("store", "check", url), ("tickets", "list", url), ("workers", "dispatches", url)):
        assert "has no store in the schema 'wakeful', and none was made" in refused(wakeful(*looked), 1)
    asyncio.run(fill(url))
    assert lines(wakeful("store", "check", url)) == ["all is well"]
    found = msgspec.json.decode(wakeful("store", "info", url, "--json").stdout)
    assert (found["version"], found["counts"]["waiting runs"]) == (VERSION, 1)
    assert lines(wakeful("store", "prune", url, "--runs", "0s", "--dry-run")) == ["would remove 3 runs"]
    assert wakeful("threads", "export", url, "parked", "t.jsonl").exit_code == 0
    assert lines(wakeful("threads", "import", url, "t.jsonl", "--as", "copy")) == ["imported thread 'copy'"]
    assert lines(wakeful("threads", "delete", url, "old")) == ["deleted 1 thread"]
    assert [line.split()[0] for line in lines(wakeful("threads", "list", url))[1:]] == ["copy", "parent", "parked"]


def fresh_database() -> str:
    import asyncpg

    name = f"cli_{id(object())}"

    async def create() -> None:
        connection = await asyncpg.connect(server().url())
        await connection.execute(f'CREATE DATABASE "{name}"')
        await connection.close()

    asyncio.run(create())
    return name
