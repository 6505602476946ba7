"""Messaging: writing to other agents, what is on its way to them, and what waits to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..agents import Agent, Delegate
from ..tools import Tool
from ._courier import Courier as Courier
from ._courier import Retry as Retry
from ._outbox import KIND as KIND
from ._outbox import Transport as Transport
from ._outbox import dead_letters as dead_letters
from ._outbox import drop as drop
from ._outbox import replay as replay
from ._pending import PendingInput as PendingInput
from ._pending import edit as edit
from ._pending import move as move
from ._pending import pending as pending
from ._pending import retract as retract
from ._policy import problems_of
from ._post import Post as Post
from ._tools import RecoverTool, SendTool

__all__ = [
    "KIND",
    "Courier",
    "PendingInput",
    "Post",
    "Retry",
    "Transport",
    "dead_letters",
    "drop",
    "edit",
    "messaging_tools",
    "move",
    "pending",
    "replay",
    "retract",
    "send_tools",
]

_SEND, _RECOVER = SendTool(), RecoverTool()


def send_tools() -> list[Tool]:
    """What every agent has that works in the background, to write to whom it works for."""
    return [_SEND]


def messaging_tools(agent: Agent, transports: Mapping[str, Transport]) -> tuple[list[Tool], list[str]]:
    """What an agent writes messages with, if there is anybody to write to; and what is wrong with its policy."""
    policy = agent.messages
    if problems := problems_of(policy):
        return [], problems
    strangers = any(entry.startswith(("agent:", "outside:")) for entry in policy.to)
    if not strangers and not ("child" in policy.to and _leaves_work(agent.delegates)):
        return [], []
    outside = transports and any(entry.startswith("outside:") for entry in policy.to)
    return [_SEND, _RECOVER] if outside else [_SEND], []


def _leaves_work(delegates: Sequence[str | Delegate]) -> bool:
    return any(isinstance(how, Delegate) and how.background for how in delegates)
