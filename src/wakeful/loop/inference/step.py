"""One model call of a step: the request, the stream, and what the answer means for the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ...errors import ConfigurationError, ContextOverflow, ModelError, StoreError, outline, quote
from ...models import Model, PoolModel
from ...plugins import AfterInference, PendingContextKey
from ...types.calls import Call
from ...types.content import Content, ToolCall
from ...types.events import InferenceComplete, ToolCallReady
from ...types.messages import Message, Producer
from ...types.requests import ToolSpec
from ...types.runs import NaturalEnd
from ..activation import Activation
from ..commits import flush
from ..disclosure import note_error
from ..held import held_message
from ..moves import Infer
from ..phases import run_phase
from ..stop_policies import judge, limit_reached, signature
from .answer import Answer
from .assembler import NO_USAGE
from .checkpoints import read_cut_off, restore
from .failure import abandon, handle_failure, keep_partial, take_complete_calls
from .fitting import learn_weight, make_room
from .guardrails import channel_of, judge_input, judge_output, resume_inference
from .inference import Inference
from .partial import PartialReader
from .request import Prepared, make_request
from .step_start import open_step
from .stream import UNFINISHED, prepare_continuation, stream
from .validation import find_rejection

__all__ = ["infer"]


_NATURAL_END = NaturalEnd()


async def infer(act: Activation, move: Infer) -> None:
    """Ask the model, and put its answer into the draft. After a failure that is retried, the next move is `Infer`
    again."""
    if act.agent.guards_input and not await judge_input(act):
        return
    if (held := held_message(act)) is not None and held.is_answer:
        await _judge_answer(act, resume_inference(act, held), held.content)
        return
    is_new = act.view.run.stage == "between"
    if is_new:
        await open_step(act)
    # A step that another process left in the middle.
    is_resumed = not is_new and act.inference is None and act.env.store.durable
    if act.agent.backend is not None:
        await _execute_remote(act, is_resumed)
        return
    inference = act.inference
    begun = None if inference is None else inference.answer
    if is_resumed:
        begun = await _restore(act)
    is_whole = begun is not None and begun.is_whole()  # Then the model isn't asked again.
    is_truncated = inference is not None and inference.is_truncated
    made = await make_request(act, None if is_whole else begun, is_truncated=is_truncated)
    if act.view.run.ending is not None or act.view.run.cancel is not None:
        abandon(act)
        return
    await flush(act)
    if act.view.run.cancel is not None:  # The commit found a cancellation in the inbox.
        abandon(act)
        return
    inference = _begin(act, made, begun if is_resumed else None)
    content = await _ask(act, inference)
    if content is None:
        return
    if made.pending is not None:
        # The context messages were sent: drop those that were due once.
        act.state.apply([(PendingContextKey, made.pending)])
    await _judge_answer(act, inference, content)


async def _judge_answer(act: Activation, inference: Inference, content: tuple[Content, ...]) -> None:
    """Have guardrails, hooks and validators judge a whole answer, then accept it, unless it is blocked."""
    act.inference = None
    now = act.now = act.clock.now()
    producer = Producer(act.identity.run_id, act.view.run.steps, act.identity.agent_id)
    message = Message(inference.answer.message_id, "assistant", content, now, producer)
    if act.agent.withholds or inference.is_recorded:
        judged = await judge_output(act, inference, message)
        if judged is None:
            return
        message = judged
    if not act.hookless and act.has_hooks("after_inference"):
        await _run_after_inference(act, message, None, inference)
    rejection = None
    if act.agent.agent.validators:
        rejection = await find_rejection(act, message, inference.answer)
    _accept(act, inference, message, rejection)


async def _execute_remote(act: Activation, is_resumed: bool) -> None:
    try:
        await act.env.execute_remote(act, await read_cut_off(act) if is_resumed else None)
    finally:
        act.remote = None
    act.now = act.clock.now()


async def _restore(act: Activation) -> Answer | None:
    """The answer that another process left in the middle, if it streamed any of it."""
    answer = Answer(act.identity, act.head, channel_of(act), act.clock)
    if not await restore(act, answer):
        return None
    if answer.is_whole():
        answer.withdraw("its process ended")
    else:
        answer.break_off("its process ended", restart=act.agent.output is not None, reshow=True)
    return answer


def _begin(act: Activation, made: Prepared, restored: Answer | None) -> Inference:
    """Start an inference, with a restored answer if there is one, or another request of the present one."""
    inference, model = act.inference, made.model
    if inference is not None:
        inference.retry(model, made.request, made.instructions)
        return inference
    run = act.identity
    answer = restored or Answer(run, act.head, channel_of(act), act.clock)
    if act.agent.output is not None:
        answer.partial = PartialReader(act.agent.output.schema)
    act.inference = Inference(
        run.thread_id,
        run.run_id,
        None if isinstance(model, PoolModel) else model,
        model.name,
        answer=answer,
        started=act.now,
        wanted=model,
        request=made.request,
        instructions=made.instructions,
        is_retry=restored is not None,
    )
    return act.inference


async def _ask(act: Activation, inference: Inference) -> tuple[Content, ...] | None:
    """Ask the model once; returns the answer's content, or None if it is continued, retried or given up."""
    answer = inference.answer
    try:
        try:
            if inference.is_retry and answer.is_whole():  # Another process had streamed all of it.
                take_complete_calls(act, answer, "its process ended")
            elif not await stream(act, inference):
                if act.view.run.ending is not None or act.view.run.cancel is not None:
                    abandon(act)
                else:
                    inference.is_retry = True  # A summary landed: the next request shows it.
                return None
            if answer.stop in UNFINISHED and prepare_continuation(act, inference):
                await flush(act)
                if act.view.run.cancel is not None:
                    abandon(act)
                return None
            return answer.content()
        except StoreError:
            raise
        except Exception as error:
            return await _handle_error(act, inference, error)
    except BaseException:
        keep_partial(act, inference)
        raise


async def _handle_error(act: Activation, inference: Inference, error: Exception) -> tuple[Content, ...] | None:
    """Retry a failed request or end the run; returns the content if the answer has complete calls."""
    answer, model = inference.answer, inference.current
    is_too_long = isinstance(error, ContextOverflow) and not (inference.is_shortened or inference.has_chunks)
    if is_too_long and await make_room(act, model, inference.request, error):
        inference.is_shortened = inference.is_retry = True
        answer.break_off(str(error), restart=True)
        return None
    failure = error if isinstance(error, ModelError) else _wrap(model, error)
    act.now = act.clock.now()
    if failure.transient and inference.has_chunks and answer.is_whole():
        note_error(act, failure, "model")
        take_complete_calls(act, answer, outline(failure).partition(": ")[2])
        return answer.content()
    if act.has_hooks("after_inference"):
        await _run_after_inference(act, None, failure, inference)
    await handle_failure(act, inference, failure, restart=inference.request.output is not None)
    return None


def _wrap(model: Model, error: Exception) -> ModelError:
    is_config = isinstance(error, ConfigurationError)
    wrapped = ModelError(str(error)) if is_config else quote(ModelError, f"model {model.name!r} failed", error)
    wrapped.__cause__ = error
    return wrapped


# -- the answer ----------------------------------------------------------------------------------------------


def _accept(act: Activation, inference: Inference, message: Message, rejection: str | None) -> None:
    """Write the answer and its calls, and judge whether the run ends."""
    view, draft, identity = act.view, act.draft, act.identity
    agent, answer, model = act.agent, inference.answer, inference.current
    run, now, calls = view.run, message.created_at, answer.calls
    usage, signatures, answer_id = run.usage, run.signatures, run.answer_id
    used = answer.usage if answer.spent is NO_USAGE else answer.total
    if used is not NO_USAGE and not inference.is_recorded:
        learn_weight(act, model, answer.usage)
        usage += used
        view.tree.usage += used
    if agent.window:
        signatures = (*signatures, signature(message))[-agent.window :]
    log = draft.log
    if message.content:
        answer_id = message.id
        log.append(message)
        act.history.append(message)
        view.answer = message
    if calls:
        view.tree.calls += len(calls)
    ending = run.ending
    is_plain = not calls and agent.shape is None and answer.stop not in UNFINISHED and not answer.is_truncated
    if ending is None and is_plain and rejection is None:
        ending = _NATURAL_END  # A text without calls, and no output type: `judge` would say the same.
    run = view.run = draft.run = replace(
        run,
        stage="acting",
        failures=0,
        answer_id=answer_id,
        usage=usage,
        calls=run.calls + len(calls),
        tree_calls=view.tree.calls if calls else run.tree_calls,
        signatures=signatures,
        ending=ending,
        updated_at=now,
    )
    if not inference.is_recorded:
        took = now - inference.started
        sent = (inference.instructions, inference.digest, inference.offered)
        log.append(InferenceComplete(identity, 0, now, model.name, message.id, answer.stop, used, took, *sent))
    if calls:
        _write_calls(act, inference, calls, now)
    if ending is None:
        _judge(act, message, answer, rejection)


def _write_calls(act: Activation, inference: Inference, calls: Sequence[ToolCall], now: int) -> None:
    view, draft, identity = act.view, act.draft, act.identity
    offered, problems = inference.request.tools, inference.answer.problems
    if offered is not act.agent.specs:
        problems = _unoffered(act, inference.answer, calls, offered)
    for index, wanted in enumerate(calls, len(view.calls)):  # After the questions of guardrails.
        call_id, name, arguments = wanted.id, wanted.name, wanted.arguments
        call = Call(call_id, identity.run_id, view.run.steps, index, name, arguments)
        if problems:
            call = replace(call, problem=problems.get(call_id))
        view.calls[call_id] = draft.calls[call_id] = call
        draft.log.append(ToolCallReady(identity, 0, now, call_id, name, arguments))


def _unoffered(
    act: Activation, answer: Answer, calls: Sequence[ToolCall], offered: Sequence[ToolSpec]
) -> Mapping[str, str]:
    """The problems of calls, by id, if the request offered fewer tools than the agent has."""
    names = {spec.name for spec in offered}
    # Calls of a vendor's own tools are signed, and never offered.
    names |= {call.name for call in calls if call.signature and _is_on_demand(act, call.name)}
    unknown = {call.id: f"{call.name} isn't offered in this step" for call in calls if call.name not in names}
    return {**unknown, **answer.problems}


def _is_on_demand(act: Activation, name: str) -> bool:
    tool = act.agent.tools.get(name)
    return tool is not None and tool.on_demand


def _judge(act: Activation, message: Message, answer: Answer, rejection: str | None) -> None:
    view, agent, rules = act.view, act.agent, act.rules
    run, tree, calls = view.run, view.tree, answer.calls
    if calls and not rules.stop:
        # Without stop policies only the limits count.
        if stopped := limit_reached(run, rules.limits, (), tree, act.now):
            act.set_run(ending=stopped)
        return
    verdict = judge(
        message,
        calls,
        answer.stop,
        answer.is_truncated,
        run,
        rules.limits,
        rules.stop,
        agent.patterns,
        agent.shape,
        tree,
        act.now,
        rejection,
    )
    if verdict.ending is not None:
        act.output = verdict.output
        act.set_run(ending=verdict.ending)
    elif verdict.hint is not None:
        act.set_run(repairs=run.repairs + verdict.repaired)
        act.hint(verdict.hint)


async def _run_after_inference(
    act: Activation, message: Message | None, error: Exception | None, inference: Inference
) -> None:
    offered, answer = tuple([spec.name for spec in inference.request.tools]), inference.answer

    def prepare(ctx: AfterInference) -> None:
        ctx.answer = message
        ctx.error = error
        ctx.offered = offered
        ctx.stop = "unknown" if message is None else answer.stop
        if message is not None:
            ctx.usage = answer.total

    await run_phase(act, "after_inference", act.agent.hooks["after_inference"], AfterInference, prepare)
