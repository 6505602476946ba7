"""One model call: the plan, the request, the stream, and what the answer means."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..context import READ_RESULT
from ..errors import ConfigurationError, ContextOverflow, ModelError, StoreError, explain
from ..models import Model, ModelRequest, PoolModel
from ..plugins import (
    AfterInference,
    BeforeInference,
    Book,
    ContextBook,
    ContextMessage,
    InferencePlan,
    PlanEdits,
    Step,
    select_context,
)
from ..types.content import Content, ToolCall
from ..types.events import InferenceComplete, StepStart, ToolCallReady
from ..types.messages import Message, Producer, user_message
from ..types.requests import ModelSettings, ToolSpec
from ..types.runs import Call, NaturalEnd
from ._answer import Answer
from ._asking import Asking, goes_on, patience_of, stream
from ._checkpoints import restore, resumed_stream
from ._context import fitting_of, learn, make_room
from ._failing import end_whole, failed, give_up, keep_partial
from ._policies import judge, limit_reached, signature
from ._taking import NO_USAGE

if TYPE_CHECKING:
    from ._activation import Activation
    from ._moves import Infer

__all__ = ["infer"]

_log = logging.getLogger("wakeful")

_NATURAL_END = NaturalEnd()
_BOOK = ContextBook.name


async def infer(act: Activation, move: Infer) -> None:
    """Ask the model, and commit to the draft what it answered. Where it failed and is to be asked again, the next
    move comes here again."""
    view = act.view
    opens = view.run.stage == "between"
    if opens:
        _open_step(act)
        if not (act.still or act.quiet("step_start")):
            await act.phase("step_start", act.agent.hooks["step_start"], Step)
    resumes = not opens and act.asking is None and act.env.store.durable
    if act.agent.backend is not None:
        try:
            await act.env.execute_remote(act, await resumed_stream(act, act.channel) if resumes else None)
        finally:
            act.remote = None
        act.now = act.clock.now()
        return
    book: Book | None = None
    if (act.still or act.quiet("before_inference")) and _BOOK not in act.state.values:
        model, request = _plain_request(act)
    else:
        model, request, book = await _prepare(act)
    run = view.run
    if run.ending is not None or run.cancel is not None:
        give_up(act)
        return
    await act.flush(unsynced=True)
    if view.run.cancel is not None:  # The commit found that in the inbox: nobody interrupts what comes now.
        give_up(act)
        return
    asking = act.asking
    if asking is None:
        asking = _begin(act, model, request)
    else:
        asking.ask_again(model, request)
    if resumes:
        await _resume(act, asking)
    answer = asking.answer
    try:
        try:
            if asking.again and answer.whole():  # Another process had it, all but committed.
                end_whole(act, answer, "its process ended")
            else:
                await stream(act, asking)
            if answer.stop == "max_tokens" and goes_on(act, asking):
                await act.flush()
                if view.run.cancel is not None:
                    give_up(act)
                return
            content = answer.content()
        except StoreError:
            raise
        except Exception as error:
            content = await _failed(act, asking, error)
    except BaseException:
        keep_partial(act, asking)
        raise
    if content is not None:
        if book is not None:
            # Only now it is sure that the context messages were sent.
            act.state.apply([(ContextBook, book)])
        act.asking = None
        now = act.now = act.clock.now()
        identity = act.identity
        producer = Producer(identity.run_id, view.run.steps, identity.agent_id)
        message = Message(answer.message_id, "assistant", content, now, producer)
        if not (act.still or act.quiet("after_inference")):
            await _after(act, message, None, asking)
        _accept(act, asking, message)


def _open_step(act: Activation) -> None:
    view, draft, now = act.view, act.draft, act.now
    steps = view.run.steps + 1
    view.run = draft.run = replace(view.run, stage="inferring", steps=steps, updated_at=now)
    draft.log.append(StepStart(act.identity, 0, now, steps))


def _begin(act: Activation, model: Model, request: ModelRequest) -> Asking:
    """Begin an answer."""
    run = act.identity
    answer = Answer(run, act.head, act.channel, act.clock)
    first = None if isinstance(model, PoolModel) else model
    asking = act.asking = Asking(
        run.thread_id, run.run_id, first, model.name, answer=answer, started=act.now, asked=model, sent=request
    )
    return asking


async def _resume(act: Activation, asking: Asking) -> None:
    """Go on with an answer that the end of another process cut off, if there is one."""
    answer = asking.answer
    if not await restore(act, answer):
        return
    asking.again = True
    if answer.whole():
        answer.withdraw("its process ended")
    else:
        answer.break_off("its process ended", anew=act.agent.output is not None, reshow=True)


async def _failed(act: Activation, asking: Asking, error: Exception) -> tuple[Content, ...] | None:
    """A request failed: another is made, or the run ends; what its answer holds if that is whole nevertheless."""
    answer, model = asking.answer, asking.model or asking.asked
    anew = isinstance(error, ContextOverflow) and not (asking.refitted or asking.began)
    if anew and await make_room(act, model, asking.sent, error):
        asking.refitted = asking.again = True
        answer.break_off(str(error), anew=True)
        return None
    failure = error if isinstance(error, ModelError) else _wrapped(model, error)
    act.now = act.clock.now()
    if failure.transient and asking.began and answer.whole():
        act.note(failure, "model")
        end_whole(act, answer, str(failure))
        return answer.content()
    if not act.quiet("after_inference"):
        await _after(act, None, failure, asking)
    await failed(act, asking, failure, patience_of(act), anew=asking.sent.output is not None)
    return None


def _wrapped(model: Model, error: Exception) -> ModelError:
    known = isinstance(error, ConfigurationError)
    wrapped = ModelError(str(error) if known else f"model {model.name!r} failed: {explain(error)}")
    wrapped.__cause__ = error
    _log.debug("model %s failed", model.name, exc_info=error)
    return wrapped


# -- the request ---------------------------------------------------------------------------------------------


def _settings(act: Activation) -> ModelSettings:
    settings, options = act.agent.agent.settings, act.view.run.options
    return settings if options is None else options.settings.over(settings)


def _plain_request(act: Activation) -> tuple[Model, ModelRequest]:
    """The model and its request where no plugin has a say in it. Each step has the same, as its messages are the
    history, unless what is sent is fitted into a window."""
    if (plain := act.plain) is not None and plain[1].messages is act.history and act.fitting is None:
        return plain
    agent, own = act.agent, act.agent.agent
    model = act.env.registry.models.resolve(own.model)
    request = ModelRequest(own.instructions, act.history, agent.specs, _settings(act), agent.output)
    plain = act.plain = model, request
    return plain


async def _prepare(act: Activation) -> tuple[Model, ModelRequest, Book | None]:
    """The model, its request, and what the context messages will be once the request was answered."""
    agent = act.agent
    hooks = agent.hooks["before_inference"]
    plan = InferencePlan(_settings(act))
    names, shown = agent.offered, tuple(act.history)

    def prepare(ctx: BeforeInference) -> None:
        ctx.plan = PlanEdits()
        ctx.tools = names
        ctx.messages = shown

    for ctx in await act.phase("before_inference", hooks, BeforeInference, prepare):
        plan.add(ctx.plan)
    book = _choose_context(act, plan)
    return *_request(act, plan), book


def _choose_context(act: Activation, plan: InferencePlan) -> Book | None:
    if ContextBook.name not in act.state.values:
        return None
    book = act.state.snapshot()[ContextBook]
    plan.context, after = select_context(book, act.view.run.steps)
    return None if after == book else after


def _request(act: Activation, plan: InferencePlan) -> tuple[Model, ModelRequest]:
    agent = act.agent
    model = act.env.registry.models.resolve(plan.model or agent.agent.model)
    specs: Sequence[ToolSpec] = agent.specs
    if plan.excluded or plan.included is not None:
        specs = tuple([spec for spec in specs if plan.offers(spec.name)])
        fitting_of(act).offers_reader = plan.offers(READ_RESULT)
    system = [agent.agent.instructions, *plan.system]
    system += [m.text for m in plan.context if m.target == "system"]
    text = "\n\n".join(part for part in system if part)
    messages = act.history if plan.shown is None else plan.shown
    if any(m.target != "system" for m in plan.context):
        messages = _placed(messages, plan.context, act.now)
    return model, ModelRequest(text, messages, specs, plan.settings, agent.output)


def _placed(history: list[Message], context: list[ContextMessage], now: int) -> list[Message]:
    """The history with context messages where they belong; never between a call and its result."""

    def of(target: str) -> list[Message]:
        chosen = [m for m in context if m.target == target]
        return [user_message(m.text, visibility="internal", at=now) for m in chosen]

    newest = next((i for i in range(len(history) - 1, -1, -1) if history[i].role == "user"), len(history))
    return [*of("session"), *history[:newest], *of("conversation"), *history[newest:], *of("end")]


# -- the answer ----------------------------------------------------------------------------------------------


def _accept(act: Activation, asking: Asking, message: Message) -> None:
    view, draft, identity = act.view, act.draft, act.identity
    agent, answer, model = act.agent, asking.answer, asking.model or asking.asked
    run, now, calls = view.run, message.created_at, answer.calls
    ending, answer_id, made = run.ending, run.answer_id, run.tree_calls
    usage, signatures = run.usage, run.signatures
    used = answer.usage if answer.spent is NO_USAGE else answer.total
    if used is not NO_USAGE:
        learn(act, model, answer.usage)
        usage += used
        view.tree.usage += used
    if calls:
        tree = view.tree
        made = tree.calls = tree.calls + len(calls)
    elif ending is None and agent.shape is None and answer.stop != "max_tokens" and not answer.truncated:
        # The plainest end needs no judge: a text, no calls, and no type that it must have.
        ending = _NATURAL_END
    if agent.window:
        signatures = (*signatures, signature(message))[-agent.window :]
    log = draft.log
    if message.content:
        answer_id = message.id
        log.append(message)
        act.history.append(message)
        view.answer = message
    run = view.run = draft.run = replace(
        run,
        stage="acting",
        failures=0,
        answer_id=answer_id,
        usage=usage,
        calls=run.calls + len(calls),
        tree_calls=made,
        signatures=signatures,
        ending=ending,
        updated_at=now,
    )
    took = now - asking.started
    log.append(InferenceComplete(identity, 0, now, model.name, message.id, answer.stop, used, took))
    if calls:
        offered = asking.sent.tools
        problems = answer.problems if offered is agent.specs else _unoffered(answer, calls, offered)
        for index, wanted in enumerate(calls):
            call_id, name, arguments = wanted.id, wanted.name, wanted.arguments
            call = Call(call_id, identity.run_id, run.steps, index, name, arguments)
            if problems:
                call = replace(call, problem=problems.get(call_id))
            view.calls[call_id] = draft.calls[call_id] = call
            log.append(ToolCallReady(identity, 0, now, call_id, name, arguments))
    if ending is None:
        _judge(act, message, answer)


def _unoffered(answer: Answer, calls: Sequence[ToolCall], offered: Sequence[ToolSpec]) -> Mapping[str, str]:
    """What is wrong with calls where fewer tools are offered than the agent has."""
    names = {spec.name for spec in offered}
    unknown = {call.id: f"{call.name} isn't offered in this step" for call in calls if call.name not in names}
    return {**unknown, **answer.problems}


def _judge(act: Activation, message: Message, answer: Answer) -> None:
    view, agent, rules = act.view, act.agent, act.rules
    run, tree, calls = view.run, view.tree, answer.calls
    if calls and not rules.stop:
        # There are no policies but the limits.
        if stopped := limit_reached(run, rules.limits, (), tree, act.now):
            act.set_run(ending=stopped)
        return
    verdict = judge(
        message,
        calls,
        answer.stop,
        answer.truncated,
        run,
        rules.limits,
        rules.stop,
        agent.patterns,
        agent.shape,
        tree,
        act.now,
    )
    if verdict.ending is not None:
        act.output = verdict.output
        act.set_run(ending=verdict.ending)
    elif verdict.hint is not None:
        act.set_run(repairs=run.repairs + verdict.repaired)
        act.hint(verdict.hint)


async def _after(act: Activation, message: Message | None, error: Exception | None, asking: Asking) -> None:
    offered, answer = tuple([spec.name for spec in asking.sent.tools]), asking.answer

    def prepare(ctx: AfterInference) -> None:
        ctx.answer = message
        ctx.error = error
        ctx.offered = offered
        ctx.stop = "unknown" if message is None else answer.stop
        if message is not None:
            ctx.usage = answer.total

    await act.phase("after_inference", act.agent.hooks["after_inference"], AfterInference, prepare)
