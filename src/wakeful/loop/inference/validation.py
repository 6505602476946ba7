"""Output validators: an agent's functions that may send a final answer back to the model."""

from __future__ import annotations

from inspect import isawaitable

from ...errors import HookFailed, InvalidArguments, OutputRejected, quote
from ...plugins import HookContext
from ...types.content import clean_text
from ...types.messages import Message
from ..activation import Activation
from ..commits import flush
from .answer import Answer

__all__ = ["find_rejection"]


async def find_rejection(act: Activation, message: Message, answer: Answer) -> str | None:
    """Ask the agent's validators about a final answer; returns the reason of the first that rejects it.

    The verdict is committed with the answer, so a committed answer is never judged again.
    """
    if answer.calls or answer.stop == "max_tokens" or answer.is_truncated:
        return None  # It isn't final.
    agent = act.agent
    try:
        output = message.text if agent.shape is None else agent.shape.decode(message.text)
    except InvalidArguments:
        return None  # It doesn't fit the type, and goes back to the model for that reason.
    await flush(act)
    for validator in agent.agent.validators:
        run = act.view.run
        ctx: HookContext = HookContext(
            act.identity,
            run.steps,
            act.state.snapshot(),
            run.principal,
            act.env.registry.catalog,
            None,
            act.env.deps.value,
        )
        name = getattr(validator, "__name__", type(validator).__name__)
        try:
            found = validator(output, ctx)
            if isawaitable(found):
                await found
        except OutputRejected as error:
            act.now = act.clock.now()
            return clean_text(str(error))
        except Exception as error:
            raise quote(HookFailed, f"output validator {name!r} failed", error) from error
        if ctx.command:
            raise HookFailed(
                f"output validator {name!r} wrote something; it only accepts or raises OutputRejected"
            )
    act.now = act.clock.now()
    return None
