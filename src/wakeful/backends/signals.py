"""Signals to a running backend: input that steers the run, and answers to its questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..agents import BackendInput
from ..errors import ExecutionFailed
from ..loop import flush, steering_input, supersede_calls, take_input, take_items
from ..types.calls import Call
from ..types.inbox import DecisionItem
from ..types.messages import Message
from .contract import Question
from .outcomes import ask, call_of, check_questions
from .requests import heard_input, shaped

if TYPE_CHECKING:
    from ..loop import Activation

__all__ = ["Signals"]

Writing = Callable[[str], AbstractAsyncContextManager[None]]


class Signals:
    """The input and the answers for one request. `writing` guards commits and refuses them after its end."""

    def __init__(self, act: Activation, writing: Writing) -> None:
        self._act = act
        self._writing = writing
        # Input that the request received before a crash.
        self._again = list(heard_input(act))
        self._arrived = asyncio.Event()
        act.on_inbox = self._look

    def _look(self) -> None:
        """Let every waiting call look at the inbox."""
        self._arrived.set()
        self._arrived = asyncio.Event()

    def close(self) -> None:
        """Close the questions that are still open: the request is over."""
        self._act.on_inbox = None
        for call in tuple(self._act.view.calls.values()):
            self._withdraw(call)
        self._look()

    # -- input -----------------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """Wait for the next input that steers the run."""
        while True:
            arrived = self._arrived
            async with self._writing("receive"):
                message = await self._take_input()
                if message is not None and (message := await shaped(self._act, message)) is not None:
                    return message
            if not self._again and steering_input(self._act) is None:
                await arrived.wait()

    async def _take_input(self) -> Message | None:
        """Take the next input into the conversation."""
        if self._again:
            return self._again.pop(0)
        act = self._act
        if (item := steering_input(act)) is None:
            return None
        act.state.apply([(BackendInput, (act.view.run.steps, item.message.id))])
        await take_input(act, [item])
        return item.message if act.has_taken([item]) else None

    # -- questions -------------------------------------------------------------------------------------------

    async def ask(self, question: Question) -> Message:
        """Open a ticket and wait for its answer; the same question again has the same ticket, or its answer."""
        (question,) = check_questions((question,))
        async with self._writing("ask"):
            call = self._find(question.id)
            if call is None:
                call = await self._open(question)
        try:
            while True:
                arrived = self._arrived
                async with self._writing("ask"):
                    answer = await self._take_answer(call)
                    if answer is not None:
                        answer = await shaped(self._act, answer)
                        if answer is None:
                            raise ExecutionFailed("a hook removed the answer to the backend's question")
                        return answer
                await arrived.wait()
        except BaseException:
            self._withdraw(call)
            raise

    def _find(self, question: str) -> Call | None:
        """The call of a question that was asked before in this request and wasn't withdrawn."""
        for call in reversed(self._act.view.calls.values()):
            if call.arguments.get("question") == question and call.outcome != "superseded":
                return call
        return None

    async def _open(self, question: Question) -> Call:
        act = self._act
        # It runs, unlike a question with which the request ends.
        call = replace(call_of(act, "input_required", question, len(act.view.calls)), attempt=1)
        ask(act, call, question, None)
        await flush(act)
        return call

    async def _take_answer(self, call: Call) -> Message | None:
        """Take the answer to a call's ticket, if it has come."""
        act = self._act
        tickets = {ticket.id for ticket in act.view.tickets.values() if ticket.call_id == call.id}
        items = [item for item in act.view.inbox.values() if isinstance(item, DecisionItem)]
        if items := [item for item in items if item.decision.ticket_id in tickets]:
            await take_items(act, items)
            await flush(act)
        if act.view.calls[call.id].state != "finished":
            return None
        replies = (m for m in reversed(act.history) if m.reply is not None and m.reply.call_id == call.id)
        return next(replies)

    def _withdraw(self, call: Call) -> None:
        """Close a question that has no answer, and its ticket."""
        act = self._act
        if act.view.calls[call.id].state == "finished":
            return
        act.now = act.clock.now()
        supersede_calls(act, [act.view.calls[call.id]], "wasn't answered: the agent continued without it")
        tickets = [ticket for ticket in act.view.tickets.values() if ticket.call_id == call.id]
        act.give_up(tickets, "settled" if act.view.run.cancel is None else "cancelled")
