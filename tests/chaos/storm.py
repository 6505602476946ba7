"""One storm: runs are enqueued while seeded faults are injected; then everything settles and is checked."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import asyncpg
from msgspec import Struct

from wakeful import Runtime
from wakeful.errors import StoreError
from wakeful.stores import open_store

from .checks import Findings, examine
from .fleet import Fleet, open_fleet
from .office import KINDS, ShortStore, agents

__all__ = ["Storm", "ride"]

WORKERS = 4
# The faults of the storm, in repeated shuffles, so that each kind comes early and often.
DECK = ("kill", "kill", "kill", "pause", "pause", "restart", "crash", "deaf")


class Storm(Struct, frozen=True, kw_only=True):
    """The runs, seconds and faults of a storm, and the time limit for settling."""

    runs: int
    harm: int
    seconds: float
    seed: int
    takeovers: int
    patience: float = 120.0
    lease: int = 3000
    busy: float = 0.4
    concurrency: int = 16


class Course(Struct):
    """The result of a storm."""

    storm: Storm
    findings: Findings
    harm: dict[str, int]
    revived: int
    seconds: float

    def table(self) -> str:
        """Format the result in a few lines."""
        counts = {
            "runs": self.findings.runs,
            **self.harm,
            "takeovers": self.findings.takeovers,
            "unknown outcomes": self.findings.unknowns,
            "letters": self.findings.letters,
            "answers traced": self.findings.answers,
            "dead letters revived": self.revived,
            "problems": len(self.findings.problems),
        }
        lines = [f"seed {self.storm.seed}, {self.seconds:.0f} s", *[f"{n:<22}{c:>8}" for n, c in counts.items()]]
        return "\n".join(lines)


async def ride(storm: Storm, folder: Path, say: Callable[[str], None] = lambda line: None) -> Course:
    """Run a storm and its checks."""
    begin, problems = time.monotonic(), list[str]()
    async with open_fleet(folder, lease=storm.lease, busy=storm.busy, concurrency=storm.concurrency) as fleet:
        async with Runtime(agents, store=ShortStore(fleet.store), bus=fleet.bus, execute=False) as outside:
            await outside.runs.list(limit=1)  # The tables exist now.
            await fleet.watch()
            for _ in range(WORKERS):
                fleet.start()
            await fleet.ready()
            desk, sent = Desk(outside, fleet.store), dict(work_of(storm))
            answering = asyncio.create_task(desk.answer())
            try:
                await asyncio.gather(harm(storm, fleet, say), desk.hand_in(sent, storm.seconds))
                say("peace")
                async with asyncio.timeout(storm.patience):
                    while left := await desk.left():
                        await asyncio.sleep(0.2)
            except TimeoutError:
                problems.append(f"it didn't settle in {storm.patience:g} s: {left}")
            finally:
                answering.cancel()
                await asyncio.wait([answering])
        store = open_store(fleet.store)
        try:
            found = await examine(store, fleet.store, fleet.bank, sent)
        finally:
            await store.close()
        if found.takeovers < storm.takeovers:
            problems.append(f"there were {found.takeovers} takeovers; fewer than {storm.takeovers} show nothing")
        found.problems = problems + found.problems
        return Course(storm, found, dict(fleet.done), desk.revived, time.monotonic() - begin)


def work_of(storm: Storm) -> Iterator[tuple[str, str]]:
    """Threads, each with its agent."""
    kinds = list(KINDS)
    for number in range(storm.runs):
        agent = kinds[number % len(kinds)]
        yield f"{agent}-{number:05}", agent


async def harm(storm: Storm, fleet: Fleet, say: Callable[[str], None]) -> None:
    """Inject the planned faults over the storm's time; several may overlap."""
    dice, begin = random.Random(storm.seed), time.monotonic()
    deck, under_way = list[str](), list[asyncio.Task[None]]()
    single = {"postgres": asyncio.Lock(), "nats": asyncio.Lock()}
    for number in range(storm.harm):
        at = begin + storm.seconds * (number + dice.random()) / storm.harm
        await asyncio.sleep(max(0, at - time.monotonic()))
        if not deck:
            deck = dice.sample(DECK, len(DECK))
        kind, place, longer = deck.pop(), dice.randrange(WORKERS), dice.uniform(0.5, 2)
        running = [worker for worker in fleet.workers if not worker.paused]
        worker = running[place % len(running)]
        say(f"{time.monotonic() - begin:5.1f} s  {kind}")
        match kind:
            case "kill":
                await fleet.kill(worker)
                continue
            case "pause" if len(running) > 1:
                doing = fleet.pause(worker, storm.lease / 1000 + longer)
            case "restart" | "crash":
                how = signal.SIGINT if kind == "restart" else signal.SIGQUIT
                doing = alone(single["postgres"], fleet.restart_postgres(how))
            case _:
                doing = alone(single["nats"], fleet.without_nats(longer))
        under_way.append(asyncio.create_task(doing))
    await asyncio.gather(*under_way)


async def alone(lock: asyncio.Lock, work: Coroutine[Any, Any, None]) -> None:
    async with lock:
        await work


class Desk:
    """Enqueues runs, answers tickets, and waits until all is done, under the same faults as the workers."""

    def __init__(self, runtime: Runtime, database: str) -> None:
        self._runtime = runtime
        self._database = database
        self._answers: dict[str, asyncio.Task[None]] = {}
        self.revived = 0

    async def hand_in(self, sent: dict[str, str], seconds: float) -> None:
        """Start a run on each thread, spread over some seconds."""
        begin = time.monotonic()
        for number, (thread, agent) in enumerate(sent.items()):
            await asyncio.sleep(max(0, begin + seconds * number / len(sent) - time.monotonic()))
            await stubborn(
                lambda t=thread, a=agent: self._runtime.send(t, f"about {t}", agent=a, request_id=f"request-{t}")
            )

    async def answer(self) -> None:
        """Approve tickets; answer those of unknown outcomes with unknown."""
        while True:
            for ticket in await stubborn(lambda: self._runtime.tickets.list(status="open")):
                if ticket.id not in self._answers:
                    self._answers[ticket.id] = asyncio.create_task(self._decide(ticket))
            await asyncio.sleep(0.2)

    async def _decide(self, ticket: Any) -> None:
        decision = ticket.deny("nobody knows") if ticket.asked_by == "unknown" else ticket.approve()
        await stubborn(lambda: self._runtime.tickets.answer(ticket.id, decision, request_id=f"yes-{ticket.id}"))

    async def left(self) -> dict[str, int]:
        """Count unfinished work. Dead letters are replayed, as an operator would."""
        connection = await asyncpg.connect(self._database, server_settings={"search_path": "wakeful"})
        try:
            rows = await connection.fetch("SELECT status, count(*) FROM runs WHERE status <> 'done' GROUP BY 1")
            waiting = await connection.fetchval("SELECT count(*) FROM dispatches WHERE dead_at IS NULL")
            claimed = await connection.fetchval("SELECT count(*) FROM threads WHERE claim IS NOT NULL")
            dead = await connection.fetch(
                "SELECT t.id FROM dispatches d JOIN threads t ON t.no = d.thread WHERE d.dead_at IS NOT NULL"
            )
        finally:
            await connection.close()
        for row in dead:
            self.revived += await self._runtime.store.revive(row["id"])
        counts = {**dict(rows), "dispatches": waiting, "claimed": claimed, "dead": len(dead)}
        return {name: count for name, count in counts.items() if count}


async def stubborn(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Retry until the store is available."""
    while True:
        try:
            return await work()
        except StoreError:
            await asyncio.sleep(0.2)
