"""Classification of vendors' failures into one tree of errors."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Container, Mapping
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from ...errors import (
    BadCredentials,
    ContentFiltered,
    ContextOverflow,
    InvalidRequest,
    ModelError,
    ModelNotFound,
    ModelOverloaded,
    ModelTimeout,
    ModelUnavailable,
    RateLimited,
    StreamBroken,
)
from ...types.base import Data
from .retry_after import parse_delay, retry_after

__all__ = ["Fault", "not_a_stream", "parse_fault", "read_start", "stream_broken", "to_error", "unreachable"]

_TEXT_LIMIT = 600
# Limits for a response that isn't a stream: bytes and seconds to read, characters to show.
PAGE = 16_384
_PAGE_SECONDS = 0.5
_SHOWN = 160
_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)

# Phrases in vendors' errors, lower case. There is no common code for any of these.
_OVERFLOW = (
    "context_length_exceeded",
    "context_window_exceeded",
    "exceed_context_size",
    "context length",
    "context window",
    "context limit",
    "context size",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input too long",
    "too many input tokens",
    "maximum prompt length",
    "exceeds the maximum number of tokens",
    "exceeds the maximum input",
    "max_new_tokens` must be",
    "reduce the length of the messages",
    "request_too_large",
)
_FILTERED = (
    "content_filter",
    "content_policy",
    "content policy",
    "content filtering",
    "content management policy",
    "responsibleaipolicy",
    "invalid_prompt",
    "data_inspection_failed",
    "safety_violation",
    "safety system",
    "usage policy",
    "moderation",
)
_QUOTA = (
    "servicequotaexceeded",
    "insufficient_quota",
    "insufficient balance",
    "insufficient_balance",
    "billing_error",
    "billing_hard_limit",
    "billing_not_active",
    "credit balance is too low",
    "exceeded your current quota",
    "credit_limit",
)
_OVERLOADED = ("overloaded", "slow_down", "server_busy", "service_unavailable", "modelnotready")
_NO_MODEL = (
    "model_not_found",
    "deploymentnotfound",
    "model not exist",
    "model_not_exist",
    "unknown_model",
    "model identifier is invalid",
)
_BAD_KEY = ("invalid_api_key", "api_key_invalid", "api key not valid", "authentication_error")
# The HTTP status of an error inside a stream, by its type or code.
_STATUS_OF_KIND = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "timeout_error": 504,
    "api_error": 500,
    "server_error": 500,
    "overloaded_error": 529,
}
_REQUEST_PREFIXES = ("invalid_", "image_", "unsupported_", "empty_", "failed_to_download", "context_length")


class Fault(Data):
    """A vendor's failure: its message, its own codes, and the HTTP status if there is one."""

    text: str
    kinds: str = ""
    status: int | None = None
    retry_after: float | None = None
    request_id: str | None = None


def parse_fault(status: int | None, body: Any, headers: Mapping[str, str] | None = None) -> Fault:
    """Parse a failed response: its body, decoded or as text, and its headers in lower case."""
    headers = headers or {}
    error = _error_in(body)
    inner: Any = error.get("innererror") or error.get("details") or {}
    kinds = _values_of(error, "code", "type", "status", "error_code")
    if isinstance(inner, dict):
        kinds += _values_of(cast(dict[str, Any], inner), "code", "error_code")
    text = next(iter(_values_of(error, "message", "msg", "detail")), "")
    if raw := _words_of_provider(error):
        text = f"{text}: {raw}"
    if not text and body:
        text = body if isinstance(body, str) else msgspec.json.encode(body, enc_hook=str).decode()
    if status is None or status < 400:
        status = next((found for kind in kinds if (found := _status_of(kind))), status)
    wait = retry_after(headers)
    if wait is None:
        wait = _delay_in(inner)
    return Fault(_short(" ".join(text.split())), " ".join(kinds), status, wait, _request_id_of(body, headers))


def _words_of_provider(error: dict[str, Any]) -> str:
    """The words of the vendor behind a gateway, as OpenRouter passes them on."""
    metadata = error.get("metadata")
    found = cast(dict[str, Any], metadata).get("raw") if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else ""


def _values_of(error: dict[str, Any], *keys: str) -> list[str]:
    return [str(error[key]) for key in keys if error.get(key)]


def _request_id_of(body: Any, headers: Mapping[str, str]) -> str | None:
    request_id = next((headers[name] for name in _REQUEST_IDS if headers.get(name)), None)
    found = request_id or _object_in(body).get("request_id")
    return found if isinstance(found, str) else None


def _short(text: str, limit: int = _TEXT_LIMIT) -> str:
    """Shorten a text at a word boundary: a key that is cut in half would not be recognised as a secret."""
    return text if len(text) <= limit else text[:limit].rpartition(" ")[0] + " …"


def _status_of(kind: str) -> int | None:
    if kind.isdecimal():
        return int(kind) if 400 <= int(kind) < 600 else None
    if kind in _STATUS_OF_KIND:
        return _STATUS_OF_KIND[kind]
    return 400 if kind.startswith(_REQUEST_PREFIXES) else None


_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "x-goog-request-id")


def _error_in(body: Any) -> dict[str, Any]:
    """Find the error object in a body. Vendors nest it, some in a list, or send text."""
    outer = _object_in(body)
    inner = outer.get("error")
    if isinstance(inner, dict):
        return cast(dict[str, Any], inner)
    return {**outer, "message": inner} if isinstance(inner, str) else outer


def _object_in(body: Any) -> dict[str, Any]:
    if isinstance(body, str | bytes):
        try:
            body = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}
    if isinstance(body, list) and body:
        body = cast(list[Any], body)[0]
    return cast(dict[str, Any], body) if isinstance(body, dict) else {}


def _delay_in(details: Any) -> float | None:
    """Find the delay of Google's RetryInfo in the body."""
    for detail in cast(list[Any], details) if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(delay := cast(dict[str, Any], detail).get("retryDelay"), str):
            return parse_delay(delay)
    return None


def to_error(model: str, fault: Fault) -> ModelError:
    """Convert a fault of `model` to an error."""
    rule = _classify(fault)
    detail = " ".join(part for part in (str(fault.status or ""), fault.kinds) if part)
    message = (
        f"{model}: {rule.text}" + (f" ({detail})" if detail else "") + (f": {fault.text}" if fault.text else "")
    )
    if fault.retry_after and rule.transient is not False:
        message += f"; it says to come back in {fault.retry_after:g} s"
    if fault.request_id:
        message += f" [request {fault.request_id}]"
    return rule.error(
        message,
        transient=rule.transient,
        retry_after=fault.retry_after,
        status=fault.status,
        request_id=fault.request_id,
    )


class _Rule(Data):
    """Maps faults of these statuses, with one of these phrases if there are any, to an error."""

    statuses: Container[int]
    error: type[ModelError]
    text: str
    phrases: tuple[str, ...] = ()
    transient: bool | None = None


_QUOTA_TEXT = "the account's quota is used up"
_OVERLOADED_TEXT = "the vendor has no capacity at the moment"
_KEY_TEXT = "the key is wrong, or isn't allowed to do this"
_NO_MODEL_TEXT = "the vendor has no such model, or the base URL is wrong"
_OVERFLOW_TEXT = "the request is longer than the model can read"
_ANY = range(1000)

# The first rule that matches decides. A fault inside a stream may have no status, which counts as 0.
_RULES = (
    _Rule((402,), RateLimited, _QUOTA_TEXT, transient=False),
    _Rule((0, 400, 403, 429), RateLimited, _QUOTA_TEXT, _QUOTA, transient=False),
    _Rule((503, 529), ModelOverloaded, _OVERLOADED_TEXT),
    _Rule((0, 429, 500), ModelOverloaded, _OVERLOADED_TEXT, _OVERLOADED),
    _Rule((429,), RateLimited, "the vendor's limit was reached"),
    _Rule((408, 504), ModelTimeout, "the vendor took too long"),
    _Rule((401, 403), BadCredentials, _KEY_TEXT),
    _Rule((400,), BadCredentials, _KEY_TEXT, _BAD_KEY),
    _Rule((404,), ModelNotFound, _NO_MODEL_TEXT),
    _Rule(_ANY, ModelNotFound, _NO_MODEL_TEXT, _NO_MODEL),
    _Rule((413,), ContextOverflow, _OVERFLOW_TEXT),
    _Rule((0, 400, 422), ContextOverflow, _OVERFLOW_TEXT, _OVERFLOW),
    _Rule((0, 400, 422), ContentFiltered, "the vendor's filter refused the request", _FILTERED),
    _Rule((0, 409, 424, 425, *range(500, 1000)), ModelUnavailable, "the vendor failed"),
    _Rule(_ANY, InvalidRequest, "the vendor refuses the request"),
)


def _classify(fault: Fault) -> _Rule:
    status, words = fault.status or 0, f"{fault.kinds} {fault.text}".lower()
    return next(
        (
            rule
            for rule in _RULES
            if status in rule.statuses and (not rule.phrases or any(phrase in words for phrase in rule.phrases))
        ),
        _RULES[-1],
    )


def unreachable(model: str, error: BaseException, *, timeout: bool) -> ModelError:
    """Build the error for a vendor that can't be reached or timed out."""
    text = _deepest(error)
    if (refused := _refused_certificate(error)) is not None:
        return ModelUnavailable(
            f"{model}: the vendor's certificate isn't trusted: {refused}; check the address, the clock, and the "
            "certificates of a proxy (SSL_CERT_FILE)",
            transient=False,
        )
    if timeout:
        return ModelTimeout(f"{model}: the vendor took too long: {text}")
    return ModelUnavailable(
        f"{model}: the vendor can't be reached: {text}; check that it is running and that its address is right"
    )


def stream_broken(model: str, why: str, *, request_id: str | None = None) -> StreamBroken:
    """Build the error for an incomplete or malformed answer."""
    return StreamBroken(f"{model}: the answer broke off: {why}", request_id=request_id)


def not_a_stream(model: str, url: str, kind: str, body: bytes) -> ModelError:
    """Build the error for a response of the media type `kind` instead of a stream.

    It is the vendor's own error, if the body has one; otherwise the URL isn't the vendor's API.
    """
    text = body.decode(errors="replace")
    found = _object_in(text)
    if found.get("error") or found.get("object") == "error":
        return to_error(model, parse_fault(None, text))
    place, detail = urlsplit(url), _short(" ".join(_TAG.sub(" ", text).split()), _SHOWN)
    host = f"{place.hostname}:{place.port}" if place.port else place.hostname
    return ModelNotFound(
        f"{model}: what answers at {host} isn't the vendor's API: it sent {kind.partition(';')[0]}, not a stream"
        + (f" ({detail})" if detail else "")
        + "; the base URL is wrong, a proxy answers in the vendor's place, or the server can't stream"
    )


async def read_start(pieces: AsyncIterator[bytes], found: bytes = b"") -> bytes:
    """Read the start of a body, of which `found` was read before, within limits of size and time."""
    with suppress(Exception):
        async with asyncio.timeout(_PAGE_SECONDS):
            async for piece in pieces:
                found += piece
                if len(found) >= PAGE:
                    break
    return found[:PAGE]


def _refused_certificate(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """The refusal of a certificate among the causes of an error."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _deepest(error: BaseException) -> str:
    """The message of an error and of its first cause: SDKs chain the reason to `Connection error.`."""
    first = error
    # Stop before a cancellation, whose message is about our own tasks.
    while isinstance(cause := first.__cause__ or first.__context__, Exception):
        first = cause
    own, deep = str(error) or type(error).__name__, str(first) or type(first).__name__
    return own if first is error or deep in own else f"{own.rstrip('.')}: {deep}"
