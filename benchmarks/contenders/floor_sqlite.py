"""Floor: a hand-written loop with one bare SQLite transaction for each turn."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from benchmarks.contenders import _floor_stores as floor
from benchmarks.long_threads import LongThread
from benchmarks.measures import Durable, Plan, Tally, Turn

PACKAGES = ("msgspec",)

_TABLES = """
CREATE TABLE IF NOT EXISTS runs (no INTEGER PRIMARY KEY, payload BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS messages (run INTEGER, seq INTEGER, payload BLOB NOT NULL, PRIMARY KEY (run, seq));
"""
_RUN = "INSERT INTO runs VALUES (?, ?) ON CONFLICT (no) DO UPDATE SET payload = excluded.payload"
_MESSAGE = "INSERT INTO messages VALUES (?, ?, ?)"
_NEWEST = "SELECT payload FROM messages WHERE run = ? ORDER BY seq DESC LIMIT ?"


def _open(address: str, synchronous: str) -> sqlite3.Connection:
    db = sqlite3.connect(address, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {synchronous}")
    db.executescript(_TABLES)
    return db


def _save(db: sqlite3.Connection) -> floor.Save:
    async def save(run: int, first: int, messages: list[bytes], row: bytes) -> None:
        db.execute("BEGIN IMMEDIATE")
        db.executemany(_MESSAGE, [(run, seq, message) for seq, message in enumerate(messages, first)])
        db.execute(_RUN, (run, row))
        db.execute("COMMIT")

    return save


def _load(db: sqlite3.Connection) -> floor.Load:
    async def load(run: int, newest: int) -> list[bytes]:
        return [payload for (payload,) in reversed(db.execute(_NEWEST, (run, newest)).fetchall())]

    return load


@asynccontextmanager
async def durable(plan: Plan, tally: Tally, address: str, synchronous: str = "FULL") -> AsyncIterator[Durable]:
    with closing(_open(address, synchronous)) as db:
        yield Durable(floor.runs(plan, tally, _save(db)))


def relaxed(plan: Plan, tally: Tally, address: str):
    return durable(plan, tally, address, "NORMAL")


@asynccontextmanager
async def growth(plan: Plan, tally: Tally, address: str) -> AsyncIterator[Turn]:
    with closing(_open(address, "FULL")) as db:
        yield floor.turns(plan, tally, _save(db), _load(db))


@asynccontextmanager
async def long_thread(plan: Plan, tally: Tally, address: str, messages: int) -> AsyncIterator[LongThread]:
    with closing(_open(address, "FULL")) as db:
        yield await floor.long_thread(plan, tally, _save(db), _load(db), messages)
