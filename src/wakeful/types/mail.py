"""Mail: who writes to whom, what the sender is told, and what is on its way to a recipient outside the store."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..errors._arguments import Checked

__all__ = [
    "MAX_ADDRESS_BYTES",
    "MAX_MESSAGE_BYTES",
    "Arriving",
    "DeadLetter",
    "Messages",
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


class Messages(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True):
    """Whom an agent may write to, who may write to it, and what a message does that reaches it while it is busy.

    Entries are `parent`, `child`, `agent:<id>` for agents on other threads and, in `to`, `outside:<address>` for
    recipients outside the store; `*` matches any part of an id or an address. `arriving` is what a message does on
    a thread with an open run: `queue` waits until that is over, `steer` is shown to it at its next step,
    `interrupt` cancels it first, `reject` is refused. Without it family steers, and others queue, or steer a run
    that waits for tasks.
    """

    to: tuple[str, ...] = ("parent", "child")
    accept: tuple[str, ...] = ("parent", "child")
    arriving: Arriving | None = None


class Recipient(Struct, metaclass=Checked, frozen=True, gc=False, omit_defaults=True):
    """Whom a message is for: the `parent`, the `child` of that id or name, or the `agent` of a thread. A thread
    that doesn't exist yet begins with the agent `agent_id`."""

    relation: Relation
    name: str = ""
    thread_id: str = ""
    agent_id: str | None = None

    @classmethod
    def child(cls, name: str) -> Recipient:
        """A task of the sender's thread, by its id or, while it runs, by its name."""
        return cls("child", name=name)

    @classmethod
    def agent(cls, thread_id: str, agent_id: str | None = None) -> Recipient:
        """A thread, or an address outside the store that a transport serves."""
        return cls("agent", thread_id=thread_id, agent_id=agent_id)


class Receipt(Struct, frozen=True):
    """What became of a message so far. `accepted`: it is in the recipient's inbox, or on its way outside.
    `staged`: it will be, with the result of the call that sent it. `failed`: it was refused; `error` says why."""

    message_id: str
    thread_id: str
    status: Literal["accepted", "staged", "failed"] = "accepted"
    error: Refusal | None = None
    detail: str = ""


class OutboundMessage(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A message for a recipient outside the store, as its transport is given it. `id` is the same at every
    attempt: whoever receives it drops a second one. `sender_*` and `root_run_id` say where it comes from,
    `hops` over how many messages."""

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


class DeadLetter(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A message that was given up: after how many attempts, and why."""

    id: str
    thread_id: str
    run_id: str | None
    to: str
    text: str
    attempts: int
    error: str
    sent_at: int = 0
