"""What can go wrong on the wire, by what it means for a run: was anything begun, and may it be tried again."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator
from typing import Any, cast

import httpx
from a2a.client.errors import A2AClientError
from a2a.utils import errors as a2a

from ...errors import WakefulError

__all__ = ["Errored", "Fault", "NoSuchTask", "NotCancelable", "NotOffered", "Refused", "Unreachable", "translate"]


class Fault(Exception):
    """Something went wrong between us and the remote."""


class Refused(Fault):
    """The remote said no, before it began anything."""


class NotOffered(Refused):
    """The remote doesn't offer the operation."""


class NoSuchTask(Refused):
    """The remote knows no such task."""


class NotCancelable(Refused):
    """The task is over."""


class Errored(Fault):
    """The remote answered with an error of its own, or with something that isn't A2A."""


class Unreachable(Fault):
    """No answer came, or one that says to try again; `begun` tells whether the remote may have begun something."""

    def __init__(self, reason: str, *, begun: bool, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.begun = begun
        self.retry_after = retry_after


_KNOWN: dict[type[Exception], type[Fault]] = {
    a2a.TaskNotFoundError: NoSuchTask,
    a2a.TaskNotCancelableError: NotCancelable,
    a2a.UnsupportedOperationError: NotOffered,
    a2a.MethodNotFoundError: NotOffered,
    NotImplementedError: NotOffered,
    a2a.InvalidParamsError: Refused,
    a2a.InvalidRequestError: Refused,
    a2a.ContentTypeNotSupportedError: Refused,
    a2a.VersionNotSupportedError: Refused,
    a2a.ExtensionSupportRequiredError: Refused,
}


def translate(error: Exception) -> Exception:
    """The fault that an error of the SDK stands for; an error of ours stays as it is."""
    if isinstance(error, Fault | WakefulError):
        return error
    for kind, fault in _KNOWN.items():
        if isinstance(error, kind):
            return fault(_words(error))
    for cause in _causes(error):
        if isinstance(cause, Fault | WakefulError):
            return cause
        if isinstance(cause, httpx.HTTPStatusError):
            return _from_status(cause.response)
        if isinstance(cause, httpx.RequestError):
            begun = not isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            return Unreachable(_words(cause), begun=begun)
        if callable(getattr(cause, "code", None)) and callable(getattr(cause, "details", None)):
            return _from_grpc(cast(Any, cause))
    if isinstance(error, a2a.A2AError) and not isinstance(error, A2AClientError):
        return Errored(_words(error))
    return Errored(f"it doesn't answer as A2A does: {_words(error)}")


def _words(error: BaseException) -> str:
    return str(error).strip()[:2000] or type(error).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    at: BaseException | None = error
    while at is not None:
        yield at
        at = at.__cause__


def _from_status(response: httpx.Response) -> Fault:
    status = response.status_code
    reason = f"HTTP {status} from {response.request.url}"
    if status in (429, 503):
        return Unreachable(reason, begun=False, retry_after=_retry_after(response.headers.get("Retry-After")))
    if status in (408, 500, 502, 504):
        return Unreachable(reason, begun=True)
    if status in (405, 501):
        return NotOffered(reason)
    if status in (401, 403):
        return Refused(f"{reason}: the remote doesn't accept our credentials; check the agent's `auth`")
    if response.is_redirect:
        return Refused(f"{reason}: redirects aren't followed; the card must name the address itself")
    return Refused(reason)


def _retry_after(value: str | None) -> float | None:
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return max(seconds, 0.0) if seconds == seconds else None


def _from_grpc(error: Any) -> Fault:
    code, details = str(error.code().name), str(error.details() or "")
    reason = f"gRPC {code}: {details[:2000]}"
    match code:
        case "UNAVAILABLE":
            return Unreachable(reason, begun="failed to connect" not in details.lower())
        case "RESOURCE_EXHAUSTED":
            return Refused(reason) if "larger than max" in details else Unreachable(reason, begun=False)
        case "DEADLINE_EXCEEDED" | "CANCELLED" | "UNKNOWN":
            return Unreachable(reason, begun=True)
        case "UNAUTHENTICATED" | "PERMISSION_DENIED":
            return Refused(f"{reason}: the remote doesn't accept our credentials; check the agent's `auth`")
        case "UNIMPLEMENTED":
            return NotOffered(reason)
        case "NOT_FOUND":
            return NoSuchTask(reason)
        case _:
            return Errored(reason)
