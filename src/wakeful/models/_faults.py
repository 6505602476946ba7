"""From what a vendor's API answers to the error that it is: one taxonomy for all of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ..errors import (
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
from ._waiting import retry_after, seconds_of

__all__ = ["Fault", "beginning_of", "broken", "error_of", "fault_of", "no_stream", "unreachable"]

_TEXT_LIMIT = 600
# How much of what is no stream is read, in bytes, for how many seconds, and how much of it is shown.
PAGE = 16_384
_PAGE_SECONDS = 0.5
_SHOWN = 160
_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)

# What vendors write where a request is longer than the model can read; no two have the same code for it.
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
# What an error that comes in the middle of a stream, where there is no status, is by its type or code.
_STATUS_OF_KIND = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "timeout_error": 504,
    "api_error": 500,
    "server_error": 500,
    "overloaded_error": 529,
}
_OF_THE_REQUEST = ("invalid_", "image_", "unsupported_", "empty_", "failed_to_download", "context_length")


class Fault(Struct, frozen=True):
    """What a vendor said of a failure: its own words for it, and its status where there is one."""

    text: str
    kinds: str = ""
    status: int | None = None
    retry_after: float | None = None
    request_id: str | None = None


def fault_of(status: int | None, body: Any, headers: Mapping[str, str] | None = None) -> Fault:
    """The fault in an answer: its body as it was decoded, or as text, and its headers in lower case."""
    headers = headers or {}
    error = _error_in(body)
    kinds = [str(error[key]) for key in ("code", "type", "status", "error_code") if error.get(key)]
    inner: Any = error.get("innererror") or error.get("details") or {}
    if isinstance(inner, dict):
        found = cast(dict[str, Any], inner)
        kinds += [str(found[key]) for key in ("code", "error_code") if found.get(key)]
    text = str(error.get("message") or error.get("msg") or error.get("detail") or "")
    if not text and body:
        text = body if isinstance(body, str) else msgspec.json.encode(body, enc_hook=str).decode()
    if status is None or status < 400:
        status = next((found for kind in kinds if (found := _status_of(kind))), status)
    wait = retry_after(headers)
    if wait is None:
        wait = _delay_in(inner)
    request_id = next((headers[h] for h in _REQUEST_IDS if headers.get(h)), None)
    if request_id is None and isinstance(body, dict):
        request_id = cast(dict[str, Any], body).get("request_id")
    return Fault(_short(" ".join(text.split())), " ".join(kinds), status, wait, request_id)


def _short(text: str, limit: int = _TEXT_LIMIT) -> str:
    """The beginning of a text. It ends with a whole word: half a key would not be known for one."""
    return text if len(text) <= limit else text[:limit].rpartition(" ")[0] + " …"


def _status_of(kind: str) -> int | None:
    if kind.isdecimal():
        return int(kind) if 400 <= int(kind) < 600 else None
    if kind in _STATUS_OF_KIND:
        return _STATUS_OF_KIND[kind]
    return 400 if kind.startswith(_OF_THE_REQUEST) else None


_REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "x-goog-request-id")


def _error_in(body: Any) -> dict[str, Any]:
    """The part of a body that tells of the error: vendors nest it, some in a list, or write a text."""
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
    """Google's RetryInfo, which has the wait in the body."""
    for detail in cast(list[Any], details) if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(delay := cast(dict[str, Any], detail).get("retryDelay"), str):
            return seconds_of(delay)
    return None


def error_of(model: str, fault: Fault) -> ModelError:
    """The error that a fault is. `model` is the name that it is about."""
    kind, what, transient = _classify(fault)
    said = " ".join(part for part in (str(fault.status or ""), fault.kinds) if part)
    message = f"{model}: {what}" + (f" ({said})" if said else "") + (f": {fault.text}" if fault.text else "")
    if fault.retry_after and transient is not False:
        message += f"; it says to come back in {fault.retry_after:g} s"
    if fault.request_id:
        message += f" [request {fault.request_id}]"
    return kind(
        message,
        transient=transient,
        retry_after=fault.retry_after,
        status=fault.status,
        request_id=fault.request_id,
    )


def _classify(fault: Fault) -> tuple[type[ModelError], str, bool | None]:
    """What kind of error it is, what to call it, and whether asking again may help where the kind doesn't say."""
    status = fault.status or 0
    words = f"{fault.kinds} {fault.text}".lower()

    def says(phrases: tuple[str, ...]) -> bool:
        return any(phrase in words for phrase in phrases)

    if status == 402 or (status in (400, 403, 429) and says(_QUOTA)):
        return RateLimited, "the account's quota is used up", False
    if status in (503, 529) or (status in (0, 429, 500) and says(_OVERLOADED)):
        return ModelOverloaded, "the vendor has no capacity at the moment", None
    if status == 429:
        return RateLimited, "the vendor's limit was reached", None
    if status in (408, 504):
        return ModelTimeout, "the vendor took too long", None
    if status in (401, 403) or (status == 400 and says(_BAD_KEY)):
        return BadCredentials, "the key is wrong, or isn't allowed to do this", None
    if status == 404 or says(_NO_MODEL):
        return ModelNotFound, "the vendor has no such model, or the base URL is wrong", None
    if status == 413 or (status in (0, 400, 422) and says(_OVERFLOW)):
        return ContextOverflow, "the request is longer than the model can read", None
    if status in (0, 400, 422) and says(_FILTERED):
        return ContentFiltered, "the vendor's filter refused the request", None
    if status in (409, 424, 425) or status >= 500 or status == 0:
        return ModelUnavailable, "the vendor failed", None
    return InvalidRequest, "the vendor refuses the request", None


def unreachable(model: str, error: BaseException, *, timeout: bool) -> ModelError:
    """The error for a vendor that wasn't reached, or took too long."""
    text = _deepest(error)
    if timeout:
        return ModelTimeout(f"{model}: the vendor took too long: {text}")
    return ModelUnavailable(
        f"{model}: the vendor can't be reached: {text}; see whether it is there, and its address right"
    )


def broken(model: str, why: str, *, request_id: str | None = None) -> StreamBroken:
    """The error for an answer that broke off, or whose pieces make no sense."""
    return StreamBroken(f"{model}: the answer broke off: {why}", request_id=request_id)


def no_stream(model: str, url: str, kind: str, body: bytes) -> ModelError:
    """The error for an answer that should be a stream and is something else of the type `kind`: the vendor's own
    error, if that is what it is, else the word that it isn't the vendor's API which answers at the URL."""
    text = body.decode(errors="replace")
    if _object_in(text).get("error"):
        return error_of(model, fault_of(None, text))
    place, said = urlsplit(url), _short(" ".join(_TAG.sub(" ", text).split()), _SHOWN)
    host = f"{place.hostname}:{place.port}" if place.port else place.hostname
    return ModelNotFound(
        f"{model}: what answers at {host} isn't the vendor's API: it sent {kind.partition(';')[0]}, not a stream"
        + (f" ({said})" if said else "")
        + "; the base URL is wrong, a proxy answers in the vendor's place, or the server can't stream"
    )


async def beginning_of(response: Any) -> bytes:
    """The beginning of a response of httpx2, as far as it comes soon."""
    found = b""
    with suppress(Exception):
        async with asyncio.timeout(_PAGE_SECONDS):
            async for piece in response.aiter_bytes():
                found += piece
                if len(found) >= PAGE:
                    break
    return found[:PAGE]


def _deepest(error: BaseException) -> str:
    """The error's own words, and those of its first cause: SDKs say `Connection error.` and chain the reason."""
    first = error
    # A timeout is a cancellation in the end, whose words are about tasks of ours.
    while isinstance(cause := first.__cause__ or first.__context__, Exception):
        first = cause
    own, deep = str(error) or type(error).__name__, str(first) or type(first).__name__
    return own if first is error or deep in own else f"{own.rstrip('.')}: {deep}"
