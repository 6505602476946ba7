"""Errors of models."""

from __future__ import annotations

from .base import WakefulError

__all__ = [
    "BadCredentials",
    "ContentFiltered",
    "ContextOverflow",
    "InvalidRequest",
    "LiveModelForbidden",
    "ModelError",
    "ModelNotFound",
    "ModelOverloaded",
    "ModelTimeout",
    "ModelUnavailable",
    "PoolExhausted",
    "RateLimited",
    "ScriptError",
    "StreamBroken",
]


class ModelError(WakefulError):
    """The model could not answer.

    `transient` is true if a retry may help; `retry_after` is the delay in seconds that the vendor asks for, if
    any. `status` and `request_id` come from the vendor's response.
    """

    transient: bool = False

    def __init__(
        self,
        message: str,
        *,
        transient: bool | None = None,
        retry_after: float | None = None,
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        if transient is not None:
            self.transient = transient
        self.retry_after = retry_after
        self.status = status
        self.request_id = request_id


class RateLimited(ModelError):
    """The vendor's limit on requests or tokens was reached, or its quota is used up."""

    transient = True


class ModelOverloaded(ModelError):
    """The vendor has no capacity at the moment."""

    transient = True


class ModelUnavailable(ModelError):
    """The vendor failed or can't be reached."""

    transient = True


class ModelTimeout(ModelError):
    """The answer, or its next chunk, took too long."""

    transient = True


class StreamBroken(ModelError):
    """The stream ended before the answer was complete, or was malformed."""

    transient = True


class ContextOverflow(ModelError):
    """The request exceeds the model's context window."""


class InvalidRequest(ModelError):
    """The vendor rejects the request; a retry would be rejected too."""


class BadCredentials(ModelError):
    """An API key is missing, wrong or lacks permission."""


class ModelNotFound(ModelError):
    """The vendor has no model of this name, or not for this key."""


class ContentFiltered(ModelError):
    """The vendor's filter refused the request or the answer."""


class PoolExhausted(ModelError):
    """Every member of a pool is down, or its attempt limit was reached."""


class ScriptError(ModelError):
    """A scripted model ran out of turns, or has turns left over."""


class LiveModelForbidden(ModelError):
    """A call to a real model in a test that forbids them."""
