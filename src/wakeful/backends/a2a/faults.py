"""Errors of an exchange, by their meaning for a run: whether work was started, and whether a retry may help."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Iterator
from typing import Any, cast

import httpx
from a2a.client.errors import A2AClientError
from a2a.utils import errors as a2a

from ...errors import WakefulError
from ...outbound import TooLarge

__all__ = ["Errored", "Fault", "NoSuchTask", "NotCancelable", "NotOffered", "Refused", "Unreachable", "translate"]


class Fault(Exception):
    """An exchange with the remote failed."""


class Refused(Fault):
    """The remote refused the request and started nothing."""


class NotOffered(Refused):
    """The remote doesn't offer the operation."""


class NoSuchTask(Refused):
    """The remote doesn't know the task."""


class NotCancelable(Refused):
    """The task is over and can't be cancelled."""


class Errored(Fault):
    """The remote answered with an internal error, or not in the A2A protocol."""


class Unreachable(Fault):
    """No answer arrived, or one that asks for a retry; the remote may have started work."""

    def __init__(self, reason: str, *, may_have_started: bool, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.may_have_started = may_have_started
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
    """Translate an error of the SDK into a fault; an error of wakeful is returned unchanged."""
    if isinstance(error, Fault | WakefulError):
        return error
    for kind, fault in _KNOWN.items():
        if isinstance(error, kind):
            return fault(_message_of(error))
    for cause in _causes(error):
        if isinstance(cause, Fault | WakefulError):
            return cause
        if isinstance(cause, httpx.HTTPStatusError):
            return _from_status(cause.response)
        if isinstance(cause, httpx.RequestError):
            may_have_started = not isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            return Unreachable(_message_of(cause), may_have_started=may_have_started)
        if callable(getattr(cause, "code", None)) and callable(getattr(cause, "details", None)):
            return _from_grpc(cast(Any, cause))
    if isinstance(error, a2a.A2AError) and not isinstance(error, A2AClientError):
        return Errored(_message_of(error))
    return Errored(f"it doesn't answer as A2A does: {_message_of(error)}")


def _message_of(error: BaseException) -> str:
    return str(error).strip()[:2000] or type(error).__name__


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _from_status(response: httpx.Response) -> Fault:
    status = response.status_code
    reason = f"HTTP {status} from {response.request.url}"
    if status in (429, 503):
        return Unreachable(
            reason, may_have_started=False, retry_after=_retry_after(response.headers.get("Retry-After"))
        )
    if status in (408, 500, 502, 504):
        return Unreachable(reason, may_have_started=True)
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


def _from_grpc(error: Any) -> Exception:
    code, details = str(error.code().name), str(error.details() or "")
    reason = f"gRPC {code}: {details[:2000]}"
    match code:
        case "UNAVAILABLE":
            return Unreachable(reason, may_have_started="failed to connect" not in details.lower())
        case "RESOURCE_EXHAUSTED":
            if "larger than max" in details:
                return TooLarge(reason) if details.startswith("Received") else Refused(reason)
            return Unreachable(reason, may_have_started=False)
        case "DEADLINE_EXCEEDED" | "CANCELLED" | "UNKNOWN":
            return Unreachable(reason, may_have_started=True)
        case "UNAUTHENTICATED" | "PERMISSION_DENIED":
            return Refused(f"{reason}: the remote doesn't accept our credentials; check the agent's `auth`")
        case "UNIMPLEMENTED":
            return NotOffered(reason)
        case "NOT_FOUND":
            return NoSuchTask(reason)
        case _:
            return Errored(reason)
