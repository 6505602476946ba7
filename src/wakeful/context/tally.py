"""Running totals over a growing history: its weight, and whether results follow their calls."""

from __future__ import annotations

from collections.abc import Sequence

from ..types.messages import Message
from .tokens import Gauge
from .window import READ_RESULT

__all__ = ["Tally"]


class Tally:
    """Totals over a list of messages. Each message is counted once while the list only grows."""

    __slots__ = (
        "_gauge",
        "_has_user",
        "_is_cached",
        "_last",
        "_messages",
        "_open",
        "_ordered",
        "_seen",
        "heaviest",
        "readable",
        "weight",
    )

    def __init__(self, *, is_cached: bool = True) -> None:
        self._is_cached = is_cached
        self._gauge: Gauge | None = None
        self._messages: Sequence[Message] = ()
        self._reset()

    def _reset(self) -> None:
        self._seen = self.weight = self.heaviest = 0
        self._last: Message | None = None
        self._open: set[str] = set()
        self._ordered = True
        self._has_user = False
        self.readable = False

    def update(self, messages: Sequence[Message], gauge: Gauge) -> Tally:
        """Count the new messages; start over if the list was replaced."""
        seen = self._seen
        if (
            messages is not self._messages
            or gauge is not self._gauge
            or len(messages) < seen
            or self._last_differs()
        ):
            self._messages, self._gauge = messages, gauge
            self._reset()
            seen = 0
        if len(messages) > seen:
            for message in messages[seen:]:
                self._add(message, gauge)
            self._seen, self._last = len(messages), messages[-1]
        return self

    def _last_differs(self) -> bool:
        return self._seen > 0 and self._messages[self._seen - 1] is not self._last

    def _add(self, message: Message, gauge: Gauge) -> None:
        # Messages outside the log are made for each request, so their weight isn't cached.
        is_cached = self._is_cached and message.seq
        weight = gauge.weigh(message) if is_cached else gauge.weigh_uncached(message)
        self.weight += weight
        if message.role == "tool":
            reply = message.reply
            if reply is None or reply.call_id not in self._open:
                self._ordered = False
            else:
                self._open.discard(reply.call_id)
                if weight > self.heaviest and reply.name != READ_RESULT:
                    self.heaviest = weight
            return
        if self._open:
            self._ordered = False
        if message.role == "user":
            self._has_user = True
            if message.covers is not None and READ_RESULT in message.text:
                self.readable = True
        elif message.role == "assistant":
            self._open.update([call.id for call in message.calls])
            self._ordered = self._ordered and self._has_user

    @property
    def is_ordered(self) -> bool:
        """Whether a user message comes first, and results follow directly after their calls."""
        return self._ordered and not self._open
