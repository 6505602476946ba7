"""Turns: a prompt becomes a run, which is followed to its end or to questions that the client can't answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing

from msgspec.structs import replace

from ...errors import WakefulError
from ...runtime import TenantRuntime
from ...types.events import AnyEvent
from ...types.runs import Author, Blocked, Cancelled, Failed, NaturalEnd, Stopped, Termination
from ...types.tickets import Decision, Ticket
from ..follow import Followed, Settled, follow
from .client_tools import CLIENT_KINDS, ClientRefused, Requests, run_client_tool
from .content import text_block
from .questions import form_decision, form_of, is_askable, permission_decision, permission_of
from .updates import UpdateEncoder

__all__ = ["Turn", "TurnFailed"]

Item = AnyEvent | Settled | Exception | str

_log = logging.getLogger("wakeful.server")


class TurnFailed(Exception):
    """The run of a turn failed."""


class Turn:
    """Follows one run of a session, and asks the client's user about its tickets, several at once.

    A ticket of another person, or one that the client has no form for, is left to other interfaces: once a run
    waits for nothing else, the turn ends and says what it waits for.
    """

    def __init__(
        self,
        runtime: TenantRuntime,
        client: Requests,
        author: Author,
        session: str,
        *,
        cwd: str,
        can_fill_forms: bool,
    ) -> None:
        self._runtime = runtime
        self._client = client
        self._author = author
        self._session = session
        self._cwd = cwd
        self._can_fill_forms = can_fill_forms
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._left: set[str] = set()
        self._submitted: set[str] = set()

    async def follow(self, run: Followed, encoder: UpdateEncoder, waits: Sequence[Ticket]) -> str:
        """Follow a run that waits for these tickets; returns the stop reason. Raises `TurnFailed`."""
        reader = asyncio.create_task(self._read_events(run))
        try:
            for ticket in waits:
                self._ask(ticket)
            while not self._is_left(waits):
                item = await self._items.get()
                match item:
                    case Exception():
                        raise item
                    case Settled(finish=finish) if finish.status == "done":
                        return _stop_reason(finish.termination)
                    case Settled(tickets=waits):
                        for ticket in waits:
                            self._ask(ticket)
                    case str():
                        pass  # The id of a ticket whose question is over.
                    case _:
                        for update in encoder.encode(item):
                            await self._client.update(self._session, update)
            await self._explain(waits)
            return "end_turn"
        finally:
            tasks = [reader, *self._asking.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _is_left(self, waits: Sequence[Ticket]) -> bool:
        return bool(waits) and all(ticket.id in self._left for ticket in waits)

    async def _read_events(self, run: Followed) -> None:
        try:
            while True:
                async with aclosing(follow(self._runtime, run)) as events:
                    async for event in events:
                        self._items.put_nowait(event)
                        if isinstance(event, Settled):
                            run = replace(run, after=event.finish.cursor)
                            if event.finish.status == "done":
                                return
                            break
                    else:
                        return  # The thread was deleted, or the runtime is closing.
        except Exception as error:
            self._items.put_nowait(error)

    # -- questions -------------------------------------------------------------------------------------------

    def _ask(self, ticket: Ticket) -> None:
        if ticket.id in self._asking or ticket.id in self._left or ticket.id in self._submitted:
            return
        if self._is_for_client(ticket):
            self._asking[ticket.id] = asyncio.create_task(self._answer(ticket))
        else:
            self._left.add(ticket.id)

    def _is_for_client(self, ticket: Ticket) -> bool:
        if ticket.asked_by == "client":
            return ticket.tool in CLIENT_KINDS
        if not is_askable(ticket, self._author):
            return False
        return not ticket.asks_value or (self._can_fill_forms and form_of(ticket, self._session) is not None)

    async def _answer(self, ticket: Ticket) -> None:
        try:
            decision = await self._decision(ticket)
            if decision is not None:
                seen = replace(decision, seen=ticket.digest)
                await self._runtime.tickets.submit(seen, principal=self._author)
            # After a vote that isn't the last one the ticket is for others.
            is_open = decision is None or (ticket.missing > 1 and decision.verdict == "approve")
            (self._left if is_open else self._submitted).add(ticket.id)
        except ClientRefused as error:
            _log.warning("the client didn't take the question of ticket %s: %s", ticket.id, error)
            self._left.add(ticket.id)
        except WakefulError as error:
            self._left.add(ticket.id)
            self._items.put_nowait(error)
        finally:
            self._asking.pop(ticket.id, None)
            self._items.put_nowait(ticket.id)

    async def _decision(self, ticket: Ticket) -> Decision | None:
        if ticket.asked_by == "client":
            try:
                return await run_client_tool(self._client, ticket, self._session, self._cwd)
            except ClientRefused as error:
                return ticket.deny(f"the client refused: {error}")
        if ticket.asks_value and (form := form_of(ticket, self._session)) is not None:
            return form_decision(ticket, await self._client.request("elicitation/create", form))
        asked = permission_of(ticket, self._session)
        return permission_decision(ticket, await self._client.request("session/request_permission", asked))

    async def _explain(self, tickets: Sequence[Ticket]) -> None:
        lines = [f"- {ticket.tool}: {_waits_for(ticket)} (ticket {ticket.id})" for ticket in tickets]
        text = "\n".join(["The run waits for:", *lines])
        chunk = {"sessionUpdate": "agent_message_chunk", "content": text_block(text)}
        await self._client.update(self._session, chunk)


def _waits_for(ticket: Ticket) -> str:
    who = ticket.assignee or " or ".join([f"group:{group}" for group in ticket.groups])
    what = "an answer" if ticket.asks_value else "an approval"
    return f"{what} of {who}" if who else what


def _stop_reason(end: Termination | None) -> str:
    match end:
        case NaturalEnd(truncated=True):
            return "max_tokens"
        case Stopped():
            return "max_turn_requests"
        case Blocked():
            return "refusal"
        case Cancelled():
            return "cancelled"
        case Failed():
            raise TurnFailed(f"the run failed: {end.text}")
        case _:
            return "end_turn"
