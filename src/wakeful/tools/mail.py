"""Messages to other agents: the interface behind `ctx.send` and `ctx.mail`, and checks of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from ..errors import ToolError
from ..types.content import clean_text
from ..types.mail import MAX_MESSAGE_BYTES, DeadLetter, Receipt, Recipient
from ..types.runs import TaskRecord
from .call import CallContext

__all__ = ["Addressee", "Mail", "check_text", "recipient_of"]

Addressee = Recipient | TaskRecord | Literal["parent"]


class Mail(Protocol):
    """The mail of a run's thread: messages that it sends, and its dead letters."""

    async def send(self, context: CallContext, to: Recipient, text: str) -> Receipt:
        """Stage a message to be committed with the call's result; the receipt says why if it is refused."""
        ...

    async def dead_letters(self) -> Sequence[DeadLetter]:
        """The thread's undeliverable messages, oldest first."""
        ...

    async def replay(self, message_id: str) -> bool:
        """Deliver a dead letter again under the same id; False if the thread has no such letter."""
        ...

    async def drop(self, message_id: str) -> bool:
        """Delete a dead letter; False if the thread has no such letter."""
        ...


def recipient_of(to: Any) -> Recipient:
    """Convert the recipient that a tool names; raises `ToolError`."""
    if isinstance(to, Recipient):
        return to
    if isinstance(to, TaskRecord):
        return Recipient.child(to.id)
    if to == "parent":
        return Recipient("parent")
    raise ToolError(
        f"a message is for 'parent', a task, Recipient.child(name) or Recipient.agent(thread_id), not {to!r:.80}"
    )


def check_text(text: Any) -> str:
    """Clean the text of a message; raises `ToolError` if it isn't a text or is too long."""
    if not isinstance(text, str):
        raise ToolError(f"a message is a text, not {text!r:.80}")
    if (size := len(text.encode(errors="replace"))) > MAX_MESSAGE_BYTES:
        raise ToolError(f"a message has at most {MAX_MESSAGE_BYTES:,} bytes, not {size:,}; send a part, or a link")
    return clean_text(text)
