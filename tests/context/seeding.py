"""Long threads, written straight to a store, and stores that count what is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from wakeful import Message, Text
from wakeful.stores import Commit, Store
from wakeful.types.ids import new_id
from wakeful.types.runs import Identity, NaturalEnd, Outcome, RunRecord

__all__ = ["Reads", "append", "seed"]


async def append(store: Store, texts: Sequence[str], thread: str = "t") -> None:
    """Write messages as one finished run: of the user and of the model, in turn."""
    known, run_id = await store.thread(thread), new_id()
    identity = Identity(run_id, thread, "a", run_id)
    run = RunRecord(
        identity=identity,
        status="done",
        agent_id="a",
        created_at=1,
        started_at=1,
        updated_at=1,
        finished_at=1,
        first_seq=1 + (0 if known is None else known.head),
        outcome=Outcome(NaturalEnd()),
    )
    roles: Any = ("user", "assistant")
    log: list[Any] = [Message(new_id(), roles[n % 2], (Text(text),), 1) for n, text in enumerate(texts)]
    version = 0 if known is None else known.version
    await store.commit(Commit(thread, identity, version=version, claim="w", release=True, runs=[run], log=log))


async def seed(store: Store, count: int, words: str, thread: str = "t") -> None:
    """Write a thread of so many messages, in finished runs of up to 500."""
    for start in range(0, count, 500):
        numbers = range(start, min(start + 500, count))
        await append(store, [f"fact-{number}. {words}" for number in numbers], thread)


class Reads:
    """Counts the messages and bytes that are read from a store."""

    def __init__(self, store: Any) -> None:
        self.rows = self.bytes = 0
        self._read = store.messages
        store.messages = self._messages

    async def _messages(self, *args: Any, **options: Any) -> list[Message]:
        found = await self._read(*args, **options)
        self.rows += len(found)
        self.bytes += len(msgspec.json.encode(found))
        return found

    def take(self) -> tuple[int, int]:
        """The counts since the last call."""
        taken, self.rows, self.bytes = (self.rows, self.bytes), 0, 0
        return taken
