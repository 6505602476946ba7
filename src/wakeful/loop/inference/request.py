"""The model and the request of a step: as the agent defines them, or as `before_inference` hooks shape them."""

from __future__ import annotations

from collections.abc import Sequence

from ...context import READ_RESULT
from ...models import Model, ModelRequest
from ...plugins import (
    BeforeInference,
    ContextMessage,
    InferencePlan,
    PendingContext,
    PendingContextKey,
    PlanEdits,
    select_context,
)
from ...types.messages import Message, user_message
from ...types.requests import ModelSettings, ToolSpec
from ..activation import Activation
from ..phases import run_phase
from .fitting import window_of

__all__ = ["make_request"]

_PENDING_CONTEXT = PendingContextKey.name


async def make_request(act: Activation) -> tuple[Model, ModelRequest, PendingContext | None]:
    """The model, its request, and the pending context messages after this request, if they change."""
    if (act.hookless or not act.has_hooks("before_inference")) and _PENDING_CONTEXT not in act.state.values:
        return *_plain_request(act), None
    plan = InferencePlan(_settings(act))
    offered, messages = act.agent.offered, tuple(act.history)

    def prepare(ctx: BeforeInference) -> None:
        ctx.plan, ctx.tools, ctx.messages = PlanEdits(), offered, messages

    hooks = act.agent.hooks["before_inference"]
    for ctx in await run_phase(act, "before_inference", hooks, BeforeInference, prepare):
        plan.add(ctx.plan)
    pending = _select_context(act, plan)
    return *_planned_request(act, plan), pending


def _settings(act: Activation) -> ModelSettings:
    settings, options = act.agent.agent.settings, act.view.run.options
    return settings if options is None else options.settings.with_defaults(settings)


def _plain_request(act: Activation) -> tuple[Model, ModelRequest]:
    """The request without plugins: the same object in each step, since its messages are the history itself."""
    plain = act.plain_request
    if plain is not None and plain[1].messages is act.history and act.window is None:
        return plain
    agent, definition = act.agent, act.agent.agent
    model = act.env.registry.models.resolve(definition.model)
    request = ModelRequest(definition.instructions, act.history, agent.specs, _settings(act), agent.output)
    plain = act.plain_request = model, request
    return plain


def _select_context(act: Activation, plan: InferencePlan) -> PendingContext | None:
    if _PENDING_CONTEXT not in act.state.values:
        return None
    pending = act.state.snapshot()[PendingContextKey]
    plan.context, after = select_context(pending, act.view.run.steps)
    return None if after == pending else after


def _planned_request(act: Activation, plan: InferencePlan) -> tuple[Model, ModelRequest]:
    agent = act.agent
    model = act.env.registry.models.resolve(plan.model or agent.agent.model)
    specs: Sequence[ToolSpec] = agent.specs
    if plan.excluded or plan.included is not None:
        specs = tuple([spec for spec in specs if plan.offers(spec.name)])
        window_of(act).offers_reader = plan.offers(READ_RESULT)
    system = [agent.agent.instructions, *plan.system]
    system += [m.text for m in plan.context if m.target == "system"]
    text = "\n\n".join(part for part in system if part)
    messages = act.history if plan.messages is None else plan.messages
    if any(m.target != "system" for m in plan.context):
        messages = _insert_context(messages, plan.context, act.now)
    return model, ModelRequest(text, messages, specs, plan.settings, agent.output)


def _insert_context(history: list[Message], context: list[ContextMessage], now: int) -> list[Message]:
    """Insert context messages at their targets, never between a call and its result."""

    def of(target: str) -> list[Message]:
        chosen = [m for m in context if m.target == target]
        return [user_message(m.text, visibility="internal", at=now) for m in chosen]

    newest = next((i for i in range(len(history) - 1, -1, -1) if history[i].role == "user"), len(history))
    return [*of("session"), *history[:newest], *of("conversation"), *history[newest:], *of("end")]
