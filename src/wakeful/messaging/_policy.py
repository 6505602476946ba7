"""Who may write to whom, and what a message does when it arrives."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from ..stores import InputPolicy, ThreadView
from ..types.mail import Messages, Relation

__all__ = ["accepts", "arrival", "may_write", "problems_of"]

_WORDS = ("parent", "child")
_TURNED: dict[Relation, Relation] = {"parent": "child", "child": "parent", "agent": "agent"}


def problems_of(messages: Messages) -> list[str]:
    """What is wrong with an agent's policy."""
    found: list[str] = []
    for name, kinds in (("to", ("agent:", "outside:")), ("accept", ("agent:",))):
        found += [
            f"messages.{name}: {entry!r:.80} is not parent, child, {' or '.join(kind + '...' for kind in kinds)}"
            for entry in getattr(messages, name)
            if entry not in _WORDS and not any(entry.startswith(kind) and entry != kind for kind in kinds)
        ]
    return found


def _allows(entries: Iterable[str], relation: str, name: str) -> bool:
    if relation in _WORDS and relation in entries:
        return True
    kind = "outside" if relation == "outside" else "agent"
    patterns = [entry.removeprefix(f"{kind}:") for entry in entries if entry.startswith(f"{kind}:")]
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def may_write(messages: Messages, relation: str, name: str) -> bool:
    """Whether an agent may write to that relation of its, or that agent or address."""
    return _allows(messages.to, relation, name)


def accepts(messages: Messages, relation: Relation, sender: str) -> bool:
    """Whether an agent may be written to by a sender to whom it is this `relation`."""
    return _allows(messages.accept, _TURNED[relation], sender)


def arrival(messages: Messages, relation: Relation, stored: ThreadView | None) -> InputPolicy:
    """What a message does on a thread as it is now.

    Family steers the open run, because the message is about its work; a stranger's waits until that is over,
    unless the run waits for tasks or a time. No message supersedes a run that waits for a person.
    """
    run = None if stored is None else stored.run
    if messages.arriving is not None:
        # On a free thread there is nothing to interrupt or to be in the way of.
        return messages.arriving if run is not None or messages.arriving == "steer" else "queue"
    waits = run is not None and run.waiting is not None and "input" in run.waiting.wakes
    return "steer" if relation != "agent" or waits else "queue"
