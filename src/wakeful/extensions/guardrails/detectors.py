"""Detectors of personal data and secrets: each yields the spans that it finds, in linear time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address

__all__ = ["PERSONAL", "SECRETS", "Detector"]

Detector = Callable[[str], Iterator[tuple[int, int]]]

# Every repetition is bounded, or can't begin where the one before it could go on: no input takes more than linear
# time.
_EMAIL = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9_+-]{1,64}(?:\.[A-Za-z0-9_+-]{1,64}){0,5}@"
    r"[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,5}\.[A-Za-z]{2,24}(?![A-Za-z0-9-])"
)
_DIGITS = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){11,18}(?![\w-])")
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}(?!\w)")
_PHONE = re.compile(r"(?<![\w+])(?:\+\d{1,3}[ .-]?)?(?:\(\d{1,5}\)[ .-]?)?\d{2,5}(?:[ .-]\d{2,8}){1,5}(?![\w-])")
_PLUS_PHONE = re.compile(r"(?<![\w+])\+\d{8,15}(?!\w)")
_SSN = re.compile(r"(?<![\w-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])")
_IP = re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f:]{3,39})(?![\w.:])")
_SECRET = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"sk-(?:ant-|proj-|live_|test_)?[A-Za-z0-9_-]{20,200}"  # OpenAI, Anthropic
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,200}"  # Stripe
    r"|gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{30,255}"
    r"|glpat-[A-Za-z0-9_-]{20,100}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,250}"  # Slack
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"  # AWS
    r"|AIza[A-Za-z0-9_-]{35}"  # Google
    r"|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,300}|hf_[A-Za-z0-9]{30,60}"
    r"|SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}"  # SendGrid
    r"|eyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,1000}"  # JWT
    r")(?![A-Za-z0-9_])"
)
_KEY_BLOCK = re.compile(r"-----BEGIN (?:[A-Z]{1,12} ){0,3}PRIVATE KEY-----")
_KEY_END = re.compile(r"-----END (?:[A-Z]{1,12} ){0,3}PRIVATE KEY-----")
_ASSIGNED = re.compile(
    r"(?i)(?<![a-z0-9])(?:password|passwd|secret|api[_-]?key|access[_-]?key|auth[_-]?token)[\"']?\s{0,3}[:=]\s{0,3}"
    r"[\"']?([^\s\"',;]{8,200})"
)
_USERINFO = re.compile(r"(?<![A-Za-z0-9+.-])[a-z][a-z0-9+.-]{1,20}://[^\s/@:]{1,100}:([^\s/@]{1,200})@")


def _spans(pattern: re.Pattern[str], group: int = 0) -> Detector:
    def detect(text: str) -> Iterator[tuple[int, int]]:
        for found in pattern.finditer(text):
            yield found.span(group)

    return detect


def _cards(text: str) -> Iterator[tuple[int, int]]:
    for found in _DIGITS.finditer(text):
        if _passes_luhn([int(digit) for digit in found[0] if digit.isdigit()]):
            yield found.span()


def _passes_luhn(digits: list[int]) -> bool:
    doubled = [digit if place % 2 == 0 else sum(divmod(2 * digit, 10)) for place, digit in enumerate(digits[::-1])]
    return 12 < len(digits) < 20 and sum(doubled) % 10 == 0


def _ibans(text: str) -> Iterator[tuple[int, int]]:
    for found in _IBAN.finditer(text):
        start, words = found.start(), found[0]
        # Words in capitals may follow: the longest beginning with a valid checksum is the number.
        for end in range(len(words), 14, -1):
            if words[end - 1] != " " and _passes_97(words[:end].replace(" ", "")):
                yield start, start + end
                break


def _passes_97(iban: str) -> bool:
    if not 15 <= len(iban) <= 34:
        return False
    return int("".join([str(int(letter, 36)) for letter in iban[4:] + iban[:4]])) % 97 == 1


def _phones(text: str) -> Iterator[tuple[int, int]]:
    for found in _PHONE.finditer(text):
        count = sum(letter.isdigit() for letter in found[0])
        if 8 <= count <= 15 and (found[0][0] in "+(0" or count >= 10):
            yield found.span()
    yield from _spans(_PLUS_PHONE)(text)


def _addresses(text: str) -> Iterator[tuple[int, int]]:
    for found in _IP.finditer(text):
        try:
            ip_address(found[0])
        except ValueError:
            continue
        yield found.span()


def _key_blocks(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    while (begin := _KEY_BLOCK.search(text, at)) is not None:
        end = _KEY_END.search(text, begin.end())
        at = len(text) if end is None else end.end()
        yield begin.start(), at


PERSONAL: Mapping[str, Detector] = {
    "email": _spans(_EMAIL),
    "card": _cards,
    "iban": _ibans,
    "ssn": _spans(_SSN),
    "phone": _phones,
    "ip": _addresses,
}
"""Detectors of personal data by kind."""

SECRETS: Mapping[str, Detector] = {
    "key": _spans(_SECRET),
    "private key": _key_blocks,
    "password": _spans(_ASSIGNED, 1),
    "url password": _spans(_USERINFO, 1),
}
"""Detectors of secrets by kind."""
