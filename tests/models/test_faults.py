"""Vendors' failures and the errors they map to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from wakeful.errors import (
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
)
from wakeful.models.shared.faults import parse_fault, to_error, unreachable
from wakeful.models.shared.retry_after import parse_delay, retry_after
from wakeful.models.shared.secrets import hide_secrets, scrub, secret_patterns

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, {"error": {"message": "slow down"}}, RateLimited),
        (402, {"error": {"message": "Insufficient Balance"}}, RateLimited),
        (403, {"error": {"type": "billing_error", "message": "x"}}, RateLimited),
        (503, "busy", ModelOverloaded),
        (529, None, ModelOverloaded),
        (500, {"type": "error", "error": {"type": "overloaded_error"}}, ModelOverloaded),
        (408, None, ModelTimeout),
        (504, None, ModelTimeout),
        (500, None, ModelUnavailable),
        (502, "<html>Bad gateway</html>", ModelUnavailable),
        (409, None, ModelUnavailable),
        (401, None, BadCredentials),
        (403, None, BadCredentials),
        (400, [{"error": {"status": "INVALID_ARGUMENT", "message": "API key not valid."}}], BadCredentials),
        (404, None, ModelNotFound),
        (400, {"error": {"message": "Model Not Exist"}}, ModelNotFound),
        (413, None, ContextOverflow),
        (400, {"error": {"code": "context_length_exceeded"}}, ContextOverflow),
        (400, {"message": "This model's maximum context length is 8192 tokens."}, ContextOverflow),
        (400, {"error": "prompt is too long: 9 tokens > 8 maximum"}, ContextOverflow),
        (400, {"error": {"type": "exceed_context_size_error", "message": "x"}}, ContextOverflow),
        (400, {"error": {"code": "content_filter"}}, ContentFiltered),
        (400, {"error": {"code": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}, ContentFiltered),
        (400, {"error": {"message": "bad field"}}, InvalidRequest),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, InvalidRequest),
        (None, {"code": "rate_limit_exceeded", "message": "x"}, RateLimited),
        (None, {"error": {"code": 502, "message": "x"}}, ModelUnavailable),
        (None, {"code": "invalid_image", "message": "x"}, InvalidRequest),
        (200, {"error": {"type": "overloaded_error"}}, ModelOverloaded),
        (None, None, ModelUnavailable),
    ],
)
def test_fault_maps_to_its_error(status: int | None, body: Any, kind: type[ModelError]) -> None:
    error = to_error("acme:large", parse_fault(status, body))
    assert type(error) is kind
    assert str(error).startswith("acme:large: ")


@pytest.mark.parametrize(("code", "transient"), [("rate_limit_exceeded", True), ("insufficient_quota", False)])
def test_exhausted_quota_is_not_transient(code: str, transient: bool) -> None:
    assert to_error("a:b", parse_fault(429, {"error": {"code": code}})).transient is transient


def test_error_shows_message_status_and_request_id() -> None:
    body = {"error": {"type": "invalid_request_error", "message": "Unknown\n  parameter: foo"}}
    error = to_error("a:b", parse_fault(400, body, {"x-request-id": "req_1"}))
    expected = (
        "a:b: the vendor refuses the request (400 invalid_request_error): Unknown parameter: foo [request req_1]"
    )
    assert str(error) == expected
    assert (error.status, error.request_id) == (400, "req_1")


def test_error_hides_a_key_that_the_vendor_repeats() -> None:
    error = to_error("a:b", parse_fault(401, {"error": {"message": "bad key sk-123"}}))
    assert "sk-123" not in str(hide_secrets(error, secret_patterns("sk-123")))


def test_long_error_text_is_not_cut_within_a_key() -> None:
    error = to_error(
        "a:b", parse_fault(401, {"error": {"message": "x" * 580 + " sk-123456789012345678901234567890"}})
    )
    assert "sk-123" not in str(error)


@pytest.mark.parametrize(
    "text",
    [
        r"Illegal header value b'Bearer sk-SECRET\n'",
        "Illegal header value b'Bearer sk-SECRET'",
        "http://user:pass%2Fword@host/v1 is down",
        "password pass/word is wrong",
        "Basic dXNlcjpwYXNzL3dvcmQ= was refused",
        "X-Token: tok-ABCDEF",
        "Bearer ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "another https://me:hidden@elsewhere",
    ],
)
def test_error_hides_every_form_of_a_secret(text: str) -> None:
    secrets = secret_patterns("sk-SECRET\n", urls=["http://user:pass%2Fword@host/v1"], headers=["tok-ABCDEF"])
    shown = scrub(text, secrets)
    assert "***" in shown
    for secret in ("sk-SECRET", "pass%2Fword", "pass/word", "dXNlcjpwYXNz", "tok-ABCDEF", "XYZ", "hidden"):
        assert secret not in shown


def test_error_shows_retry_after_and_no_task_names() -> None:
    assert "come back in 100 s" in str(to_error("a:b", parse_fault(429, None, {"retry-after": "100"})))
    error = TimeoutError("Request timed out.")
    error.__cause__ = asyncio.CancelledError("Cancelled via cancel scope 7f00")
    assert str(unreachable("a:b", error, timeout=True)) == "a:b: the vendor took too long: Request timed out."


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": " 3 "}, 3.0),
        ({"retry-after": "-1"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Mon, 16 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Mon, 16 Nov 2026 11:00:00 GMT"}, 0.0),
        # An hour of clock skew on either side makes no difference.
        ({"retry-after": "Mon, 16 Nov 2026 13:00:30 GMT", "date": "Mon, 16 Nov 2026 13:00:00 GMT"}, 30.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-remaining-requests": "0"}, 1.0),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "0"}, 360.0),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "149984"}, None),
        ({"x-ratelimit-reset-requests": "120ms"}, 0.12),
        ({"x-ratelimit-reset": "1794830410"}, 10.0),
        ({"x-ratelimit-reset": "1794830410000"}, 10.0),
        (
            {
                "anthropic-ratelimit-tokens-reset": "2026-11-16T12:00:05Z",
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-11-16T12:09:00Z",
                "anthropic-ratelimit-requests-remaining": "49",
            },
            5.0,
        ),
    ],
)
def test_retry_after_parses_all_forms(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after(headers, NOW) == pytest.approx(expected) if expected is not None else True
    assert (retry_after(headers, NOW) is None) == (expected is None)


def test_retry_after_may_be_in_the_body() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    assert parse_fault(429, {"error": {"code": 429, "details": details}}).retry_after == 34.5


def test_delay_parses_durations() -> None:
    assert parse_delay("1h2m3.5s") == 3723.5
    assert parse_delay("1h of it") is None
