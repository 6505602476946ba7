"""Mail between agents: permissions, recipients, receipts and outbound messages."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..errors.arguments import Checked
from .base import Data

__all__ = [
    "MAX_ADDRESS_BYTES",
    "MAX_MESSAGE_BYTES",
    "Arriving",
    "DeadLetter",
    "MailPolicy",
    "OutboundMessage",
    "Receipt",
    "Recipient",
    "Refusal",
    "Relation",
]

MAX_MESSAGE_BYTES = 1024 * 1024
MAX_ADDRESS_BYTES = 2048

Relation = Literal["parent", "child", "agent"]
Arriving = Literal["queue", "steer", "interrupt", "reject"]
Refusal = Literal[
    "recipient_not_found",
    "recipient_unavailable",
    "recipient_busy",
    "permission_denied",
    "hop_limit",
    "inbox_full",
]


class MailPolicy(Data, metaclass=Checked, omit_defaults=True):
    """An agent's mail permissions: its allowed recipients (`to`) and senders (`accept`).

    Entries are `parent`, `child`, `agent:<id>` for agents on other threads and, in `to`, `outside:<address>` for
    recipients outside the store; `*` matches any part of an id or an address.

    `principals` lists who may write to the agent on threads that another principal owns: `user:<id>`,
    `group:<name>`, `role:<name>`, a user's id, or `*` for anybody.

    `arriving` is the policy for a message to a thread with an open run: `queue` keeps it until the run is done,
    `steer` shows it to the run at its next step, `interrupt` cancels the run first, `reject` refuses the message.
    By default messages from a parent or child steer; others queue, or steer a run that waits for tasks.
    """

    to: tuple[str, ...] = ("parent", "child")
    accept: tuple[str, ...] = ("parent", "child")
    principals: tuple[str, ...] = ()
    arriving: Arriving | None = None


class Recipient(Data, metaclass=Checked, omit_defaults=True):
    """The recipient of a message: the `parent`, a `child` by id or name, or the `agent` of a thread.

    A thread that doesn't exist yet starts with the agent `agent_id`.
    """

    relation: Relation
    name: str = ""
    thread_id: str = ""
    agent_id: str | None = None

    @classmethod
    def child(cls, name: str) -> Recipient:
        """Address a task of the sender's thread by its id or, while it runs, by its name."""
        return cls("child", name=name)

    @classmethod
    def agent(cls, thread_id: str, agent_id: str | None = None) -> Recipient:
        """Address a thread, or a recipient outside the store that a transport serves."""
        return cls("agent", thread_id=thread_id, agent_id=agent_id)


class Receipt(Struct, frozen=True):
    """The delivery status of a message.

    `accepted`: it is in the recipient's inbox or in the outbound queue. `staged`: it will be, in the commit of
    the sending call's result. `failed`: it was refused for the reason `error`.
    """

    message_id: str
    thread_id: str
    status: Literal["accepted", "staged", "failed"] = "accepted"
    error: Refusal | None = None
    detail: str = ""


class OutboundMessage(Data, omit_defaults=True, kw_only=True):
    """A message to a recipient outside the store, as passed to a transport.

    `id` is the same at every attempt: recipients use it to drop duplicates. `hops` counts the messages in a row
    from agent to agent.
    """

    id: str
    to: str
    text: str
    agent_id: str | None = None
    sender_agent_id: str
    sender_thread_id: str
    sender_run_id: str
    root_run_id: str
    principal_id: str | None = None
    hops: int = 1
    sent_at: int = 0


class DeadLetter(Data, omit_defaults=True, kw_only=True):
    """A message that could not be delivered, with its attempts and the last error."""

    id: str
    thread_id: str
    run_id: str | None
    to: str
    text: str
    attempts: int
    error: str
    sent_at: int = 0
