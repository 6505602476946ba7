"""A site where a test starts processes, waits for what they do, and kills them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from wakeful.stores import Store, open_store
from wakeful.testing import CrashSite
from wakeful.testing._crash import verify
from wakeful.testing._crash_child import Asked, read_journal
from wakeful.testing._crash_processes import Child, Kill, Launchers
from wakeful.testing._crash_sites import Sites
from wakeful.types.runs import Call

DEADLINE = 60.0


class Place:
    """One site, and its processes."""

    def __init__(self, sites: Sites, launchers: Launchers, folder: Path, site: CrashSite) -> None:
        self.site = site
        self.folder = site.folder
        self.database = sites.kind
        self._sites = sites
        self._launchers = launchers
        self._place = folder

    def start(self, scenario: Callable[[CrashSite], Coroutine[Any, Any, Any]], kill: Kill | None = None) -> Child:
        """Start a process that runs the scenario."""
        name = f"{scenario.__module__}:{scenario.__name__}"
        return self._launchers.start(name, self._place, self.site, kill)

    def finish(self, child: Child) -> None:
        """Wait until a process came to its end."""
        assert child.problem(DEADLINE) is None
        assert child.code == 0

    def kill(self, child: Child) -> None:
        """`kill -9`. On Postgres its lease is over, too: nobody waits for that here."""
        child.kill()
        self._sites.bury(self.site)

    def hold(self, name: str) -> None:
        """Hold a tool up where it says so."""
        (self.folder / f"hold-{name}").touch()

    def let_go(self, name: str) -> None:
        (self.folder / f"hold-{name}").unlink()

    def reached(self, name: str) -> None:
        """Wait until a tool got to a place."""
        mark = self.folder / f"{name}-reached"
        until(mark.exists)
        mark.unlink()

    @property
    def asked(self) -> int:
        """How often models were asked."""
        return sum(isinstance(entry, Asked) for entry in read_journal(self._place / "journal"))

    def problems(self) -> list[str]:
        """What is wrong with the store."""
        return verify(self._place, self.site)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        store = open_store(self.site.store)
        try:
            yield store
        finally:
            await store.close()

    def calls(self, thread_id: str = "t") -> dict[str, Call]:
        """The ledger of the thread's last run, by the tools' names."""

        async def read() -> dict[str, Call]:
            async with self.store() as store:
                thread = await store.thread(thread_id)
                run_id = thread.last_run_id if thread is not None else None
                return {call.name: call for call in await store.calls(run_id)} if run_id else {}

        return asyncio.run(read())

    def answer(self, thread_id: str = "t") -> str:
        """The last thing the model said."""

        async def read() -> str:
            async with self.store() as store:
                return (await store.messages(thread_id))[-1].text

        return asyncio.run(read())


def until(condition: Callable[[], bool], deadline: float = DEADLINE) -> float:
    """Wait until something holds; returns how long that took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < deadline, f"still not so after {deadline:g} s"
        time.sleep(0.005)
    return time.monotonic() - begin
