"""Fitting requests into a model's window: what is sent is never longer than the model can read, as we count."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..context import (
    READ_RESULT,
    Context,
    Gauge,
    Room,
    Tally,
    fold,
    mended,
    newest_turn,
    preview,
    room_of,
    truncate,
)
from ..errors import ContextOverflow, ModelError
from ..models import Line, Model, ModelFacts, ModelRequest
from ..types.content import ToolReply
from ..types.messages import Message
from ..types.requests import ModelSettings
from ..types.runs import Usage
from ._summaries import Writing, begin_summary, summary_landed

if TYPE_CHECKING:
    from ._activation import Activation

__all__ = ["Fitting", "find_reply", "fit", "fits", "fitting_of", "learn", "make_room", "page_size"]

_PAGE = 8000


class Fitting:
    """What an activation knows of its conversation's size, and the summary that is being written."""

    __slots__ = (
        "_request",
        "_rest",
        "_room",
        "landed",
        "offers_reader",
        "offload",
        "reader",
        "sent",
        "tally",
        "weight",
        "writing",
    )

    def __init__(self) -> None:
        self.tally = Tally()
        self.weight = 0
        # What is sent; None if it could not be made to fit.
        self.sent: ModelRequest | None = None
        self.offload = 0
        self.writing: Writing | None = None
        # Whether the request that is made next, and the one that is fitted, may offer the tool that reads results.
        self.offers_reader = self.reader = True
        # The summaries that landed since the request was made: it doesn't have them yet.
        self.landed: list[Message] = []
        self._request: ModelRequest | None = None
        self._rest: tuple[ModelRequest, Gauge, int] | None = None
        self._room: tuple[Context, ModelSettings, Any, int | None, Room | None] | None = None

    def begin(self, request: ModelRequest) -> None:
        """A request is to be fitted, perhaps for the second time."""
        if request is not self._request:
            self._request = request
            self.landed.clear()
            self.reader, self.offers_reader = self.offers_reader, True

    def room(self, policy: Context, request: ModelRequest, facts: ModelFacts | None, gauge: Gauge) -> Room | None:
        """The room for the request."""
        if (known := self._room) is not None:
            before, settings, its, refused, room = known
            if before is policy and settings is request.settings and its is facts and refused == gauge.refused:
                return room
        room = room_of(policy, request.settings, facts, gauge.refused)
        self._room = (policy, request.settings, facts, gauge.refused, room)
        return room

    def rest(self, request: ModelRequest, gauge: Gauge) -> int:
        """What a request weighs besides its messages."""
        if (known := self._rest) is not None and known[1] is gauge:
            before, _, weight = known
            if before.tools is request.tools and before.system == request.system:
                return weight
        weight = gauge.weigh_rest(request.system, request.tools, request.output)
        self._rest = (request, gauge, weight)
        return weight

    def cancel(self) -> None:
        """Let go of a summary that is being written."""
        if self.writing is not None:
            self.writing.task.cancel()


def fitting_of(act: Activation) -> Fitting:
    """What the activation knows of its conversation's size."""
    if act.fitting is None:
        act.fitting = Fitting()
    return act.fitting


def learn(act: Activation, model: Model, usage: Usage) -> None:
    """Take note of how many tokens the vendor counted."""
    own = act.fitting
    if own is not None and own.weight and usage.input_tokens:
        act.env.gauges.of(model).learn(own.weight, usage.input_tokens)


def fits(act: Activation, line: Line, request: ModelRequest) -> bool:
    """Whether the request can be sent as it is, without a look at its size: there is nothing to count for, and the
    messages are in order, being the first one alone or what the loop made of a history that was."""
    policy = act.agent.agent.context
    if policy is None:
        return True
    if act.fitting is not None or policy.max_tokens is not None or policy.offload is not None:
        return False
    if (facts := line.facts) is not None and facts.context_window is not None:
        return False
    messages = request.messages
    if messages is not act.ordered:
        if len(messages) != 1 or messages[0].role != "user" or messages[0].covers is not None:
            return False
        act.ordered = messages
    known = act.env.gauges.known
    return not known or (gauge := known.get(line.model.name)) is None or gauge.refused is None


async def fit(act: Activation, line: Line, request: ModelRequest) -> ModelRequest:
    """The request as it may be sent; most of the time that is the request itself."""
    policy = act.agent.agent.context
    if policy is None:
        return request
    own = fitting_of(act)
    own.begin(request)
    own.sent = None
    own.sent = await _fitted(act, own, policy, line, request)
    return own.sent


async def _fitted(
    act: Activation,
    own: Fitting,
    policy: Context,
    line: Line,
    request: ModelRequest,
) -> ModelRequest:
    gauge = act.env.gauges.of(line.model)
    room = own.room(policy, request, line.facts, gauge)
    messages = request.messages
    if room is None and not policy.offload and messages is act.ordered and not own.landed:
        return request  # There is nothing to count for, and the loop keeps its own messages in order.
    tally = own.tally.over(messages, gauge) if messages is act.history else Tally().over(messages, gauge)
    act.ordered = messages if tally.ordered and not tally.readable else None
    own.offload = room.offload if room is not None else policy.offload or 0
    own.weight = 0 if room is None else own.rest(request, gauge) + tally.weight
    as_it_is = tally.ordered and not tally.readable and not own.landed
    short = room is None or gauge.scaled(own.weight) <= room.threshold
    if as_it_is and short and (not own.offload or tally.heaviest <= own.offload):
        return request
    return await _Shaping(act, own, policy, line.model, gauge, room).shape(request)


class _Shaping:
    """Makes one request fit."""

    def __init__(
        self, act: Activation, own: Fitting, policy: Context, model: Model, gauge: Gauge, room: Room | None
    ) -> None:
        self.act, self.own, self.policy = act, own, policy
        self.model, self.gauge, self.room = model, gauge, room
        tool = act.agent.tools.get(READ_RESULT)
        self.reader = tool.spec if own.reader and tool is not None and tool.on_demand else None

    async def shape(self, request: ModelRequest) -> ModelRequest:
        shown = self._viewed(request)
        if (room := self.room) is None:
            return shown
        tokens = await self._measure(shown)
        if tokens > room.threshold:
            begin_summary(self.act, self.policy, self.model, self.gauge, room)
        # What doesn't fit is better summarised than left out.
        while tokens > room.tokens and await summary_landed(self.act):
            shown = self._viewed(request)
            if (tokens := await self._measure(shown)) > room.tokens:
                begin_summary(self.act, self.policy, self.model, self.gauge, room)
        if tokens > room.tokens:
            shown = self._truncated(shown, room)
        self.own.weight = self.own.rest(shown, self.gauge) + self._weight(shown.messages)
        return shown

    def _viewed(self, request: ModelRequest) -> ModelRequest:
        """The request in order, with summaries in place, previews of long results, and a tool to read them on."""
        known = {message.id for message in request.messages}
        landed = [summary for summary in self.own.landed if summary.id not in known]
        messages = mended(fold([*request.messages, *landed]))
        long = [place for place, message in enumerate(messages) if self._too_long(message)]
        for place in long:
            messages[place] = preview(messages[place], self.own.offload, readable=self.reader is not None)
        request = replace(request, messages=messages)
        if long or any(m.covers is not None and READ_RESULT in m.text for m in messages):
            return self._with_reader(request)
        return request

    def _with_reader(self, request: ModelRequest) -> ModelRequest:
        if self.reader is None or any(spec.name == READ_RESULT for spec in request.tools):
            return request
        return replace(request, tools=(*request.tools, self.reader))

    def _too_long(self, message: Message) -> bool:
        if message.role != "tool" or not self.own.offload or self.gauge.weigh(message) <= self.own.offload:
            return False
        return message.reply is not None and message.reply.name != READ_RESULT

    def _weigh(self, message: Message) -> int:
        if not message.seq or self._too_long(message):
            return self.gauge.weigh_anew(message)  # A preview has the id of the whole.
        return self.gauge.weigh(message)

    def _weight(self, messages: Sequence[Message]) -> int:
        return sum([self._weigh(message) for message in messages])

    async def _measure(self, request: ModelRequest) -> int:
        """The request's tokens; the vendor's own count where the model offers one and it may matter."""
        weight = self.own.rest(request, self.gauge) + self._weight(request.messages)
        tokens = self.gauge.scaled(weight)
        count = getattr(self.model, "count_tokens", None)
        if count is None or self.room is None or tokens * 10 < self.room.threshold * 8:
            return tokens
        with suppress(ModelError):  # Then it is as we count.
            counted = count(request)
            tokens = int(await counted if isawaitable(counted) else counted)
            self.gauge.learn(weight, tokens)
        return tokens

    def _truncated(self, request: ModelRequest, room: Room) -> ModelRequest:
        recent = self.policy.min_recent
        most = self.gauge.unscaled(room.tokens) - self.own.rest(request, self.gauge)
        found = truncate(list(request.messages), self._weigh, most, recent)
        if not found.fits and request.messages[-1].role == "tool":
            request = self._with_reader(request)
            most = self.gauge.unscaled(room.tokens) - self.own.rest(request, self.gauge)
            found = truncate(self._squeezed(request.messages, most), self.gauge.weigh_anew, most, recent)
        if not found.fits:
            raise ContextOverflow(self._why(request, room, found.messages))
        return replace(request, messages=found.messages)

    def _squeezed(self, messages: Sequence[Message], most: int) -> list[Message]:
        """The messages with the results of the last step cut down to what fits."""
        start = len(messages)
        while start and messages[start - 1].role == "tool":
            start -= 1
        share = max(most // (2 * max(len(messages) - start, 1)), 32)
        whole = {m.id: m for m in self.act.history[-2 * (len(messages) - start) :]}

        def squeezed(message: Message) -> Message:
            if self.gauge.weigh_anew(message) <= share:
                return message
            return preview(whole.get(message.id, message), share // 2, readable=self.reader is not None)

        return [*messages[:start], *[squeezed(message) for message in messages[start:]]]

    def _why(self, request: ModelRequest, room: Room, least: Sequence[Message]) -> str:
        scaled, newest = self.gauge.scaled, newest_turn(least)
        weights = [scaled(self.gauge.weigh_anew(message)) for message in least]
        rest = scaled(self.own.rest(request, self.gauge))
        users = 0 if newest is None else weights[newest]
        parts = [f"instructions and tools {rest:,}"] if rest else []
        parts += [f"the newest user message {users:,}"]
        parts += [f"other messages {sum(weights) - users:,}"] if len(least) > 1 else []
        return (
            f"the request doesn't fit into {self.model.name!r}, which has room for {room.tokens:,} tokens: what "
            f"can't be left out has about {rest + sum(weights):,} ({', '.join(parts)}); give it shorter input or "
            "fewer tools, or the agent a model with a larger window"
        )


async def make_room(act: Activation, model: Model, request: ModelRequest, error: Exception) -> bool:
    """The vendor called the request too long: learn from it, and summarise what can be. Whether to try again."""
    policy, own = act.agent.agent.context, act.fitting
    if policy is None or (own is not None and own.sent is None):
        return False
    own = fitting_of(act)
    gauge = act.env.gauges.of(model)
    weight = gauge.weigh_rest(request.system, request.tools, request.output)
    gauge.refuse(weight + sum([gauge.weigh_anew(message) for message in request.messages]), str(error))
    room = room_of(policy, request.settings, act.env.registry.models.facts_of(model), gauge.refused)
    if room is not None:
        own.offload = room.offload
        begin_summary(act, policy, model, gauge, room)
        await summary_landed(act)
    return True


def find_reply(messages: Sequence[Message], call_id: str) -> ToolReply | None:
    """The result of a call, if it is among these messages: by its id, or by the one that its vendor gave it."""
    ids = {call_id, *[call.id for m in messages for call in m.calls if call.vendor_id == call_id]}
    found = (message.reply for message in reversed(messages) if message.role == "tool")
    return next((reply for reply in found if reply is not None and reply.call_id in ids), None)


def page_size(act: Activation) -> int:
    """How many characters of a long result the model is shown at once."""
    offload = 0 if act.fitting is None else act.fitting.offload
    return min(_PAGE, offload * 3) if offload else _PAGE
