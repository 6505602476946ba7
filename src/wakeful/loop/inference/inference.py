"""One inference: the answer that a step needs, over all requests that are made for it."""

from __future__ import annotations

from ...models import Attempt, Model, ModelRequest, PoolModel, media_in
from .answer import Answer

__all__ = ["Inference"]


class Inference(Attempt, eq=False, kw_only=True):
    """An answer in progress, with the model, the request and the retries behind it."""

    answer: Answer
    # Milliseconds, for the duration of the whole inference.
    started: int
    # The model that the run wants: the one that is asked, or a pool.
    wanted: Model
    request: ModelRequest
    # The request's instructions if functions made them.
    instructions: str = ""
    # The digest of the last request that was sent, and the names of its tools.
    digest: str = ""
    offered: tuple[str, ...] = ()
    # Whether the present request has streamed a chunk.
    has_chunks: bool = False
    # Whether a request that was too long for the model was shortened.
    is_shortened: bool = False
    # Whether this isn't the first request, and whether the last answer reached the output limit.
    is_retry: bool = False
    is_truncated: bool = False
    # Whether its usage was recorded before: a guardrail has asked about the answer.
    is_recorded: bool = False

    @property
    def current(self) -> Model:
        """The model that is asked now, or the one that the run wants."""
        return self.model or self.wanted

    def retry(self, wanted: Model, request: ModelRequest, instructions: str) -> None:
        """Prepare another request. If a hook wants another model, its counts start at zero."""
        self.request, self.instructions, self.has_chunks = request, instructions, False
        if self.wanted is not wanted:
            self.wanted, self.model, self.name = wanted, None, ""
            self.tried, self.switches, self.failures, self.breaks = {}, 0, 0, 0

    def choose(self, request: ModelRequest) -> Model:
        """Choose the model to ask: the wanted one, or a member of the pool that takes the request."""
        if isinstance(self.wanted, PoolModel):
            self.media = media_in(request)
            return self.wanted.choose(self)
        self.use(self.wanted, self.wanted.name)
        return self.wanted
