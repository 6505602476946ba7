"""Commits that go along with another's: what a run does, and what begins by that in the same process, cost one
transaction together."""

from __future__ import annotations

import asyncio

from ..errors import Conflict
from ..stores import Commit, Committed, Promise, settled

__all__ = ["Ride"]


class Ride:
    """An activation's first commit on its way with the one that puts something into its thread's inbox. Nothing of
    the user's has run before it. Whoever can't go along looks at the store again, like anybody else."""

    __slots__ = ("_ended", "_outcome", "commit")

    def __init__(self) -> None:
        self.commit: Commit | None = None
        self._outcome: Promise[Committed] = Promise(loop=asyncio.get_running_loop())
        self._ended = False

    async def take(self, commit: Commit) -> Committed:
        """Have the commit written with the other one; refused with `Conflict` if that isn't done."""
        if self._ended:
            raise _left_out(commit)
        self.commit = commit
        return await settled(self._outcome)

    def end(self, committed: Committed | None) -> None:
        """Say what came of it."""
        self._ended = True
        if self.commit is None:
            return
        if committed is None:
            self._outcome.set_exception(_left_out(self.commit))
        else:
            self._outcome.set_result(committed)


def _left_out(commit: Commit) -> Conflict:
    return Conflict(f"thread {commit.thread_id!r} is not as it was, or was not to be begun with here")
