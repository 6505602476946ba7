"""A tour of a few seconds: a tool call, parallel tools, a handoff, a killed process, an approval from another
process, and the events. Everything is in one SQLite file.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process, create_subprocess_exec
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.text import Text

from wakeful import Runtime
from wakeful.events import (
    AnyEvent,
    Handoff,
    InferenceComplete,
    MessageAdded,
    RunFinish,
    ToolCallDone,
    ToolCallReady,
    ToolProgress,
)
from wakeful.types import text_of

from .agents import Bank, make_runtime
from .process import ORDER
from .screen import COLOURS, bar, caption, console, say, seconds, show

DEADLINE = 180


async def a_tool_call(runtime: Runtime) -> None:
    """The model calls a function, reads its result, and answers."""
    async for event in runtime.stream("counter", "How many words has 'to be or not to be'?"):
        match event:
            case ToolCallReady():
                say(f"→ {event.name}({event.arguments})", "cyan")
            case MessageAdded(message=message) if message.role == "tool" and message.reply is not None:
                say(f"← {text_of(message.reply.content)}", "green")
            case MessageAdded(message=message) if message.role == "assistant" and message.text:
                say(message.text, "bold")
            case _:
                pass


async def parallel_tools(runtime: Runtime) -> None:
    """Three timers run at once: their progress interleaves, and the ledger has their actual times."""
    run_id = ""
    async for event in runtime.stream("cook", "Tea, eggs and toast, please."):
        run_id = event.run_id
        match event:
            case ToolProgress(message=name, done=done, total=total):
                say(f"{name:<6} {'●' * (done or 0):<{total}}", COLOURS[name])
            case _:
                pass
    calls = await runtime.runs.calls(run_id)
    begin = min(c.started_at or 0 for c in calls)
    for each in calls:
        say(bar(each, begin), COLOURS[each.arguments["name"]])
    took = (max(c.finished_at or 0 for c in calls) - begin) / 1000
    say(f"{took:.1f} s together; sequentially they would take {sum(map(seconds, calls)):.1f} s", "bold")


class Follower:
    """Reads the order's events from the store and shows them, whichever process runs the order."""

    def __init__(self, runtime: Runtime) -> None:
        self.last: AnyEvent | None = None
        self.middle = ""
        self._begin = 0
        self._events: AsyncIterator[AnyEvent] = runtime.events(ORDER)

    async def until(self, condition: Callable[[AnyEvent], bool]) -> None:
        """Show events up to the first that meets the condition."""
        async for event in self._events:
            self._begin = self._begin or event.at
            if isinstance(event, InferenceComplete) and not self.middle:
                self.middle = event.cursor
            show(event, self._begin)
            if condition(event):
                return


async def a_killed_process(folder: Path, follower: Follower) -> None:
    """Another process runs an order: it charges the customer, sends a letter and looks up the stock, all at once.
    Then the process is killed. These are the order's events, read from the file as they arrive."""
    bank = Bank(folder)
    first = await start_process("work", folder)
    say(f"process {first.pid} runs the order", "bold")
    await follower.until(lambda event: isinstance(event, ToolCallDone) and event.name == "charge")
    while not read_lines(bank.letters):  # noqa: ASYNC110 # The post office is a file, which must be polled.
        await asyncio.sleep(0.02)
    say(f"kill -9 {first.pid}: the letter is sent, but its result isn't committed", "bold red")
    os.kill(first.pid, signal.SIGKILL)
    await first.wait()
    second = await start_process("work", folder)
    say(f"process {second.pid} is started in its place", "bold")
    await follower.until(lambda event: isinstance(event, RunFinish))
    await second.wait()
    charges = bank.charges.read_text().splitlines()
    say(f"the bank's own book has {len(charges)} charge: {charges[0]}", "bold green")


async def an_approval(folder: Path, runtime: Runtime, follower: Follower) -> None:
    """The order waits for a person: no process runs it, and its ticket is in the file. A third process answers."""
    (ticket,) = await runtime.tickets.list(status="open")
    say(f"ticket {ticket.id}: {ticket.message} {ticket.arguments}", "yellow")
    say(f"parcels so far: {len(read_lines(Bank(folder).parcels))}", "yellow")
    third = await start_process("answer", folder)
    say(f"process {third.pid} answers: yes", "bold")
    await follower.until(lambda event: isinstance(event, RunFinish))
    await third.wait()
    say(f"parcels now: {len(read_lines(Bank(folder).parcels))}", "green")
    (run,) = await runtime.runs.list(thread=ORDER)
    ledger = await runtime.runs.ledger(run.id)
    for each in ledger.finished:
        times = "once" if each.attempt == 1 else f"{each.attempt} times, which is harmless"
        say(f"{each.name:<14} finished; it was started {times}", "green")
    for each in ledger.unknown:
        say(f"{each.name:<14} unknown; it was started once, and never again", "yellow")


async def a_handoff(runtime: Runtime) -> None:
    """Another agent takes over the run, with its own model, instructions and tools."""
    async for event in runtime.stream("desk", "Say something in verse."):
        match event:
            case Handoff():
                say(f"{event.from_agent} ⇒ {event.to_agent}", "magenta")
            case MessageAdded(message=message) if message.role == "assistant" and message.text:
                say(f"{event.run.agent_id}: {message.text}", "bold")
            case _:
                pass


async def the_events(runtime: Runtime, follower: Follower) -> None:
    """A reader that left in the middle of the order returns with its cursor and misses nothing."""
    events = [event async for event in runtime.events(ORDER, after=follower.middle, follow=False)]
    say(f"after cursor {follower.middle} there are {len(events)} events, of three processes:", "bold")
    for event in events:
        if isinstance(event, ToolCallDone | RunFinish):
            show(event, events[0].at)


started: list[Process] = []


async def start_process(what: str, folder: Path) -> Process:
    """Start one of the demo's other processes."""
    started.append(await create_subprocess_exec(sys.executable, "-m", "examples.demo.process", what, str(folder)))
    return started[-1]


def read_lines(file: Path) -> list[str]:
    """The lines of a file; none if it doesn't exist yet."""
    return file.read_text().splitlines() if file.exists() else []


async def tour(folder: Path) -> None:
    """Run all parts."""
    async with make_runtime(folder, execute=False) as reader:
        follower = Follower(reader)
        async with make_runtime(folder) as runtime:
            caption("1  A tool call", a_tool_call.__doc__)
            await a_tool_call(runtime)
            caption("2  Parallel tools", parallel_tools.__doc__)
            await parallel_tools(runtime)
            caption("3  A handoff", a_handoff.__doc__)
            await a_handoff(runtime)
        caption("4  A killed process", a_killed_process.__doc__)
        await a_killed_process(folder, follower)
        caption("5  An approval", an_approval.__doc__)
        await an_approval(folder, reader, follower)
        caption("6  The events", the_events.__doc__)
        await the_events(reader, follower)


async def main() -> None:
    """Run the tour in a temporary folder."""
    console.print(Text("wakeful: a scripted model, a real runtime, and one SQLite file", "bold"))
    with TemporaryDirectory() as folder:
        try:
            async with asyncio.timeout(DEADLINE):
                await tour(Path(folder))
        finally:
            for each in started:
                if each.returncode is None:
                    each.kill()


if __name__ == "__main__":
    asyncio.run(main())
