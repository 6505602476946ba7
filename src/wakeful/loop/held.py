"""Messages about which a guardrail asked a person: what the decision means for the message and its run."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ..plugins import HeldKey, HeldMessage, JudgedInput
from ..types.content import Content, Text
from ..types.ids import new_id
from ..types.messages import Message
from ..types.runs import Blocked
from ..types.tickets import Decision
from .activation import Activation

__all__ = ["WITHHELD", "held_message", "rewrite_input", "settle_held"]

WITHHELD = (Text("[This message was blocked, and is not shown.]"),)


def held_message(act: Activation) -> HeldMessage | None:
    """The message of the run about which a guardrail asked."""
    return act.state.snapshot()[HeldKey] if act.view.calls else None


def rewrite_input(act: Activation, changed: Mapping[int, tuple[Content, ...]], judged: str) -> None:
    """Show models other content of these messages, by position; `judged` is the last that was judged."""
    for seq, content in changed.items():
        act.draft.log.append(Message(new_id(), "user", content, act.now, None, "internal", rewrites=seq))
    if changed:
        act.history = [
            replace(message, content=changed[message.seq]) if message.seq in changed else message
            for message in act.history
        ]
    act.state.apply([(JudgedInput, (act.agent.id, judged))])


def settle_held(act: Activation, decision: Decision) -> None:
    """Let the answer to a guardrail's question take effect: the message is judged on, or blocked."""
    held = act.state.snapshot()[HeldKey]
    if held is None:
        return
    if decision.verdict == "approve":
        act.set_run(stage="inferring")
        return
    act.state.apply([(HeldKey, None)])
    who = decision.principal_id or "a person"
    reason = decision.reason or f"guardrail {held.guardrail!r} asked, and {who} denied it"
    ending = Blocked(reason)
    # An answer isn't in the history yet.
    for message in [message for message in act.history if message.id == held.message_id]:
        rewrite_input(act, {message.seq: WITHHELD}, message.id)
        if message.seq < act.view.run.first_seq:
            ending = None  # As without a question: a blocked message of an earlier run doesn't end this one.
    act.set_run(stage="inferring", ending=ending)
