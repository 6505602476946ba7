"""The requests of a run: as the agent defines them, or as `before_inference` hooks shape them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...context import READ_RESULT, fold
from ...errors import HookFailed
from ...models import Model, ModelRequest
from ...plugins import (
    BeforeInference,
    ContextMessage,
    InferencePlan,
    PendingContext,
    PendingContextKey,
    Purpose,
    select_context,
)
from ...types.messages import Message, user_message
from ...types.requests import ModelSettings, ToolSpec
from ..activation import Activation
from ..memories import RunMemories
from ..phases import run_phase
from .answer import Answer
from .instructions import evaluate_instructions
from .reload import extend_history
from .window import WindowState

__all__ = ["Prepared", "make_request", "run_settings", "shape_plan", "window_of"]

_PENDING_CONTEXT = PendingContextKey.name
_UNFORCED = (None, "auto", "none")

CONTINUE = (
    "Your last answer broke off. Go on exactly where it stopped: don't repeat anything, and don't mention the "
    "interruption."
)
CUT_OFF = (
    "Your last answer was cut off at the output limit. Go on exactly where it stopped; don't repeat anything."
)
TOO_LONG = (
    "Your last answer was cut off at the output limit, and nothing of it can be kept. Answer again, shorter."
)


class Prepared(Struct):
    """A request, the model for it, and what follows from it.

    `pending` are the pending context messages after this request, if they change; `instructions` those of the
    request, if functions made them.
    """

    model: Model
    request: ModelRequest
    pending: PendingContext | None = None
    instructions: str = ""


def window_of(act: Activation) -> WindowState:
    """The activation's window state, created on first use."""
    if act.window is None:
        act.window = WindowState()
    return act.window


async def make_request(act: Activation, begun: Answer | None = None, *, is_truncated: bool = False) -> Prepared:
    """Make the next request of a run.

    `begun` is an answer that broke off, which the request continues; `is_truncated` if at the output limit.
    """
    added = _continuation(act, begun, is_truncated)
    if (system := act.agent.instructions) is None:
        system = await evaluate_instructions(act)
    if (act.hookless or not act.has_hooks("before_inference")) and _PENDING_CONTEXT not in act.state.values:
        if act.cut is not None:
            await extend_history(act, act.env.registry.models.resolve(act.agent.agent.model))
        model, request = _plain_request(act, system, added)
        return Prepared(model, request, instructions="" if act.agent.instructions is not None else system)
    models, own = act.env.registry.models, act.agent.agent.model
    if act.cut is not None:
        await extend_history(act, models.resolve(own))
    plan = await _plan(act, system, added)
    model = models.resolve(plan.model or own)
    if act.cut is not None and plan.model is not None:
        shown = act.history
        await extend_history(act, model)
        if act.history is not shown:  # Another model reads more, which hooks haven't seen.
            plan = await _plan(act, system, added)
    pending = _select_context(act, plan)
    shown = "" if act.agent.instructions is not None else plan.instructions
    return Prepared(model, _planned_request(act, plan, added, model), pending, shown)


async def _plan(act: Activation, system: str, added: tuple[Message, ...]) -> InferencePlan:
    purpose: Purpose = "continuation" if added else "repair" if _is_repair(act) else "answer"
    messages = [*act.history, *added] if added else act.history
    plan = InferencePlan(run_settings(act), purpose, system, messages)
    models = act.env.registry.models
    plan.facts = lambda: models.facts_of(models.resolve(act.agent.agent.model))
    await shape_plan(act, plan, act.agent.offered)
    return plan


async def shape_plan(act: Activation, plan: InferencePlan, tools: tuple[str, ...] = ()) -> None:
    """Let the `before_inference` hooks shape a plan. A summary is made beside the step, so it runs no actions."""
    hooks = act.agent.hooks["before_inference"]
    source, shown = plan.messages, tuple(plan.messages)
    memories = RunMemories(act)

    def prepare(ctx: BeforeInference) -> None:
        nonlocal source, shown
        if plan.messages is not source:  # A hook replaced them.
            source, shown = plan.messages, tuple(plan.messages)
        ctx.plan, ctx.tools, ctx.messages, ctx.memories = plan.edits(), tools, shown, memories
        ctx.specs = act.agent.specs if tools else ()

    def done(ctx: BeforeInference) -> None:
        plan.rewrite(ctx.plan)

    is_step = plan.purpose != "summary"
    contexts = await run_phase(
        act, "before_inference", hooks, BeforeInference, prepare, done, with_actions=is_step
    )
    rewriters = [
        hook.plugin
        for hook, ctx in zip(hooks, contexts, strict=False)
        if hook.is_concurrent and (ctx.plan.messages is not None)
    ]
    if len(rewriters) > 1:
        raise HookFailed(
            f"the concurrent plugins {', '.join(map(repr, rewriters))} replaced the messages of one request, and "
            "neither saw the other's; let all but one of them run in turn (concurrent = False)"
        )
    for ctx in contexts:
        plan.add(ctx.plan)


def run_settings(act: Activation) -> ModelSettings:
    """The model settings of the run: its own, and the agent's for the rest.

    A tool choice that forces a call holds for the first step: a run whose every step must call a tool never ends.
    """
    settings, options = act.agent.agent.settings, act.view.run.options
    if options is not None:
        settings = options.settings.with_defaults(settings)
    if settings.tool_choice in _UNFORCED or act.view.run.steps <= 1:
        return settings
    return replace(settings, tool_choice=None)


def _continuation(act: Activation, begun: Answer | None, is_truncated: bool) -> tuple[Message, ...]:
    """The part of the answer that was streamed before, and the prompt to continue it."""
    if begun is not None and (prefix := begun.prefix()):
        message = Message(begun.message_id, "assistant", prefix, act.now)
        if begun.is_paused:
            return (message,)  # The vendor continues it without a prompt.
        return message, _prompt(act, CUT_OFF if is_truncated else CONTINUE)
    if is_truncated:
        return (_prompt(act, TOO_LONG),)
    if act.history and act.history[-1].role == "assistant":
        return (_prompt(act, CONTINUE),)  # The retry of a failed run, which kept a partial answer.
    return ()


def _prompt(act: Activation, text: str) -> Message:
    return user_message(text, visibility="internal", at=act.now)


def _is_repair(act: Activation) -> bool:
    """Whether the request asks for a corrected output: a hint of this run follows an answer without calls."""
    run = act.view.run
    if not run.repairs or act.agent.shape is None:
        return False
    for message in reversed(act.history):
        if message.role != "user":
            return False
        producer = message.producer
        if message.visibility == "internal" and producer is not None and producer.run_id == run.id:
            return True
    return False


def _plain_request(act: Activation, system: str, added: tuple[Message, ...]) -> tuple[Model, ModelRequest]:
    """The request without plugins: the same object in each step, since its messages are the history itself."""
    plain = act.plain_request
    is_same = (
        plain is not None
        and plain[1].messages is act.history
        and plain[1].system == system
        and plain[1].settings.tool_choice in _UNFORCED
    )
    if plain is None or not is_same or act.window is not None:
        agent, definition = act.agent, act.agent.agent
        model = act.env.registry.models.resolve(definition.model)
        request = ModelRequest(
            system,
            act.history,
            agent.specs,
            run_settings(act),
            agent.output,
            tuple(definition.server_tools),
        )
        plain = act.plain_request = model, request
    if not added:
        return plain
    return plain[0], replace(plain[1], messages=[*act.history, *added])


def _select_context(act: Activation, plan: InferencePlan) -> PendingContext | None:
    if _PENDING_CONTEXT not in act.state.values:
        return None
    pending = act.state.snapshot()[PendingContextKey]
    plan.context, after = select_context(pending, act.view.run.steps)
    return None if after == pending else after


def _defer(specs: Sequence[ToolSpec], plan: InferencePlan, model: Model) -> tuple[ToolSpec, ...]:
    """The tools of a request of which some are deferred: by the vendor where it can, else here.

    The list of a vendor that can stays the same after a search; the other one grows at its end.
    """
    names = plan.deferred - {plan.settings.tool_choice}
    if getattr(model, "defers_tools", False):
        return tuple([replace(spec, deferred=True) if spec.name in names else spec for spec in specs])
    shown = [spec for spec in specs if spec.name not in names]
    hidden = {spec.name: spec for spec in specs if spec.name in names}
    return (*shown, *[hidden[name] for name in plan.found if name in hidden])


def _planned_request(
    act: Activation, plan: InferencePlan, added: tuple[Message, ...], model: Model
) -> ModelRequest:
    agent = act.agent
    specs: Sequence[ToolSpec] = agent.specs
    if plan.excluded or plan.included is not None:
        specs = tuple([spec for spec in specs if plan.offers(spec.name)])
        window_of(act).offers_reader = plan.offers(READ_RESULT)
    if plan.deferred:
        specs = _defer(specs, plan, model)
    messages = plan.messages
    if plan.is_replaced:
        window_of(act).shows_copies = True
        messages = fold(messages)
        is_paused = bool(added) and added[-1].role == "assistant"
        if messages and messages[-1].role == "assistant" and not is_paused:
            messages.append(_prompt(act, CONTINUE))
    if any(m.target != "system" for m in plan.context):
        messages = _insert_context(messages, plan.context, {m.id for m in added}, act.now)
    server_tools = tuple(agent.agent.server_tools)
    return ModelRequest(plan.system_text, messages, specs, plan.settings, agent.output, server_tools)


def _insert_context(
    messages: Sequence[Message], context: list[ContextMessage], added: set[str], now: int
) -> list[Message]:
    """Insert context messages at their targets, never between a call and its result or an answer and its end."""

    def of(target: str) -> list[Message]:
        chosen = [m for m in context if m.target == target]
        return [user_message(m.text, visibility="internal", at=now) for m in chosen]

    end = next((place for place, m in enumerate(messages) if m.id in added), len(messages))
    newest = next((place for place in range(end - 1, -1, -1) if messages[place].role == "user"), end)
    before, after = messages[:newest], messages[newest:end]
    return [*of("session"), *before, *of("conversation"), *after, *of("end"), *messages[end:]]
