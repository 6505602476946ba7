"""What goes wrong with a model."""

from __future__ import annotations

from ._base import WakefulError

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
    "NoModelLeft",
    "RateLimited",
    "ScriptError",
    "StreamBroken",
]


class ModelError(WakefulError):
    """The model could not answer. `transient` says whether asking again may help, `retry_after` in how many
    seconds at the earliest where the vendor says so; `status` and `request_id` are the vendor's."""

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
    """The vendor's limit on requests or tokens was reached, or its quota used up."""

    transient = True


class ModelOverloaded(ModelError):
    """The vendor has no capacity at the moment."""

    transient = True


class ModelUnavailable(ModelError):
    """The vendor failed on its side, or can't be reached."""

    transient = True


class ModelTimeout(ModelError):
    """The answer, or the next piece of it, took too long."""

    transient = True


class StreamBroken(ModelError):
    """The answer broke off before its end, or came in pieces that make no sense."""

    transient = True


class ContextOverflow(ModelError):
    """The request is longer than the model can read."""


class InvalidRequest(ModelError):
    """The vendor refuses the request as it is; asking again would be refused again."""


class BadCredentials(ModelError):
    """A key is missing, wrong, or not allowed to do this."""


class ModelNotFound(ModelError):
    """The vendor has no model of that name, or not for this key."""


class ContentFiltered(ModelError):
    """The vendor's filter refused the request or the answer."""


class NoModelLeft(ModelError):
    """Every member of a pool is down, or as many were tried as it allows."""


class ScriptError(ModelError):
    """A scripted model was asked for more turns than it has, or kept some unused."""


class LiveModelForbidden(ModelError):
    """A call to a real model where tests forbid them."""
