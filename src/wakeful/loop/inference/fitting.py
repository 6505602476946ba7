"""Fitting requests into a model's window: no request is longer than the model can read, by our count."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from inspect import isawaitable

from msgspec.structs import replace

from ...context import (
    READ_RESULT,
    Gauge,
    Room,
    Tally,
    WindowPolicy,
    is_left_out_note,
    newest_turn,
    pair_results,
    preview,
    room_of,
    truncate,
)
from ...errors import ContextOverflow, ModelError
from ...models import Model, ModelAccess, ModelRequest
from ...types.messages import Message
from ...types.runs import Usage
from ..activation import Activation
from .request import window_of
from .summaries import begin_summary, wait_and_land
from .window import WindowState

__all__ = ["fit", "fits_unmeasured", "learn_weight", "make_room"]


def learn_weight(act: Activation, model: Model, usage: Usage) -> None:
    """Adjust the gauge by the number of tokens that the vendor counted."""
    window = act.window
    if window is not None and window.weight and usage.input_tokens:
        act.env.gauges.get(model).learn(window.weight, usage.input_tokens)


def fits_unmeasured(act: Activation, line: ModelAccess, request: ModelRequest) -> bool:
    """Whether the request can be sent without a look at its size.

    So it is if no limit is known and the messages are in order: a first user message alone, or a history that was
    in order and has only grown.
    """
    policy = act.agent.agent.window
    if policy is None:
        return True
    if act.window is not None or policy.max_tokens is not None or policy.offload is not None:
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


async def fit(act: Activation, line: ModelAccess, request: ModelRequest) -> ModelRequest | None:
    """Make a request fit; most requests fit as they are. None if a summary landed: make the request again."""
    policy = act.agent.agent.window
    if policy is None:
        return request
    window = window_of(act)
    window.begin(request)
    window.sent = None
    window.sent = await _fit(act, window, policy, line, request)
    return window.sent


async def _fit(
    act: Activation, window: WindowState, policy: WindowPolicy, line: ModelAccess, request: ModelRequest
) -> ModelRequest | None:
    gauge = act.env.gauges.get(line.model)
    room = window.room(policy, request, line.facts, gauge)
    messages = request.messages
    if room is None and not policy.offload and messages is act.ordered:
        return request  # There is no limit, and the messages are known to be in order.
    tally = window.tally if messages is act.history else Tally(is_cached=not window.has_copies)
    tally.update(messages, gauge)
    is_clean = tally.is_ordered and not tally.readable
    act.ordered = messages if is_clean else None
    window.offload = room.offload if room is not None else policy.offload or 0
    window.weight = 0 if room is None else window.rest(request, gauge) + tally.weight
    is_short = room is None or gauge.scaled(window.weight) <= room.threshold
    has_long_results = bool(window.offload) and tally.heaviest > window.offload
    if is_clean and is_short and not has_long_results:
        window.has_landed = False
        return request
    return await _Fitter(act, window, policy, line.model, gauge, room).fit(request)


class _Fitter:
    """Makes one request fit."""

    def __init__(
        self,
        act: Activation,
        window: WindowState,
        policy: WindowPolicy,
        model: Model,
        gauge: Gauge,
        room: Room | None,
    ) -> None:
        self.act, self.window, self.policy = act, window, policy
        self.model, self.gauge, self.room = model, gauge, room
        # Weights are cached by id, and a copy has the id of its original.
        self._weigh_whole = gauge.weigh_uncached if window.has_copies else gauge.weigh
        tool = act.agent.tools.get(READ_RESULT)
        self.reader = tool.spec if window.reader and tool is not None and tool.on_demand else None

    async def fit(self, request: ModelRequest) -> ModelRequest | None:
        fitted = self._with_previews(request)
        if (room := self.room) is None:
            return fitted
        tokens = await self._measure(fitted)
        # A request with a new summary is summarised again only if it doesn't fit.
        if tokens > (room.tokens if self.window.has_landed else room.threshold):
            await begin_summary(self.act, self.policy, self.model, self.gauge, room)
        if tokens > room.tokens:
            # A summary is better than a truncated history.
            self.window.has_landed = await wait_and_land(self.act)
            if self.window.has_landed:
                return None
            fitted = self._truncate(fitted, request.messages, room)
            if self.policy.compaction is None and request.messages is self.act.history:
                self._drop_left_out(fitted.messages)
        self.window.has_landed = False
        self.window.weight = self.window.rest(fitted, self.gauge) + self._weight(fitted.messages)
        return fitted

    def _with_previews(self, request: ModelRequest) -> ModelRequest:
        """Put the messages in order, with previews of long results, and the tool that reads them."""
        messages = pair_results(request.messages)
        long = [place for place, message in enumerate(messages) if self._is_long(message)]
        for place in long:
            messages[place] = preview(messages[place], self.window.offload, readable=self.reader is not None)
        request = replace(request, messages=messages)
        if long or any(m.covers is not None and READ_RESULT in m.text for m in messages):
            return self._with_reader(request)
        return request

    def _with_reader(self, request: ModelRequest) -> ModelRequest:
        if self.reader is None or any(spec.name == READ_RESULT for spec in request.tools):
            return request
        return replace(request, tools=(*request.tools, self.reader))

    def _is_long(self, message: Message) -> bool:
        offload = self.window.offload
        if message.role != "tool" or not offload or self._weigh_whole(message) <= offload:
            return False
        return message.reply is not None and message.reply.name != READ_RESULT

    def _weigh(self, message: Message) -> int:
        if not message.seq or self._is_long(message):
            return self.gauge.weigh_uncached(message)  # A preview has the id of the whole message.
        return self._weigh_whole(message)

    def _weight(self, messages: Sequence[Message]) -> int:
        return sum([self._weigh(message) for message in messages])

    async def _measure(self, request: ModelRequest) -> int:
        """Count the request's tokens, with the vendor's counter if it may make a difference."""
        weight = self.window.rest(request, self.gauge) + self._weight(request.messages)
        tokens = self.gauge.scaled(weight)
        count = getattr(self.model, "count_tokens", None)
        if count is None or self.room is None or tokens * 10 < self.room.threshold * 8:
            return tokens
        with suppress(ModelError):  # Our own count is good enough.
            counted = count(request)
            tokens = int(await counted if isawaitable(counted) else counted)
            self.gauge.learn(weight, tokens)
        return tokens

    def _truncate(self, request: ModelRequest, whole: Sequence[Message], room: Room) -> ModelRequest:
        """Leave out the oldest messages; `whole` are the messages without previews."""
        recent = self.policy.min_recent
        limit = self.gauge.unscaled(room.tokens) - self.window.rest(request, self.gauge)
        found = truncate(list(request.messages), self._weigh, limit, recent)
        if not found.fits and request.messages[-1].role == "tool":
            request = self._with_reader(request)
            limit = self.gauge.unscaled(room.tokens) - self.window.rest(request, self.gauge)
            found = truncate(
                self._shorten_results(request.messages, whole, limit), self.gauge.weigh_uncached, limit, recent
            )
        if not found.fits:
            raise ContextOverflow(self._overflow_text(request, room, found.messages))
        return replace(request, messages=found.messages)

    def _drop_left_out(self, shown: Sequence[Message]) -> None:
        """Drop from the history what no later request shows either, since no summary will cover it."""
        whole = {message.id: message for message in self.act.history}
        kept = [whole.get(message.id, message) for message in shown]
        self.act.history = [m for m in kept if m.seq or is_left_out_note(m)]
        self.act.cut = self.act.cut or self.gauge.unscaled(self.room.tokens if self.room is not None else 0)

    def _shorten_results(
        self, messages: Sequence[Message], unshortened: Sequence[Message], limit: int
    ) -> list[Message]:
        """Cut the results of the last step down to what fits."""
        start = len(messages)
        while start and messages[start - 1].role == "tool":
            start -= 1
        share = max(limit // (2 * max(len(messages) - start, 1)), 32)
        whole = {m.id: m for m in unshortened[-2 * (len(messages) - start) :]}

        def shorten(message: Message) -> Message:
            if self.gauge.weigh_uncached(message) <= share:
                return message
            return preview(whole.get(message.id, message), share // 2, readable=self.reader is not None)

        return [*messages[:start], *[shorten(message) for message in messages[start:]]]

    def _overflow_text(self, request: ModelRequest, room: Room, least: Sequence[Message]) -> str:
        scaled, newest = self.gauge.scaled, newest_turn(least)
        weights = [scaled(self.gauge.weigh_uncached(message)) for message in least]
        rest = scaled(self.window.rest(request, self.gauge))
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
    """Learn from a vendor's refusal of a long request, and summarise; returns whether to try again."""
    policy, window = act.agent.agent.window, act.window
    if policy is None or (window is not None and window.sent is None):
        return False
    window = window_of(act)
    gauge = act.env.gauges.get(model)
    weight = gauge.weigh_rest(request.system, request.tools, request.output)
    gauge.refuse(weight + sum([gauge.weigh_uncached(message) for message in request.messages]), str(error))
    room = room_of(policy, request.settings, act.env.registry.models.facts_of(model), gauge.refused)
    if room is not None:
        window.offload = room.offload
        await begin_summary(act, policy, model, gauge, room)
        window.has_landed = await wait_and_land(act)
    return True
