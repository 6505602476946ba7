"""A store that takes its time, as real ones do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from wakeful import MemoryStore
from wakeful.stores import Commit, Committed

T = TypeVar("T")


async def _slowly(work: Awaitable[T]) -> T:
    await asyncio.sleep(0)
    found = await work
    await asyncio.sleep(0)
    return found


class SlowStore(MemoryStore):
    """Lets others run before and after everything it does. A commit that was begun can't be interrupted."""

    async def commit(self, commit: Commit) -> Committed:
        work = asyncio.ensure_future(_slowly(super().commit(commit)))
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                continue
            except Exception:
                break
        return work.result()

    async def load(self, *args: Any, **options: Any) -> Any:
        return await _slowly(super().load(*args, **options))

    async def messages(self, *args: Any, **options: Any) -> Any:
        return await _slowly(super().messages(*args, **options))

    async def run(self, *args: Any, **options: Any) -> Any:
        return await _slowly(super().run(*args, **options))

    async def tickets(self, *args: Any, **options: Any) -> Any:
        return await _slowly(super().tickets(*args, **options))
