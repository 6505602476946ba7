"""The guardrail library: what is found, what isn't, hostile texts, and runs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from wakeful import Agent, ConfigurationError, Message, Runtime, ScriptedModel
from wakeful.extensions.guardrails import allowed_urls, length_limit, personal_data, secrets
from wakeful.extensions.guardrails.detectors import PERSONAL, SECRETS
from wakeful.plugins import Block, Guardrail, Rewrite
from wakeful.types.content import Thinking
from wakeful.types.messages import user_message


def judge(guardrail: Guardrail, text: str) -> Any:
    check: Any = guardrail.input or guardrail.output
    return check(user_message(text), None)


def redact(guardrail: Guardrail, text: str) -> str:
    found = judge(guardrail, text)
    return text if found is None else "".join(getattr(part, "text", "") for part in found.parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write to ann.lee+x@mail.example.co.uk.", "write to [email]."),
        ("card 4111 1111 1111 1111, ok", "card [card], ok"),
        ("4111-1111-1111-1111", "[card]"),
        ("DE89 3704 0044 0532 0130 00 PLEASE", "[iban] PLEASE"),
        ("GB29NWBK60161331926819", "[iban]"),
        ("ssn 078-05-1120", "ssn [ssn]"),
        ("call +49 30 901820 or (030) 9018-2000", "call [phone] or [phone]"),
        ("+4930901820", "[phone]"),
        ("from 192.168.0.1 and 2001:db8::1", "from [ip] and [ip]"),
        ("a@b.de,c@d.fr", "[email],[email]"),
    ],
)
def test_personal_data_is_redacted(text: str, expected: str) -> None:
    assert redact(personal_data(), text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",
        "order 1234567890123",
        "version 1.2.3.4.5 or 999.1.1.1",
        "at 12:30:45 on 2026-11-19",
        "user@host and @handle",
        "the years 2020-2026, pages 10-20",
        "bad face dead beef",
    ],
)
def test_other_numbers_and_words_stay(text: str) -> None:
    assert judge(personal_data(), text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("use sk-ant-api03-" + "a1B2" * 10, "use [key]"),
        ("ghp_" + "a" * 36 + " it", "[key] it"),
        ("AKIAABCDEFGHIJKLMNOP", "[key]"),
        ("xoxb-1234567890-abcdef", "[key]"),
        ("eyJ" + "a" * 20 + ".eyJ" + "b" * 30 + "." + "c" * 20, "[key]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nrest", "[private key]\nrest"),
        ("-----BEGIN PRIVATE KEY-----\nabc", "[private key]"),
        ("password: hunter2hunter2", "password: [password]"),
        ('"api_key" = "abcdefgh1234"', '"api_key" = "[password]"'),
        ("postgres://app:s3cr3t@db/app", "postgres://app:[url password]@db/app"),
    ],
)
def test_secrets_are_redacted(text: str, expected: str) -> None:
    assert redact(secrets(), text) == expected


@pytest.mark.parametrize(
    "text", ["sk-short", "the password is required", "https://example.com/a:b", "risk-" + "a" * 30]
)
def test_texts_without_secrets_stay(text: str) -> None:
    assert judge(secrets(), text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://example.com/a?b=c.", "see https://example.com/a?b=c."),
        ("see https://docs.example.com/", "see https://docs.example.com/"),
        ("![x](https://evil.org/p?d=secret)", "![x]([url])"),
        ("https://example.com.evil.org/", "[url]"),
        ("https://example.com@evil.org/", "[url]"),
        ("https://evil.org\\@example.com/", "[url]"),
        ("//evil.org/x", "[url]"),
        ("HTTPS://EVIL.ORG", "[url]"),
        ("https://[bad/", "[url]"),
        ("https://notexample.com", "[url]"),
        ("half // of it", "half // of it"),
    ],
)
def test_addresses_on_other_hosts_are_redacted(text: str, expected: str) -> None:
    assert redact(allowed_urls("example.com", "*.example.com"), text) == expected


def test_iban_with_a_wrong_checksum_stays() -> None:
    assert judge(personal_data("iban"), "DE89 3704 0044 0532 0130 01") is None


def test_length_is_limited() -> None:
    assert judge(length_limit(5), "12345") is None
    assert judge(length_limit(5), "123456") == Block("the message has 6 characters; the limit is 5")


def test_block_names_the_kind_and_not_the_value() -> None:
    found = judge(personal_data(action="block"), "I am ann@example.com")
    assert found == Block("the message has personal data (email)")


def test_kinds_can_be_chosen_and_added() -> None:
    only = personal_data("email", more={"badge": r"B-\d{4}"})
    assert redact(only, "a@b.de has B-1234, 4111 1111 1111 1111") == "[email] has [badge], 4111 1111 1111 1111"


def test_signed_reasoning_stays_and_other_reasoning_is_redacted() -> None:
    signed, plain = Thinking("a@b.de", signature="s"), Thinking("a@b.de")
    message = Message("m", "assistant", (signed, plain))
    found: Any = personal_data().output
    assert found(message, None).parts == (signed, Thinking("[email]"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: personal_data("names"),
        lambda: personal_data(more={"x": "("}),
        lambda: secrets(action="hide"),  # type: ignore[arg-type]
        lambda: secrets(on="input"),  # type: ignore[arg-type]
        lambda: length_limit(0),
        lambda: allowed_urls(),
        lambda: allowed_urls("https://example.com"),
    ],
)
def test_wrong_options_are_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()


HOSTILE = ["a", "a.", "a@", "a@a.", "1", "1 ", "1-", "+1", "(1", "DE89", "DE89 ", ":", "a:", "1.1.", "eyJ", "eyJa.", "sk-", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "password=", "password ", "a://", "a://a:", "//", "//a.", "https://a", " ", "\n"]  # fmt: skip # noqa: E501


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    """A quadratic pattern takes minutes for this, a linear one milliseconds."""
    text = (piece * 300_000)[:300_000] + "!"
    start = time.process_time()
    for detect in (*PERSONAL.values(), *SECRETS.values()):
        assert sum(1 for _ in detect(text)) <= len(text)
    judge(allowed_urls("example.com"), text)
    assert time.process_time() - start < 20


def test_text_beyond_the_limit_is_blocked() -> None:
    assert isinstance(judge(secrets(), "x" * 1_000_001), Block)


async def test_guardrails_redact_both_sides_of_a_run() -> None:
    model = ScriptedModel(["Mail bob@example.com, see https://evil.org/?q=1"])
    rails = [personal_data(), secrets(), allowed_urls("example.com")]
    runtime = Runtime([Agent("desk", model=model, guardrails=rails)])
    result = await runtime.run("desk", "My mail is ann@example.com, my key is ghp_" + "a" * 36)
    assert model.requests[0].messages[-1].text == "My mail is [email], my key is [key]"
    assert result.text == "Mail [email], see [url]"


def test_rewrites_are_of_the_whole_message() -> None:
    assert isinstance(judge(personal_data(), "a@b.de"), Rewrite)
