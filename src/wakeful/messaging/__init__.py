"""Messaging: mail between agents, deliveries outside the store, and pending input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..agents import Agent, Delegate
from ..tools import Tool
from .courier import Courier as Courier
from .courier import DeliveryPolicy as DeliveryPolicy
from .mailer import Mailer as Mailer
from .outbox import KIND as KIND
from .outbox import Transport as Transport
from .outbox import dead_letters as dead_letters
from .outbox import drop as drop
from .outbox import replay as replay
from .pending import PendingInput as PendingInput
from .pending import edit as edit
from .pending import move as move
from .pending import pending as pending
from .pending import retract as retract
from .policy import problems_of
from .tools import RecoverTool, SendTool

# The public names. The others are for the packages above.
__all__ = ["DeliveryPolicy", "PendingInput", "Transport"]

_SEND, _RECOVER = SendTool(), RecoverTool()


def send_tools() -> list[Tool]:
    """The tools of every background agent, to write to its owner."""
    return [_SEND]


def messaging_tools(agent: Agent, transports: Mapping[str, Transport]) -> tuple[list[Tool], list[str]]:
    """The mail tools of an agent, if it may write to anybody, and the problems of its policy."""
    policy = agent.mail
    if problems := problems_of(policy):
        return [], problems
    beyond_family = any(entry.startswith(("agent:", "outside:")) for entry in policy.to)
    if not beyond_family and not ("child" in policy.to and _has_background_delegate(agent.delegates)):
        return [], []
    outside = transports and any(entry.startswith("outside:") for entry in policy.to)
    return [_SEND, _RECOVER] if outside else [_SEND], []


def _has_background_delegate(delegates: Sequence[str | Delegate]) -> bool:
    return any(isinstance(how, Delegate) and how.background for how in delegates)
