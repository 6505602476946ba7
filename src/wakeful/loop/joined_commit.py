"""Commits in one transaction: a run's commit, and the first commits of the runs that it starts or wakes."""

from __future__ import annotations

import asyncio

from ..errors import Conflict
from ..stores import Commit, Committed, Promise, settled

__all__ = ["JoinedCommit"]


class JoinedCommit:
    """The first commit of an activation, written in the transaction that puts an item into its thread's inbox.

    No hook, tool or model has run before it. If it is refused, the activation falls back to the normal claim.
    """

    __slots__ = ("_outcome", "_settled", "commit")

    def __init__(self) -> None:
        self.commit: Commit | None = None
        self._outcome: Promise[Committed] = Promise(loop=asyncio.get_running_loop())
        self._settled = False

    async def write(self, commit: Commit) -> Committed:
        """Wait until the commit is written with the other one; raises `Conflict` if it was left out."""
        if self._settled:
            raise _left_out(commit)
        self.commit = commit
        return await settled(self._outcome)

    def settle(self, committed: Committed | None) -> None:
        """Resolve `write`: with None, the commit was left out."""
        self._settled = True
        if self.commit is None:
            return
        if committed is None:
            self._outcome.set_exception(_left_out(self.commit))
        else:
            self._outcome.set_result(committed)


def _left_out(commit: Commit) -> Conflict:
    return Conflict(f"thread {commit.thread_id!r} changed, or is not to be started in this process")
