"""Kills during the creation of a SQLite file, and a file that one process opens twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from wakeful.stores import Commit
from wakeful.stores.sqlite import SqliteStore
from wakeful.types.content import Text
from wakeful.types.messages import Message
from wakeful.types.runs import Identity, RunRecord

# Kill a process at each statement of the file's creation, and open the file.
KILLED_WHILE_OPENING = """
import asyncio, os, sqlite3, sys
from pathlib import Path
from wakeful.stores.sqlite import SqliteStore

def opened(path, last):
    if (pid := os.fork()) == 0:
        connect, sent = sqlite3.connect, []
        def traced(*args, **options):
            db = connect(*args, **options)
            db.set_trace_callback(lambda sql: sent.append(sql) or len(sent) < last or os.kill(os.getpid(), 9))
            return db
        sqlite3.connect = traced
        SqliteStore(path)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

async def whole(path):
    store = SqliteStore(path)
    problems = await store.check()
    await store.close()
    return problems

last, done = 0, False
while not done:
    last += 1
    path = Path(sys.argv[1]) / f"{last}.db"
    done = opened(path, last)
    assert asyncio.run(whole(path)) == [], last
print(last)
"""

WRITES = """
import asyncio, sys
from wakeful.stores import Commit, About
from wakeful.stores.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.commit(Commit("from another process", about=About("there")))
    await store.close()

asyncio.run(main())
"""


def python(source: str, *args: object) -> str:
    command = [sys.executable, "-c", source, *[str(arg) for arg in args]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_file_opens_after_its_creator_was_killed(tmp_path: Path) -> None:
    assert int(python(KILLED_WHILE_OPENING, tmp_path)) > 20


async def test_second_open_of_file_keeps_locks_of_first(tmp_path: Path) -> None:
    """Without its locks a process is invisible to others, and the last of them would remove its WAL."""
    path = tmp_path / "app.db"
    first = SqliteStore(path)
    await first.commit(about("before"))
    second = SqliteStore(path)
    await second.commit(about("meanwhile"))
    await second.close()
    await asyncio.to_thread(python, WRITES, path)
    await first.commit(about("after"))
    await asyncio.to_thread(python, WRITES, path)
    assert {thread.id for thread in await first.threads()} == {
        "before",
        "meanwhile",
        "after",
        "from another process",
    }
    assert await first.check() == []
    await first.close()


def about(thread_id: str) -> Commit:
    identity = Identity(thread_id, thread_id, "agent", thread_id)
    record = RunRecord(identity=identity, status="done", agent_id="agent", created_at=1)
    said = Message(f"m-{thread_id}", "user", (Text("hello"),), 1)
    return Commit(thread_id, identity, log=[said], runs=[record], version=0)
