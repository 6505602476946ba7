"""Asking a model: one stream, watched by the clock, through what stands before the model; and the state over all
requests that one answer takes."""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..models import (
    Attempt,
    Model,
    ModelRequest,
    Patience,
    PoolModel,
    media_in,
    no_stream,
    with_modalities,
)
from ..types.messages import Message, user_message
from ._answer import Answer
from ._checkpoints import Checkpoints
from ._context import fit, fits
from ._policies import Tree, budget_spent
from ._taking import NO_USAGE, TAKE
from ._watch import Watch

if TYPE_CHECKING:
    from ._activation import Activation

__all__ = ["Asking", "goes_on", "patience_of", "stream"]

GO_ON = (
    "Your last answer broke off. Go on exactly where it stopped: don't repeat anything, and don't mention the "
    "interruption."
)
CUT_OFF = (
    "Your last answer was cut off at the output limit. Go on exactly where it stopped; don't repeat anything."
)
TOO_LONG = (
    "Your last answer was cut off at the output limit, and nothing of it can be kept. Answer again, shorter."
)


class Asking(Attempt, eq=False, gc=False, kw_only=True):
    """One answer that a run wants: what came of it so far, and how it was asked for. Kept over all retries."""

    answer: Answer
    started: int
    # Whom the run wants: a model, which is the one that is asked, or a pool.
    asked: Model
    # What it is asked with, as far as that is known.
    sent: ModelRequest
    # Whether anything came of the present request, and whether one that was too long was made shorter.
    began: bool = False
    refitted: bool = False
    # Whether this isn't the first request for it, and whether the last one's answer reached the output limit.
    again: bool = False
    cut: bool = False

    @property
    def answerer(self) -> str:
        """Whose answer it is, as events show it."""
        return (self.model or self.asked).name

    def ask_again(self, asked: Model, request: ModelRequest) -> None:
        """Make another request for it."""
        self.sent, self.began = request, False
        if self.asked is not asked:
            self.turn(asked)

    def turn(self, asked: Model) -> None:
        """A hook wants another model than last time: who was tried before says nothing about it."""
        self.asked, self.model, self.name = asked, None, ""
        self.tried, self.switches, self.failures, self.breaks = {}, 0, 0, 0

    def choose(self, request: ModelRequest) -> Model:
        """The model to ask: the one that is wanted, or a member that can take the request if that is a pool."""
        if isinstance(self.asked, PoolModel):
            self.media = media_in(request)
            return self.asked.choose(self)
        self.turn_to(self.asked, self.asked.name)
        return self.asked


async def stream(act: Activation, asking: Asking) -> None:
    """Ask the model once, and take in what it answers."""
    env, answer = act.env, asking.answer
    models, patience = env.registry.models, act.agent.agent.patience or env.patience
    request, model, again = asking.sent, asking.model, asking.again
    if model is None or again:
        model = asking.choose(request)
    messages = request.messages
    if again or (messages and messages[-1].role == "assistant"):
        request = _continued(act, asking, request)
    line = models.line(model)
    # What was in order stays so while it grows; as long as nobody knows of a limit there is nothing to look at.
    grown = messages is act.ordered and line.facts is None and act.fitting is None and not env.gauges.known
    if not (grown or fits(act, line, request)):
        request = await fit(act, line, request)
        act.now = act.clock.now()
    asking.sent = request
    if line.facts is not None:
        request = with_modalities(model, line.facts, request)
    granted, checkpoints, now = None, None, act.now
    # Where nothing is waited for, not even a commit, it is as late as it was.
    if line.waits or env.store.durable:
        if line.prepare is not None:
            await line.prepare()
        if line.guard is not None:
            granted = await line.guard.enter(request, patience.longest_retry_after)
        if env.store.durable:
            checkpoints = Checkpoints(act, answer.unsaved)
        now = act.clock.now()
    watch = act.watch
    if watch is None:
        watch = act.watch = Watch(env.watches, act.task)
    watch.begin(model, request.settings, patience, now)
    try:
        if again:
            answer.go_on(act.head)
        chunks: Any = model.stream(request)
        if chunks.__class__ is CoroutineType:
            whole = await chunks
            if whole.__class__ is not list and not hasattr(whole, "__iter__"):
                raise no_stream(whole)
            for chunk in whole:
                TAKE[type(chunk)](answer, chunk)
                asking.began = True
        else:
            await _read(asking, chunks, watch, checkpoints)
        watch.end()
        if checkpoints is not None and answer.stop == "max_tokens":
            await checkpoints.write()
    except BaseException as raised:
        error = watch.end(raised) or raised
        if granted is not None:
            granted.failed(error)
        if checkpoints is not None and isinstance(error, Exception):
            await checkpoints.write()  # What is gone on from must be there for whoever takes over.
        if error is raised:
            raise
        raise error from raised
    finally:
        if answer.usage is not NO_USAGE:
            answer.usage = models.priced(model, answer.usage)
    if granted is not None:
        granted.succeeded(answer.usage)


async def _read(asking: Asking, chunks: Any, watch: Watch, checkpoints: Checkpoints | None) -> None:
    """Take in an answer that comes chunk by chunk."""
    answer, chunk = asking.answer, None
    try:
        async for chunk in chunks:
            TAKE[type(chunk)](answer, chunk)
            watch.fresh = True
            if checkpoints is not None and checkpoints.due():
                watch.held = True
                try:
                    await checkpoints.pass_by()
                finally:
                    watch.held = False
    except TypeError as error:
        if not hasattr(chunks, "__aiter__"):
            raise no_stream(chunks) from error
        raise
    finally:
        asking.began = chunk is not None
        # A generator that came to its end is closed; whatever else may still hold a connection.
        close = getattr(chunks, "aclose", None)
        if close is not None and getattr(chunks, "ag_frame", chunks) is not None:
            await close()


def patience_of(act: Activation) -> Patience:
    """How the run waits for its models."""
    return act.agent.agent.patience or act.env.patience


def _continued(act: Activation, asking: Asking, request: ModelRequest) -> ModelRequest:
    """The request, with what came of its answer before that broke off."""
    messages = request.messages
    if asking.again and (prefix := asking.answer.prefix()):
        begun = Message(asking.answer.message_id, "assistant", prefix, act.now)
        return replace(request, messages=[*messages, begun, _prompt(act, CUT_OFF if asking.cut else GO_ON)])
    if asking.cut:
        return replace(request, messages=[*messages, _prompt(act, TOO_LONG)])
    if messages and messages[-1].role == "assistant":
        # A run that failed kept what it had of an answer, and is retried.
        return replace(request, messages=[*messages, _prompt(act, GO_ON)])
    return request


def _prompt(act: Activation, text: str) -> Message:
    return user_message(text, visibility="internal", at=act.now)


def goes_on(act: Activation, asking: Asking) -> bool:
    """Whether an answer that was cut off at the output limit is gone on with, as one that broke off is; then it is
    ready for that. One with calls to carry out isn't, nor is one that its run has no budget for."""
    answer, run, rules, tree = asking.answer, act.view.run, act.rules, act.view.tree
    if run.continuations >= rules.limits.continuations or answer.has_calls():
        return False
    used = answer.total
    after = Tree(tree.usage + used, tree.calls, tree.started_at)
    if budget_spent(replace(run, usage=run.usage + used), rules.stop, after, act.clock.now()):
        return False
    act.set_run(continuations=run.continuations + 1)
    answer.break_off("cut off at the output limit")
    asking.again = asking.cut = True
    return True
