"""The size of an activation's conversation, and the summary that is being written of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ...context import Gauge, Room, Span, Tally, WindowPolicy, room_of
from ...models import Model, ModelFacts, ModelRequest
from ...types.content import ToolReply
from ...types.messages import Message
from ...types.requests import ModelSettings
from ...types.runs import Usage

__all__ = ["PendingSummary", "WindowState", "find_reply", "page_size"]

_PAGE = 8000


class PendingSummary(Struct, eq=False):
    """A summary that a task is writing of a span of the history."""

    span: Span
    writer: Model
    gauge: Gauge
    offload: int
    task: asyncio.Task[tuple[str, Usage]]


class WindowState:
    """The weight of the conversation, with cached parts, and its pending summary."""

    __slots__ = (
        "_request",
        "_rest",
        "_room",
        "has_copies",
        "has_landed",
        "offers_reader",
        "offload",
        "pending",
        "reader",
        "sent",
        "shows_copies",
        "tally",
        "weight",
    )

    def __init__(self, tally: Tally | None = None) -> None:
        self.tally = tally or Tally()
        self.weight = 0
        # The fitted request; None if it could not be made to fit.
        self.sent: ModelRequest | None = None
        self.offload = 0
        self.pending: PendingSummary | None = None
        # Whether the next request, and the one that is fitted, may offer the tool that reads results.
        self.offers_reader = self.reader = True
        # Whether a summary landed for the present request.
        self.has_landed = False
        # Whether the next request, and the one that is fitted, may have changed copies of the log's messages.
        self.shows_copies = self.has_copies = False
        self._request: ModelRequest | None = None
        self._rest: tuple[ModelRequest, Gauge, int] | None = None
        self._room: tuple[WindowPolicy, ModelSettings, Any, int | None, Room | None] | None = None

    def begin(self, request: ModelRequest) -> None:
        """Start to fit a request; the same request may be fitted twice."""
        if request is not self._request:
            self._request = request
            self.reader, self.offers_reader = self.offers_reader, True
            self.has_copies, self.shows_copies = self.shows_copies, False

    def room(
        self, policy: WindowPolicy, request: ModelRequest, facts: ModelFacts | None, gauge: Gauge
    ) -> Room | None:
        """The room for a request, cached."""
        if (cached := self._room) is not None:
            before, settings, its, refused, room = cached
            if before is policy and settings is request.settings and its is facts and refused == gauge.refused:
                return room
        room = room_of(policy, request.settings, facts, gauge.refused)
        self._room = (policy, request.settings, facts, gauge.refused, room)
        return room

    def rest(self, request: ModelRequest, gauge: Gauge) -> int:
        """The weight of a request without its messages, cached."""
        if (cached := self._rest) is not None and cached[1] is gauge:
            before, _, weight = cached
            if before.tools is request.tools and before.system == request.system:
                return weight
        weight = gauge.weigh_rest(request.system, request.tools, request.output)
        self._rest = (request, gauge, weight)
        return weight

    def cancel(self) -> None:
        """Cancel the pending summary."""
        if self.pending is not None:
            self.pending.task.cancel()


def find_reply(messages: Sequence[Message], call_id: str) -> ToolReply | None:
    """The result of a call among messages, by its id or by its vendor's id."""
    ids = {call_id, *[call.id for m in messages for call in m.calls if call.vendor_id == call_id]}
    found = (message.reply for message in reversed(messages) if message.role == "tool")
    return next((reply for reply in found if reply is not None and reply.call_id in ids), None)


def page_size(window: WindowState | None) -> int:
    """The number of characters of a long result that the model is shown at once."""
    offload = 0 if window is None else window.offload
    return min(_PAGE, offload * 3) if offload else _PAGE
