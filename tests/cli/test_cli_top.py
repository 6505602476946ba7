"""`wakeful top`: what is shown of a store, and what its keys do to runs that a worker runs."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import struct
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_process import HERE, Process
from msgspec.structs import replace
from typer.testing import Result

from postgres_server import fresh_database
from wakeful import Runtime, SqliteStore
from wakeful.cli.app import app
from wakeful.cli.top_keys import names_of
from wakeful.cli.top_view import (
    Answer,
    Asking,
    Cancel,
    Quit,
    Review,
    View,
    chosen,
    press,
    refreshed,
    reviewed,
    rows,
)
from wakeful.stores import DeadSeen, Overview, QueueSeen, RunSeen, Tally, TaskSeen, TicketSeen, WorkerSeen
from wakeful.types.runs import Cancelled, NaturalEnd

Wakeful = Callable[..., Result]
Start = Callable[..., Process]


def a_run(number: int, **fields: Any) -> RunSeen:
    made = {"thread_id": f"t{number}", "agent_id": "shop", "status": "running", "stage": "acting", "steps": 1}
    made |= {"tokens": 0, "created_at": 1000, "updated_at": 1000}
    return RunSeen(id=f"r{number}", **{**made, **fields})


def a_ticket(number: int, **fields: Any) -> TicketSeen:
    made = {"thread_id": "t1", "run_id": "r1", "tool": "refund", "message": "May it?", "asked_by": "approval"}
    return TicketSeen(id=f"k{number}", **{**made, "accepts": ("proceed",), "created_at": 1000, **fields})


def a_task(number: int, **fields: Any) -> TaskSeen:
    made = {"name": None, "thread_id": "t1", "run_id": "r1", "agent_id": "helper", "target": f"child{number}"}
    made |= {"background": True, "remote": False, "created_at": 1000}
    return TaskSeen(id=f"task{number}", **{**made, **fields})


def a_view(**fields: Any) -> View:
    seen = {"runs": (a_run(1), a_run(2, agent_id="clerk"), a_run(3)), "tickets": (a_ticket(1), a_ticket(2))}
    return View(Overview(**{"at": 9000, "tenant": "default", **seen, **fields}))


def pressed(view: View, *keys: str) -> View:
    for key in keys:
        view, act = press(view, key)
        assert act is None
    return view


def chosen_id(view: View) -> str | None:
    row = chosen(view)
    return None if row is None else getattr(row, "id", row.thread_id)


# -- keys, without a terminal --------------------------------------------------------------------------------


def test_keys_move_within_and_between_sections() -> None:
    view = a_view()
    assert chosen_id(view) == "r1"
    view = pressed(view, "down", "j")
    assert chosen_id(view) == "r3"
    assert chosen_id(pressed(view, "down")) == "r3"
    assert chosen_id(pressed(view, "up", "k", "up")) == "r1"
    view = pressed(view, "tab")  # There are no tasks.
    assert (view.section, chosen_id(view)) == ("tickets", "k1")
    assert pressed(view, "right").section == "runs"
    assert pressed(view, "left", "left").section == "tickets"


def test_selected_row_stays_selected() -> None:
    view = pressed(a_view(), "down")
    later = refreshed(view, Overview(at=1, tenant="default", runs=(a_run(0), a_run(1), a_run(2))))
    assert chosen_id(later) == "r2"
    gone = refreshed(view, Overview(at=1, tenant="default", runs=(a_run(0),)))
    assert chosen_id(gone) == "r0"
    assert chosen(refreshed(view, Overview(at=1, tenant="default"))) is None


def test_filter_keeps_rows_with_all_words() -> None:
    view = pressed(a_view(), "/", *"Clerk", "backspace", *"k running", "enter")
    assert (view.filter, [row.id for row in rows(view, "runs")]) == ("Clerk running", ["r2"])
    assert chosen_id(view) == "r2"
    assert pressed(view, "escape").filter == ""
    assert pressed(a_view(), "/", *"xyz", "escape").filter == ""


def test_run_is_cancelled_after_confirmation() -> None:
    asking = pressed(a_view(), "down", "c")
    assert asking.asking == Asking("run", "r2")
    assert press(asking, "y")[1] == Cancel("run", "r2")
    for key in ("n", "enter", "escape", "x"):
        left, act = press(asking, key)
        assert (act, left.asking) == (None, None)


def test_tasks_and_dead_letters_are_cancelled_by_id() -> None:
    view = a_view(tasks=(a_task(7),))
    assert press(pressed(view, "tab", "c"), "y")[1] == Cancel("task", "task7")
    dead = DeadSeen(thread_id="t9", run_id="r9", agent_id="shop", attempts=5, dead_at=1, error="x")
    assert press(pressed(a_view(dead=(dead,)), "left", "c"), "y")[1] == Cancel("run", "r9")
    without = DeadSeen(thread_id="t9", run_id=None, agent_id="shop", attempts=5, dead_at=1, error="x")
    assert "choose a run" in pressed(a_view(dead=(without,)), "left", "c").note


def test_only_tickets_are_answered() -> None:
    view = pressed(a_view(), "tab", "down")
    assert press(view, "a")[1] == Review("k2")
    assert press(pressed(view, "d", *"too much"), "enter")[1] == Answer("k2", "deny", "too much")
    assert press(pressed(view, "t", *"Ann q"), "enter")[1] == Answer("k2", "answer", "Ann q")
    assert press(pressed(view, "t"), "enter") == (pressed(view, "t", "enter"), None)
    assert "choose a ticket" in pressed(a_view(), "a").note
    assert "choose a run" in pressed(view, "c").note


def test_call_is_approved_after_review() -> None:
    view = pressed(a_view(), "tab", "down")
    asking = reviewed(view, "k2", ["May refund run?", 'refund {"order":"A7"}'])
    assert press(asking, "y")[1] == Answer("k2", "approve")
    assert drawn(asking)[-3:] == ["May refund run?", 'refund {"order":"A7"}', "approve this call? y/n"]
    for key in ("n", "enter", "escape", "x"):
        left, act = press(asking, key)
        assert (act, left.asking) == (None, None)
    assert reviewed(pressed(view, "up"), "k2", []) == pressed(view, "up")  # Another one was chosen meanwhile.
    typing = pressed(view, "d")
    assert reviewed(typing, "k2", []) == typing


@pytest.mark.parametrize("key", ["q", "ctrl-c", "ctrl-d"])
def test_quit_key_is_ignored_while_typing(key: str) -> None:
    assert press(a_view(), key)[1] == Quit()
    assert press(pressed(a_view(), "/"), key)[1] is None


def test_split_key_sequences_are_recognized() -> None:
    assert names_of("q\x1b[Ax\x1bOB\t\r") == ["q", "up", "x", "down", "tab", "enter"]
    assert names_of("\x7f\x1b[15~é") == ["backspace", "é"]
    assert names_of("\x1b") == ["escape"]


# -- frames --------------------------------------------------------------------------------------------------


def drawn(view: View, height: int | None = None, width: int = 100) -> list[str]:
    from rich.console import Console

    from wakeful.cli.top_frame import frame

    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(frame(view, "app.db", height))
    console.file.close()
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_frame_shows_all_sections() -> None:
    seen = Overview(
        at=100_000,
        tenant="default",
        workers=(
            WorkerSeen(id="w1", state="alive", started_at=40_000, until=120_000, claims=2),
            WorkerSeen(id="w2", state="alive", started_at=40_000, until=120_000, claims=0),
            WorkerSeen(id="w3", state="lost", started_at=40_000, until=0, claims=1),
        ),
        queues=(QueueSeen(tenant="acme", agent_id="shop", waiting=1000, later=3, oldest_at=70_000, more=True),),
        running=Tally(1),
        waiting=Tally(1000, True),
        tickets_open=Tally(1),
        dead_letters=Tally(1),
        runs=(
            a_run(1, worker_id="0123456789ab", updated_at=95_000),
            a_run(2, status="waiting", reason="user_input"),
            a_run(3),
        ),
        tasks=(a_task(1, name="survey"),),
        tickets=(
            a_ticket(1, message="Line\none \x1b[31mred", assignee="ann"),
            a_ticket(2, left="approve", left_by="bob", problem="tool 'refund' is gone"),
        ),
        dead=(DeadSeen(thread_id="t9", run_id=None, agent_id="shop", attempts=5, dead_at=1, error="no luck"),),
    )
    assert drawn(View(seen)) == [
        "wakeful top  app.db  tenant default  1970-01-01 00:01:40Z",
        "2 workers  1,000+ queued  1 running  1,000+ waiting  1 tickets  1 dead",
        "",
        "WORKERS 3",
        "w1  alive  2 claims  up 60s  20s left",
        "w2  idle   0 claims  up 60s  20s left",
        "w3  lost   1 claims  up 60s  over",
        "",
        "QUEUES 1",
        "acme  shop  1,000+ waiting  for 30s  3+ later",
        "",
        "RUNS 3",
        "r1  shop  running     step 1  5s   on …456789ab  t1",
        "r2  shop  user_input  step 1  99s                t2",
        "r3  shop  running     step 1  99s  no worker     t3",
        "",
        "TASKS 1",
        "task1  helper  background  99s  for …r1  survey",
        "",
        "TICKETS 2",
        "k1  refund  99s  with ann  Line one [31mred",
        "k2  refund  99s            (left: approve by bob, can't be taken: tool 'refund' is gone)  May it?",
        "",
        "DEAD LETTERS 1",
        "t9  shop  5 attempts  99s  no luck",
        "",
        "↑↓ move  tab section  c cancel  a approve  d deny  t text  / filter  q quit",
    ]


def test_narrow_frame_keeps_row_identity() -> None:
    ids = [f"0199a8c0-7d3e-7{n:03}-8a6b-3f2e1d0c{n:04}" for n in range(4)]
    run = a_run(
        1, thread_id="customer-4711", worker_id=ids[1], status="waiting", reason="background_tasks", steps=12
    )
    task = a_task(1, name="survey of everything that was ever bought", run_id=ids[0])
    seen = Overview(
        at=100_000,
        tenant="default",
        workers=(WorkerSeen(id=ids[1], state="alive", started_at=40_000, until=120_000, claims=2),),
        runs=(replace(run, id=ids[0]), replace(run, id=ids[2], agent_id="accountant")),
        tasks=(replace(task, id=ids[2]),),
        tickets=(replace(a_ticket(1, message="May it? " * 20), id=ids[3]),),
        dead=(
            DeadSeen(
                thread_id=f"task-{ids[3]}",
                run_id=ids[3],
                agent_id="shop",
                attempts=5,
                dead_at=1,
                error="no luck " * 20,
            ),
        ),
    )
    lines = drawn(View(seen), width=80)
    assert all(len(line) <= 80 for line in lines)
    runs, tasks, tickets, dead = [
        lines[at + 1] for at, line in enumerate(lines) if line.startswith(("RUNS", "TASKS", "TICKETS", "DEAD"))
    ]
    assert runs.split()[:6] == ["…3f2e1d0c0000", "shop", "background_tasks", "step", "12", "99s"]
    assert any("…3f2e1d0c0002" in line and "accountant" in line for line in lines)
    assert [w for w in ("3f2e1d0c0002", "helper", "99s", "survey") if w not in tasks] == []
    assert [w for w in ("3f2e1d0c0003", "refund", "May it?") if w not in tickets] == []
    assert [w for w in ("shop", "5 attempts", "no luck") if w not in dead] == []
    assert dead.count("3f2e1d0c0003") == 2


def test_frame_fits_height_and_shows_selected_row() -> None:
    view = a_view(runs=tuple([a_run(n) for n in range(100)]))
    for _ in range(60):
        view, _act = press(view, "down")
    lines = drawn(view, height=20)
    assert len(lines) <= 20
    assert any(line.startswith("r60 ") for line in lines)
    assert any("RUNS 100" in line and "shown" in line for line in lines)


def test_footer_shows_prompt_and_error() -> None:
    assert drawn(pressed(a_view(), "/", *"shop"))[-1] == "filter> shop"
    assert drawn(pressed(a_view(), "c"))[-1].startswith("cancel run r1 with all it does? y/n")
    trouble = View(a_view().seen, trouble="the store doesn't answer: away")
    assert drawn(trouble)[-1] == "the store doesn't answer: away"


# -- the command ---------------------------------------------------------------------------------------------


def test_top_without_terminal_names_options(wakeful: Wakeful, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    asyncio.run(SqliteStore(path).close())
    done = wakeful("top", str(path))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "give --once for one frame, or --json" in done.stderr


@pytest.mark.parametrize("unwanted", [False, True])
def test_frame_has_colours_unless_disabled(
    wakeful: Wakeful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unwanted: bool
) -> None:
    path = tmp_path / "a.db"
    asyncio.run(SqliteStore(path).close())
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1" if unwanted else "")
    done = wakeful("top", str(path), "--once")
    assert "wakeful top" in done.stdout
    assert ("\x1b[" in done.stdout) is not unwanted


def test_memory_store_cannot_be_watched(wakeful: Wakeful) -> None:
    done = wakeful("top", "sample:make", "--once")
    assert done.exit_code == 2
    assert "in memory, where no other process can look" in done.stderr
    assert wakeful("top").exit_code == 2


def test_top_command_exists() -> None:
    assert "top" in [command.callback.__name__ for command in app.registered_commands if command.callback]


def test_top_json_has_documented_fields(wakeful: Wakeful, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    asyncio.run(SqliteStore(path).close())
    (line,) = wakeful("top", "--store", str(path), "--json").stdout.splitlines()
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text().partition("## `wakeful top`")[2]
    stated = page.partition("\n## ")[0]
    found = json.loads(line)
    assert all(f"`{field}`" in stated for field in found)
    for kind in (WorkerSeen, QueueSeen, RunSeen, TaskSeen, TicketSeen, DeadSeen, Tally):
        assert all(f"`{field}`" in stated for field in kind.__struct_fields__), kind


# -- beside a worker -----------------------------------------------------------------------------------------


class Shop:
    """A store that a worker serves, a runtime that only sends, and `wakeful top` in a terminal."""

    def __init__(self, start: Start, store: str) -> None:
        self.store = store
        self._start = start
        self.ours, self._theirs = pty.openpty()
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 130, 0, 0))

    def work(self) -> Process:
        worker = self._start("worker", "top_sample:runtime", "--store", self.store)
        worker.read_until(" runs ")
        return worker

    def top(self, *options: str) -> Process:
        streams = {"stdin": self._theirs, "stdout": self._theirs, "stderr": self._theirs}
        process = self._start("top", "--store", self.store, "--every", "0.1", "--as", "ann", *options, **streams)
        os.close(self._theirs)  # Else the terminal would outlive the process, and a read would never end.
        return process

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())

    def ask(self, work: Callable[[Runtime], Any]) -> Any:
        import top_sample

        async def inside() -> Any:
            runtime = top_sample.runtime.as_worker(store=self.store, execute=False)
            try:
                return await work(runtime)
            finally:
                await runtime.close()

        return asyncio.run(inside())

    def send(self, text: str, thread: str, agent: str = "shop") -> None:
        self.ask(lambda runtime: runtime.send(thread, text, agent=agent))

    def run_of(self, thread: str) -> Any:
        async def wait(runtime: Runtime) -> Any:
            (run,) = await runtime.runs.list(thread=thread)
            await runtime.wait(run.id)
            return await runtime.runs.get(run.id)

        return self.ask(wait)

    def json(self, wakeful: Wakeful) -> Any:
        return json.loads(wakeful("top", "--store", self.store, "--json").stdout)

    def close(self) -> None:
        os.close(self.ours)


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, start: Start, tmp_path: Path, monkeypatch: Any) -> Iterator[Shop]:
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("TOP_STORE", str(tmp_path / "unused.db"))
    store = fresh_database() if request.param == "postgres" else str(tmp_path / "top.db")
    made = Shop(start, store)
    yield made
    made.close()


@pytest.mark.parametrize("shop", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True)
def test_keys_act_on_runs_of_a_worker(shop: Shop, wakeful: Wakeful) -> None:
    shop.send("block", "blocked")
    shop.send("refund", "refunded")
    worker = shop.work()
    top = shop.top()
    top.read_until("May refund run?", shop.ours)
    top.read_until("on …", shop.ours)
    (seen,) = [one for one in shop.json(wakeful)["workers"] if one["state"] == "alive"]
    assert seen["id"] in worker.output
    assert seen["claims"] == 1

    shop.press("/block\r")
    top.read_until("filter: block", shop.ours)
    shop.press("c")
    top.read_until("with all it does? y/n", shop.ours)
    shop.press("y")
    top.read_until("is cancelled", shop.ours)
    assert shop.run_of("blocked").outcome.termination == Cancelled("cancelled from wakeful top")

    shop.press("\x1b")
    shop.press("\t")
    shop.press("a")
    top.read_until('refund {"order":"A7"}', shop.ours)
    top.read_until("approve this call? y/n", shop.ours)
    assert shop.ask(lambda runtime: _decided(runtime, "refunded")) == []
    shop.press("y")
    top.read_until("waits for a worker that has refund", shop.ours)
    assert isinstance(shop.run_of("refunded").outcome.termination, NaturalEnd)
    shop.press("q")
    assert top.ended(shop.ours) == 0
    decided = shop.ask(lambda runtime: _decided(runtime, "refunded"))
    assert [(one.verdict, one.principal_id) for one in decided] == [("approve", "ann")]


async def _decided(runtime: Runtime, thread: str) -> list[Any]:
    return [
        d
        for ticket in await runtime.tickets.list(thread=thread)
        for d in await runtime.tickets.decisions(ticket.id)
    ]


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_typed_text_and_reason_reach_run(shop: Shop) -> None:
    shop.send("register", "one")
    shop.work()
    top = shop.top()
    top.read_until("What is your name?", shop.ours)
    shop.press("\tt")
    top.read_until("answer>", shop.ours)
    shop.press("Ann\r")
    top.read_until("waits for a worker that has register", shop.ours)
    assert shop.ask(lambda runtime: _answer(runtime, "one")) == "registered Ann"
    shop.send("refund", "two")
    top.read_until("May refund run?", shop.ours)
    shop.press("d")
    top.read_until("deny, because>", shop.ours)
    shop.press("too dear\r")
    top.read_until("waits for a worker that has refund", shop.ours)
    assert "too dear" in shop.ask(lambda runtime: _answer(runtime, "two"))
    shop.press("\x03")
    assert top.ended(shop.ours) == 0
    settings = termios.tcgetattr(shop.ours)
    assert settings[3] & termios.ECHO  # The terminal is as it was.


async def _answer(runtime: Runtime, thread: str) -> str:
    (run,) = await runtime.runs.list(thread=thread)
    return (await runtime.wait(run.id)).text


@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_idle_worker_is_seen_until_it_is_stopped(shop: Shop, wakeful: Wakeful) -> None:
    worker = shop.work()
    (fresh,) = shop.json(wakeful)["workers"]  # It has claimed nothing so far.
    shop.ask(lambda runtime: runtime.run("shop", "hello"))
    (seen,) = shop.json(wakeful)["workers"]
    assert (seen["id"], seen["state"], seen["claims"]) == (fresh["id"], "alive", 0)
    worker.close()
    assert shop.json(wakeful)["workers"] == []


@pytest.mark.long
@pytest.mark.parametrize("shop", ["sqlite"], indirect=True)
def test_delegated_task_can_be_cancelled(shop: Shop, wakeful: Wakeful) -> None:
    shop.send("delegate", "lead", agent="lead")
    shop.work()
    top = shop.top()
    top.read_until("TASKS 1", shop.ours)
    found = shop.json(wakeful)
    (task,) = found["tasks"]
    assert (task["agent_id"], task["thread_id"]) == ("shop", "lead")
    shop.press("\tc")
    top.read_until(f"cancel task {task['id']}", shop.ours)
    shop.press("y")
    top.read_until("is cancelled", shop.ours)
    shop.press("q")
    assert top.ended(shop.ours) == 0
