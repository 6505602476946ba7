"""`wakeful top`: workers, queues, runs, tasks and tickets of a store."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer
from msgspec.structs import replace
from rich.console import Console
from rich.live import Live

from ..errors import StoreError, UsageError, WakefulError, explain
from ..runtime import Runtime, TenantRuntime
from ..stores import Overview
from ..types.codec import encode
from ..types.tickets import Decision, Ticket
from .exit_codes import reported
from .locations import PLACE, Json, Tenant, runtime_of, with_runtime
from .prompts import decider, read_value
from .render import Renderer, colors
from .text import arguments_text, one_line, plain
from .top_frame import frame
from .top_view import Act, Answer, Cancel, Quit, Review, View, press, refreshed, reviewed

__all__ = ["top"]

_WHY = "cancelled from wakeful top"
_MOST_LINES = 20


def top(
    place: Annotated[str | None, typer.Argument(metavar="STORE", help=PLACE, show_default=False)] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="Another store than the runtime's.")] = None,
    tenant: Tenant = None,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    json: Json = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="S", help="Seconds between two looks.")] = 1.0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many of each kind at most.")] = 50,
    who: Annotated[
        str | None, typer.Option("--as", metavar="WHO", help="Who answers tickets; the user of this shell.")
    ] = None,
) -> None:
    """Watch a store: workers, queues, runs, tasks, tickets; cancel and answer there.

    It reads the store and executes nothing: workers carry out cancellations and
    answers. --once and --json are for scripts.
    """
    with reported(Renderer()):
        runtime = _opened(place, store)
        if not once and not json and not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError(
                "wakeful top draws on a terminal, and this isn't one; give --once for one frame, or --json"
            )
        if once or json:
            seen = with_runtime(runtime, tenant, lambda opened: look(opened, limit))
            if json:
                typer.echo(encode(seen))
            else:
                Console(highlight=False, color_system=colors()).print(frame(View(seen), _place_of(runtime)))
            return
        with_runtime(runtime, tenant, lambda opened: Top(opened, limit, every, who).run())


def _opened(place: str | None, store: str | None) -> Runtime:
    """A runtime that executes nothing, on the store to watch."""
    if place is None and store is None:
        raise UsageError("say what to look at: wakeful top app:runtime, or wakeful top --store postgres://...")
    if place is None or store is None:
        runtime = runtime_of(place or store or "").as_worker(execute=False)
    else:
        runtime = runtime_of(place).as_worker(store=store, execute=False)
    if not hasattr(runtime.store, "overview"):
        raise UsageError(
            "this runtime keeps its threads in memory, where no other process can look; give it a store that "
            "processes share, or name one: --store app.db, --store postgres://user@host/database"
        )
    return runtime


def _place_of(runtime: TenantRuntime) -> str:
    store: Any = runtime.store
    return str(getattr(store, "path", None) or getattr(store, "location", None) or repr(store))


async def look(runtime: TenantRuntime, limit: int) -> Overview:
    """Read an overview of the store."""
    store: Any = runtime.store
    return await store.overview(limit=limit)


class Top:
    """The live view: polls the store and handles keys."""

    def __init__(self, runtime: TenantRuntime, limit: int, every: float, who: str | None) -> None:
        self._runtime = runtime
        self._limit = limit
        self._every = every
        self._who = who
        self._place = _place_of(runtime)
        self._view: View
        self._changed = asyncio.Event()
        self._jobs: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Show the view until the person quits."""
        from .top_keys import Keys  # Needs a POSIX terminal, which --once and --json don't.

        self._view = View(await look(self._runtime, self._limit))
        console = Console(highlight=False)  # With NO_COLOR the chosen row is still reversed.
        looking = asyncio.create_task(self._look())
        try:
            with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
                drawing = asyncio.create_task(self._draw(console, live))
                try:
                    async for key in keys:
                        if not self._press(key):
                            return
                finally:
                    drawing.cancel()
                    await asyncio.gather(drawing, return_exceptions=True)
        finally:
            for task in (looking, *self._jobs):
                task.cancel()
            await asyncio.gather(looking, *self._jobs, return_exceptions=True)

    def _press(self, key: str) -> bool:
        view, act = press(self._view, key)
        self._show(view)
        if isinstance(act, Quit):
            return False
        if act is not None:
            job = asyncio.get_running_loop().create_task(self._do(act))
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)
        return True

    def _show(self, view: View) -> None:
        self._view = view
        self._changed.set()

    async def _draw(self, console: Console, live: Live) -> None:
        while True:
            live.update(frame(self._view, self._place, console.height), refresh=True)
            await self._changed.wait()
            self._changed.clear()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            await self._look_once()

    async def _look_once(self) -> None:
        try:
            self._show(refreshed(self._view, await look(self._runtime, self._limit)))
        except StoreError as error:
            self._show(replace(self._view, trouble=f"the store doesn't answer: {explain(error)}"))

    async def _do(self, act: Act) -> None:
        try:
            match act:
                case Cancel():
                    name = f"{act.kind} {act.id}"
                    self._note(f"cancelling {name}: whoever runs it is told")
                    done = await self._cancel(act)
                    self._note(f"{name} is cancelled" if done else f"{name} was done before")
                case Review():
                    ticket = await self._ticket(act.ticket_id)
                    self._show(reviewed(self._view, ticket.id, _call_lines(ticket)))
                    return
                case Answer():
                    ticket = await self._runtime.tickets.submit(
                        await self._decision(act), principal=decider(self._who)
                    )
                    self._note(f"the answer to {ticket.id} waits for a worker that has {ticket.tool}")
                case Quit():
                    return
            await self._look_once()
        except WakefulError as error:
            self._note(explain(error))

    async def _cancel(self, act: Cancel) -> bool:
        if act.kind == "run":
            return await self._runtime.cancel(act.id, _WHY)
        return await (await self._runtime.tasks.get(act.id)).cancel(_WHY)

    def _note(self, text: str) -> None:
        self._show(replace(self._view, note=text))

    async def _decision(self, act: Answer) -> Decision:
        return _decided(await self._ticket(act.ticket_id), act)

    async def _ticket(self, ticket_id: str) -> Ticket:
        ticket = await self._runtime.store.ticket(ticket_id)
        if ticket is None:
            raise UsageError(f"ticket {ticket_id} is gone")
        return ticket


def _call_lines(ticket: Ticket) -> list[str]:
    """A ticket's question and its call with arguments, for the decider."""
    lines = [one_line(ticket.message), *f"{plain(ticket.tool)} {arguments_text(ticket.arguments)}".splitlines()]
    if len(lines) <= _MOST_LINES:
        return lines
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"… {more} more lines; `wakeful tickets show` has all of them"]


def _decided(ticket: Ticket, act: Answer) -> Decision:
    match act.how:
        case "approve":
            return ticket.approve()
        case "deny":
            return ticket.deny(act.text)
        case "answer":
            try:
                return ticket.answer(read_value(act.text, ticket.schema))
            except ValueError as error:
                raise UsageError(str(error)) from error
