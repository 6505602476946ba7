"""Parked activations: runs that wait for children which are active in this process."""

from __future__ import annotations

from collections.abc import Mapping

from ..loop import Activation

__all__ = ["ParkedActivations"]


class ParkedActivations:
    """Ended activations of waiting runs, by thread, kept while one of the awaited children is active here.

    A parked run resumes from memory, without a read of the store. A run that isn't parked resumes from the store
    and has a count of its own of what its tree used, so its tree is marked `apart`.
    """

    def __init__(self, active: Mapping[str, Activation]) -> None:
        self._active = active
        self.by_thread: dict[str, Activation] = {}

    def find(self, thread_id: str) -> Activation | None:
        """The parked activation of a thread."""
        return self.by_thread.get(thread_id)

    def remove(self, started: Activation) -> None:
        """Drop the parked activation of a thread on which another one started."""
        if (parked := self.by_thread.pop(started.identity.thread_id, None)) is not None:
            parked.view.tree.apart |= parked.view.tree is not started.view.tree

    def add_ended(self, act: Activation) -> None:
        """Park an ended activation if its run waits for active children, and drop a parent that waits for none."""
        run, parent = act.view.run, act.identity.parent_thread_id
        if act.left and run.waiting is not None and self._has_active_child(act):
            self.by_thread[act.identity.thread_id] = act
        elif run.status != "done":
            act.view.tree.apart = True
        if parent in self.by_thread and not self._has_active_child(self.by_thread[parent]):
            self.by_thread.pop(parent).view.tree.apart = True

    def _has_active_child(self, act: Activation) -> bool:
        return any(task.target_thread in self._active for task in act.view.tasks)
