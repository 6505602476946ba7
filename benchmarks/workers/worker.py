"""The worker process of contenders without a command of their own."""

import asyncio
import signal
import sys
from importlib import import_module

from benchmarks.workers.setup import Ledger, Setup


async def main() -> None:
    name, setup = sys.argv[1], Setup.here()
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    module = import_module(f"benchmarks.workers.contenders.{name}")
    async with module.worker(setup, Ledger(setup.ledger)):
        print(f"worker of {name}", flush=True)
        await told.wait()


if __name__ == "__main__":
    asyncio.run(main())
