"""The client process of a contender, which executes commands from standard input, one in each line."""

import asyncio
import json
import random
import sys
import time
from collections import defaultdict
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks.workers.setup import Ledger, Queue, Setup

AT_ONCE = 64
TICK = 0.002
LOOK = 0.02


class Driver:
    """Enqueues runs, and follows them by the ledger and the contender's own records."""

    def __init__(self, queue: Queue, ledger: Ledger, calls: int) -> None:
        self._queue = queue
        self._ledger = ledger
        self._calls = calls
        self._made = 0
        self._marks: dict[str, list[float]] = defaultdict(list)

    async def put(self, count: int) -> dict[str, Any]:
        """Enqueue runs, several at once."""
        ids = iter([self._new() for _ in range(count)])

        async def some() -> None:
            for run_id in ids:
                await self._queue.put(run_id)

        start = time.monotonic()
        await asyncio.gather(*[some() for _ in range(AT_ONCE)])
        return {"seconds": time.monotonic() - start}

    async def settle(self, timeout: float) -> dict[str, Any]:
        """Wait until all enqueued runs are durably done and each call was made once; returns start and end."""
        deadline, before = time.monotonic() + timeout, set(self._marks)
        while not self._called():
            self._check(deadline)
            await asyncio.sleep(LOOK)
        called = time.monotonic()
        while await self._queue.done() < self._made:
            self._check(deadline)
            await asyncio.sleep(LOOK / 4)
        at = time.monotonic()
        wrong = {len(marks) for marks in self._marks.values() if len(marks) != self._calls}
        if wrong:
            raise AssertionError(f"runs made {sorted(wrong)} calls, not {self._calls}")
        began = min([min(marks) for run_id, marks in self._marks.items() if run_id not in before])
        return {"began": began, "at": at, "lag": at - called}

    async def latency(self, count: int, seconds: float) -> dict[str, Any]:
        """Enqueue one run at a time without other load.

        Returns the seconds until the first step started, and those after the run was accepted and so durable.
        """
        found, accepted = list[float](), list[float]()
        begin = time.monotonic()
        while len(found) < count and (len(found) < 3 or time.monotonic() - begin < seconds):
            await asyncio.sleep(random.uniform(0.005, 0.05))
            run_id, start = self._new(), time.monotonic()
            await self._queue.put(run_id)
            durable = time.monotonic()
            deadline = start + 30
            while len(self._marks[run_id]) < self._calls:
                self._check(deadline)
                await asyncio.sleep(TICK)
                self._called()
            found.append(min(self._marks[run_id]) - start)
            accepted.append(max(min(self._marks[run_id]) - durable, 0))
        return {"latencies": found, "accepted": accepted}

    def _new(self) -> str:
        self._made += 1
        return f"run-{self._made}"

    def _called(self) -> bool:
        """Whether all calls of all runs were made."""
        for run_id, at in self._ledger.news():
            self._marks[run_id].append(at)
        return len(self._marks) == self._made and sum(map(len, self._marks.values())) >= self._made * self._calls

    def _check(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            calls = sum(map(len, self._marks.values()))
            raise TimeoutError(f"{calls} of {self._made * self._calls} calls were made in time")


async def _serve(name: str, calls: int) -> None:
    setup = Setup.here()
    module = import_module(f"benchmarks.workers.contenders.{name}")
    loop = asyncio.get_running_loop()
    async with module.client(setup) as queue:
        driver = Driver(queue, Ledger(setup.ledger), calls)
        _say({"versions": {package: version(package) for package in module.PACKAGES}})
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            what, args = json.loads(line)
            try:
                _say(await getattr(driver, what)(**args))
            except Exception as error:
                _say({"error": f"{type(error).__name__}: {error}"[:500]})


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
