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
    fold,
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
from .summaries import begin_summary, wait_and_land
from .window import WindowState

__all__ = ["fit", "fits_unmeasured", "learn_weight", "make_room", "window_of"]


def window_of(act: Activation) -> WindowState:
    """The activation's window state, created on first use."""
    if act.window is None:
        act.window = WindowState()
    return act.window


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


async def fit(act: Activation, line: ModelAccess, request: ModelRequest) -> ModelRequest:
    """Make a request fit; most requests fit as they are."""
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
) -> ModelRequest:
    gauge = act.env.gauges.get(line.model)
    room = window.room(policy, request, line.facts, gauge)
    messages = request.messages
    if room is None and not policy.offload and messages is act.ordered and not window.landed:
        return request  # There is no limit, and the messages are known to be in order.
    tally = (window.tally if messages is act.history else Tally()).update(messages, gauge)
    is_clean = tally.is_ordered and not tally.readable
    act.ordered = messages if is_clean else None
    window.offload = room.offload if room is not None else policy.offload or 0
    window.weight = 0 if room is None else window.rest(request, gauge) + tally.weight
    is_short = room is None or gauge.scaled(window.weight) <= room.threshold
    has_long_results = bool(window.offload) and tally.heaviest > window.offload
    if is_clean and is_short and not window.landed and not has_long_results:
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
        tool = act.agent.tools.get(READ_RESULT)
        self.reader = tool.spec if window.reader and tool is not None and tool.on_demand else None

    async def fit(self, request: ModelRequest) -> ModelRequest:
        fitted = self._with_previews(request)
        if (room := self.room) is None:
            return fitted
        tokens = await self._measure(fitted)
        if tokens > room.threshold:
            begin_summary(self.act, self.policy, self.model, self.gauge, room)
        # A summary is better than a truncated history.
        while tokens > room.tokens and await wait_and_land(self.act):
            fitted = self._with_previews(request)
            if (tokens := await self._measure(fitted)) > room.tokens:
                begin_summary(self.act, self.policy, self.model, self.gauge, room)
        if tokens > room.tokens:
            fitted = self._truncate(fitted, room)
        self.window.weight = self.window.rest(fitted, self.gauge) + self._weight(fitted.messages)
        return fitted

    def _with_previews(self, request: ModelRequest) -> ModelRequest:
        """Put the messages in order, with summaries, previews of long results, and the tool that reads them."""
        known = {message.id for message in request.messages}
        landed = [summary for summary in self.window.landed if summary.id not in known]
        messages = pair_results(fold([*request.messages, *landed]))
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
        if message.role != "tool" or not offload or self.gauge.weigh(message) <= offload:
            return False
        return message.reply is not None and message.reply.name != READ_RESULT

    def _weigh(self, message: Message) -> int:
        if not message.seq or self._is_long(message):
            return self.gauge.weigh_uncached(message)  # A preview has the id of the whole message.
        return self.gauge.weigh(message)

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

    def _truncate(self, request: ModelRequest, room: Room) -> ModelRequest:
        recent = self.policy.min_recent
        limit = self.gauge.unscaled(room.tokens) - self.window.rest(request, self.gauge)
        found = truncate(list(request.messages), self._weigh, limit, recent)
        if not found.fits and request.messages[-1].role == "tool":
            request = self._with_reader(request)
            limit = self.gauge.unscaled(room.tokens) - self.window.rest(request, self.gauge)
            found = truncate(
                self._shorten_results(request.messages, limit), self.gauge.weigh_uncached, limit, recent
            )
        if not found.fits:
            raise ContextOverflow(self._overflow_text(request, room, found.messages))
        return replace(request, messages=found.messages)

    def _shorten_results(self, messages: Sequence[Message], limit: int) -> list[Message]:
        """Cut the results of the last step down to what fits."""
        start = len(messages)
        while start and messages[start - 1].role == "tool":
            start -= 1
        share = max(limit // (2 * max(len(messages) - start, 1)), 32)
        whole = {m.id: m for m in self.act.history[-2 * (len(messages) - start) :]}

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
        begin_summary(act, policy, model, gauge, room)
        await wait_and_land(act)
    return True
