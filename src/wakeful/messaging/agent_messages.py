"""Messages between agents in the form that the recipient's model reads: sender, text and reply address."""

from __future__ import annotations

import json

from msgspec.structs import replace

from ..types.content import Text, clean_text
from ..types.mail import Recipient
from ..types.messages import Message, Producer

__all__ = ["agent_message", "is_agent_message", "text_of_message", "with_text"]

_OPEN, _CLOSE = "<agent_message>\n", "\n</agent_message>"


def agent_message(message_id: str, sender: Producer, text: str, reply_to: Recipient, at: int) -> Message:
    """A message from another agent. The model reads it; people aren't shown it."""
    return Message(message_id, "user", (Text(_format(sender, text, reply_to)),), at, sender, "internal")


def _format(sender: Producer, text: str, reply_to: Recipient) -> str:
    fields = {name: value for name in ("name", "thread_id") if (value := getattr(reply_to, name))}
    payload = {
        "from": sender.agent_id,
        "content": clean_text(text),
        "reply_to": {"relation": reply_to.relation, **fields},
    }
    # Escaped so that no text can end the tag or open another one and pose as another sender.
    return _OPEN + json.dumps(payload, ensure_ascii=False).replace("<", "\\u003c") + _CLOSE


def is_agent_message(message: Message) -> bool:
    """Whether another agent wrote the message."""
    return message.producer is not None and message.producer.sender_thread_id is not None


def text_of_message(message: Message) -> str:
    """The text of a message, without the form that a model reads."""
    if not is_agent_message(message):
        return message.text
    return str(_payload(message)["content"])


def with_text(message: Message, text: str) -> Message:
    """Replace the text of a message."""
    if not is_agent_message(message):
        return replace(message, content=(Text(clean_text(text)),))
    payload = {**_payload(message), "content": clean_text(text)}
    body = json.dumps(payload, ensure_ascii=False).replace("<", "\\u003c")
    return replace(message, content=(Text(_OPEN + body + _CLOSE),))


def _payload(message: Message) -> dict[str, object]:
    return json.loads(message.text.removeprefix(_OPEN).removesuffix(_CLOSE))
