"""The journal of a crash test: a file in which its processes record starts, commits, kills and model requests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

__all__ = [
    "CommitStarted",
    "Journal",
    "JournalEntry",
    "KillPoint",
    "ModelRequested",
    "ProcessKilled",
    "ProcessStarted",
    "read_journal",
]

KillPoint = Literal["before", "inside", "between", "after"]


class ProcessStarted(Struct, frozen=True, tag="process_started"):
    """A process starts the scenario."""

    pid: int


class CommitStarted(Struct, frozen=True, tag="commit_started"):
    """A process is about to make its n-th commit."""

    commit: int
    description: str


class ProcessKilled(Struct, frozen=True, tag="process_killed"):
    """A process kills itself at a commit."""

    commit: int
    point: KillPoint


class ModelRequested(Struct, frozen=True, tag="model_requested"):
    """A model request: its time in milliseconds and the ids of its last messages."""

    at: int
    messages: tuple[str, ...]


JournalEntry = ProcessStarted | CommitStarted | ProcessKilled | ModelRequested


class Journal:
    """An append-only file; each entry is one write, so several processes may share it."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, entry: JournalEntry) -> None:
        """Append an entry."""
        os.write(self._handle, msgspec.json.encode(entry) + b"\n")


def read_journal(path: Path) -> list[JournalEntry]:
    """Read all entries; a line that a kill cut off is skipped."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=JournalEntry) for line in lines]
