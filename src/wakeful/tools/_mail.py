"""Messages to other agents, as a tool's context offers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..errors import ToolError
from ..types.content import clean_text
from ..types.mail import MAX_MESSAGE_BYTES, DeadLetter, Receipt, Recipient
from ..types.runs import TaskRecord

if TYPE_CHECKING:
    from ._context import ToolContext

__all__ = ["Addressee", "Mail", "check_text", "recipient_of"]

Addressee = Recipient | TaskRecord | Literal["parent"]


class Mail(Protocol):
    """What a run's thread sends, and what came back of it."""

    async def send(self, context: ToolContext, to: Recipient, text: str) -> Receipt:
        """Stage a message into the result of the call, or say why it is refused."""
        ...

    async def dead_letters(self) -> Sequence[DeadLetter]:
        """The thread's messages that were given up, oldest first."""
        ...

    async def replay(self, message_id: str) -> bool:
        """Try to deliver one again, under the same id; False if it isn't a dead letter of this thread."""
        ...

    async def drop(self, message_id: str) -> bool:
        """Give one up for good; False if it isn't a dead letter of this thread."""
        ...


def recipient_of(to: Any) -> Recipient:
    """Whom a tool means; raises `ToolError`."""
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
    """The text of a message; raises `ToolError` if it isn't one or is too long."""
    if not isinstance(text, str):
        raise ToolError(f"a message is a text, not {text!r:.80}")
    if (size := len(text.encode(errors="replace"))) > MAX_MESSAGE_BYTES:
        raise ToolError(f"a message has at most {MAX_MESSAGE_BYTES:,} bytes, not {size:,}; send a part, or a link")
    return clean_text(text)
