"""A site on which a test starts, awaits and kills processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from wakeful.stores import Store, open_store
from wakeful.testing import CrashSite
from wakeful.testing.crash import Child, Kill, Launchers, ModelRequested, Sites, read_journal, verify_site
from wakeful.types.calls import Call

DEADLINE = 60.0


class CrashLab:
    """One site and its processes."""

    def __init__(self, sites: Sites, launchers: Launchers, folder: Path, site: CrashSite) -> None:
        self.site = site
        self.folder = site.folder
        self.database = sites.kind
        self._sites = sites
        self._launchers = launchers
        self._workdir = folder

    def start(self, scenario: Callable[[CrashSite], Coroutine[Any, Any, Any]], kill: Kill | None = None) -> Child:
        """Start a process that runs the scenario."""
        name = f"{scenario.__module__}:{scenario.__name__}"
        return self._launchers.start(name, self._workdir, self.site, kill)

    def finish(self, child: Child) -> None:
        """Wait until a process succeeds."""
        assert child.wait(DEADLINE) is None
        assert child.code == 0

    def kill(self, child: Child) -> None:
        """Kill a process with SIGKILL and expire its lease."""
        child.kill()
        self._sites.expire_leases(self.site)

    def hold(self, name: str) -> None:
        """Block a tool at a point."""
        (self.folder / f"hold-{name}").touch()

    def let_go(self, name: str) -> None:
        (self.folder / f"hold-{name}").unlink()

    def reached(self, name: str) -> None:
        """Wait until a tool reaches a point."""
        mark = self.folder / f"{name}-reached"
        until(mark.exists)
        mark.unlink()

    @property
    def asked(self) -> int:
        """The number of model requests."""
        return sum(isinstance(entry, ModelRequested) for entry in read_journal(self._workdir / "journal"))

    def problems(self) -> list[str]:
        """The problems of the store."""
        return verify_site(self._workdir, self.site)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        store = open_store(self.site.store)
        try:
            yield store
        finally:
            await store.close()

    def calls(self, thread_id: str = "t") -> dict[str, Call]:
        """The calls of the thread's last run, by tool name."""

        async def read() -> dict[str, Call]:
            async with self.store() as store:
                thread = await store.thread(thread_id)
                run_id = thread.last_run_id if thread is not None else None
                return {call.name: call for call in await store.calls(run_id)} if run_id else {}

        return asyncio.run(read())

    def answer(self, thread_id: str = "t") -> str:
        """The model's last answer."""

        async def read() -> str:
            async with self.store() as store:
                return (await store.messages(thread_id))[-1].text

        return asyncio.run(read())


def until(condition: Callable[[], bool], deadline: float = DEADLINE) -> float:
    """Wait until a condition holds; returns the elapsed seconds."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < deadline, f"still not so after {deadline:g} s"
        time.sleep(0.005)
    return time.monotonic() - begin
