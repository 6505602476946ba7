"""Mail permissions between agents, and the policy for arriving messages."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from ..stores import ThreadView
from ..types.addressees import is_named
from ..types.inbox import InputPolicy
from ..types.mail import MailPolicy, Relation
from ..types.runs import Principal
from ..types.tickets import is_assignee

__all__ = ["accepts", "admits", "arrival", "may_write", "problems_of"]

_WORDS = ("parent", "child")
_INVERSE: dict[Relation, Relation] = {"parent": "child", "child": "parent", "agent": "agent"}


def problems_of(policy: MailPolicy) -> list[str]:
    """Problems of an agent's mail policy."""
    found: list[str] = []
    for name, kinds in (("to", ("agent:", "outside:")), ("accept", ("agent:",))):
        found += [
            f"mail.{name}: {entry!r:.80} is not parent, child, {' or '.join(kind + '...' for kind in kinds)}"
            for entry in getattr(policy, name)
            if entry not in _WORDS and not any(entry.startswith(kind) and entry != kind for kind in kinds)
        ]
    found += [
        f"mail.principals: {entry!r:.80} is not user:<id>, group:<name>, role:<name>, a user's id or *"
        for entry in policy.principals
        if not is_assignee(entry)
    ]
    return found


def _allows(entries: Iterable[str], relation: str, name: str) -> bool:
    if relation in _WORDS and relation in entries:
        return True
    kind = "outside" if relation == "outside" else "agent"
    patterns = [entry.removeprefix(f"{kind}:") for entry in entries if entry.startswith(f"{kind}:")]
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def may_write(policy: MailPolicy, relation: str, name: str) -> bool:
    """Whether an agent may write to its parent, its child, another agent or an address."""
    return _allows(policy.to, relation, name)


def accepts(policy: MailPolicy, relation: Relation, sender: str) -> bool:
    """Whether an agent accepts messages from a sender to whom it is this `relation`."""
    return _allows(policy.accept, _INVERSE[relation], sender)


def admits(policy: MailPolicy, sender: Principal) -> bool:
    """Whether an agent accepts messages of a principal on a thread that another one owns."""
    return any(entry == "*" or is_named(entry, sender) for entry in policy.principals)


def arrival(policy: MailPolicy, relation: Relation, stored: ThreadView | None) -> InputPolicy:
    """The input policy of a message that arrives on a thread now.

    A message from a parent or child steers the open run. Others queue until the run is over, unless it waits for
    tasks or a timer. No message supersedes a run that waits for a person.
    """
    run = None if stored is None else stored.run
    if policy.arriving is not None:
        # An idle thread has no run to interrupt or to reject the message for.
        return policy.arriving if run is not None or policy.arriving == "steer" else "queue"
    waits = run is not None and run.waiting is not None and "input" in run.waiting.wakes
    return "steer" if relation != "agent" or waits else "queue"
