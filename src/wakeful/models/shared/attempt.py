"""The state of one answer over all retries and pool members."""

from __future__ import annotations

from msgspec import Struct

from ..protocol import Model

__all__ = ["Attempt"]


class Attempt(Struct, eq=False):
    """One answer over all retries: the caller, the current model, and earlier failures.

    `tried` maps failed members of a pool to the reason. `failures` and `breaks` belong to the current model:
    requests that failed before the answer started, and broken answers.
    """

    thread_id: str = ""
    run_id: str = ""
    model: Model | None = None
    name: str = ""
    tried: dict[str, str] = {}
    switches: int = 0
    failures: int = 0
    breaks: int = 0
    # The kinds of media that the model must accept.
    media: tuple[str, ...] = ()

    def use(self, model: Model, name: str) -> None:
        """Switch to a model, under its registered name."""
        if self.model is not model:
            self.model, self.name, self.failures, self.breaks = model, name, 0, 0

    def give_up_model(self, why: str) -> None:
        """Record the failure of the current model and count a switch."""
        self.tried[self.name] = why
        self.switches += 1
        self.model = None
