"""Messages as their recipients read them: what was said, by whom, and how to answer."""

from __future__ import annotations

import json

from msgspec.structs import replace

from ..types.content import Text, clean_text
from ..types.mail import Recipient
from ..types.messages import Message, Producer

__all__ = ["is_letter", "letter", "rewritten", "said"]

_OPEN, _CLOSE = "<agent_message>\n", "\n</agent_message>"


def letter(message_id: str, sender: Producer, text: str, reply_to: Recipient, at: int) -> Message:
    """A message of another agent: part of what the model reads, not of what a person is shown."""
    return Message(message_id, "user", (Text(_written(sender, text, reply_to)),), at, sender, "internal")


def _written(sender: Producer, text: str, reply_to: Recipient) -> str:
    fields = {name: value for name in ("name", "thread_id") if (value := getattr(reply_to, name))}
    payload = {
        "from": sender.agent_id,
        "content": clean_text(text),
        "reply_to": {"relation": reply_to.relation, **fields},
    }
    # No text can end the tag, or begin another: a sender speaks for nobody else.
    return _OPEN + json.dumps(payload, ensure_ascii=False).replace("<", "\\u003c") + _CLOSE


def is_letter(message: Message) -> bool:
    """Whether another agent wrote this."""
    return message.producer is not None and message.producer.sender_thread_id is not None


def said(message: Message) -> str:
    """What a message says, without how it is shown to a model."""
    if not is_letter(message):
        return message.text
    return str(_payload(message)["content"])


def rewritten(message: Message, text: str) -> Message:
    """The same message with another text."""
    if not is_letter(message):
        return replace(message, content=(Text(clean_text(text)),))
    payload = {**_payload(message), "content": clean_text(text)}
    body = json.dumps(payload, ensure_ascii=False).replace("<", "\\u003c")
    return replace(message, content=(Text(_OPEN + body + _CLOSE),))


def _payload(message: Message) -> dict[str, object]:
    return json.loads(message.text.removeprefix(_OPEN).removesuffix(_CLOSE))
