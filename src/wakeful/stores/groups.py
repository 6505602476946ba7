"""A commit with the commits that follow it in the same transaction (`Commit.then`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..types.base import Data
from .facts import advance, missing_facts, recipients_of, runs_of
from .heads import Facts, NeedFacts
from .records import Commit, Committed
from .rules import Refusal, decide
from .writes import Writes

__all__ = ["GroupWrites", "decide_group", "threads_of"]


class GroupWrites(Data):
    """The writes of a commit and its followers, and the facts afterwards. Refused followers are left out."""

    writes: Sequence[Writes]
    committed: Committed
    facts: Facts


def decide_group(facts: Facts, commit: Commit, now: int) -> GroupWrites | Refusal | NeedFacts:
    """Decide on a commit, then on its followers, each by the facts that the one before it leaves.

    A follower may be refused without consequences for the others.
    """
    first = decide(facts, commit, now)
    if isinstance(first, NeedFacts):
        if not commit.then:
            return first
        return _merge([first, *[missing_facts(facts, follower, runs_of(follower)) for follower in commit.then]])
    if isinstance(first, Refusal):
        return first
    after = advance(facts, first)
    if not commit.then:
        return GroupWrites((first,), first.committed, after)
    found = [first]
    then: list[Committed | None] = []
    for follower in commit.then:
        home = facts.heads.get(follower.thread_id)
        if home is not None and not home.no:
            # A thread that this group makes has no runs but those of the group.
            after = replace(after, runs={**dict.fromkeys(runs_of(follower)), **after.runs})
        decided = decide(after, follower, now)
        if isinstance(decided, NeedFacts):
            return decided
        if isinstance(decided, Refusal):
            then.append(None)
            continue
        found.append(decided)
        then.append(decided.committed)
        after = advance(after, decided)
    return GroupWrites(found, replace(first.committed, then=tuple(then)), after)


def _merge(needs: Sequence[NeedFacts | None]) -> NeedFacts:
    """All of the facts that are needed, each once."""
    found = [need for need in needs if need is not None]

    def join(name: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys([one for need in found for one in getattr(need, name)]))

    return NeedFacts(
        join("threads"), join("items"), join("runs"), join("relays"), join("records"), join("workers")
    )


def threads_of(commit: Commit) -> frozenset[str]:
    """The ids of the threads that a commit and its followers may write to."""
    if not commit.then:
        return frozenset(recipients_of(commit))
    return frozenset([name for one in (commit, *commit.then) for name in recipients_of(one)])
