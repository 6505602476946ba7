"""One answer that a run wants, however often and of whomever it must be asked for."""

from __future__ import annotations

from msgspec import Struct

from ._protocol import Model

__all__ = ["Attempt"]


class Attempt(Struct, eq=False):
    """Who asks, who was asked, and how that went. The loop keeps one for each answer, over all retries.

    `tried` has the members of a pool that failed, and why. `failures` and `breaks` count for the model that is
    asked now: requests that failed before an answer began, and answers that broke off.
    """

    thread_id: str = ""
    run_id: str = ""
    model: Model | None = None
    name: str = ""
    tried: dict[str, str] = {}
    switches: int = 0
    failures: int = 0
    breaks: int = 0
    # The kinds of media that whoever is asked must take.
    media: tuple[str, ...] = ()

    def turn_to(self, model: Model, name: str) -> None:
        """Ask this model from now on; the name is the one that it is known by."""
        if self.model is not model:
            self.model, self.name, self.failures, self.breaks = model, name, 0, 0

    def leave(self, why: str) -> None:
        """Ask the present model no more."""
        self.tried[self.name] = why
        self.switches += 1
        self.model = None
