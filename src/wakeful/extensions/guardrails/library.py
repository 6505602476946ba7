"""Guardrails made of detectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec.structs import replace

from ...errors import ConfigurationError
from ...plugins import Block, Guardrail, Rewrite
from ...types.content import Content, Text, Thinking
from ...types.messages import Message
from .detectors import PERSONAL, SECRETS, Detector

__all__ = ["allowed_urls", "length_limit", "personal_data", "secrets"]

Action = Literal["redact", "block"]
Side = Literal["input", "output"]
BOTH: tuple[Side, ...] = ("input", "output")

# The most characters of a message that detectors read; a longer one is blocked.
MAX_READ = 1_000_000

_URL = re.compile(
    r"(?i)(?<![a-z0-9+.-])(?:https?|ftp|wss?)://[^\s<>\"'`]{1,4000}|(?<![:\w])//[\w.-]{1,253}\.[a-z]{2,24}[^\s<>\"'`]{0,4000}"
)
_TRAILING = ".,;:!?)]}*_"


def personal_data(
    *kinds: str, action: Action = "redact", on: Sequence[Side] = BOTH, more: Mapping[str, str] | None = None
) -> Guardrail:
    """Redact personal data, each span as `[email]`, or block the message.

    `kinds` are of `email`, `card`, `iban`, `ssn`, `phone` and `ip`; all by default. `more` has regular expressions
    of your own by kind; their speed is yours to mind. Patterns find what looks like such data, no names and no
    addresses of streets.
    """
    detectors = _chosen("personal_data", PERSONAL, kinds)
    for kind, text in (more or {}).items():
        try:
            pattern = re.compile(text)
        except (re.error, TypeError) as error:
            raise ConfigurationError(f"personal_data: more[{kind!r}] is no regular expression: {error}") from error
        detectors[kind] = lambda given, pattern=pattern: (found.span() for found in pattern.finditer(given))
    return _guardrail("personal-data", "personal data", detectors, action, on)


def secrets(*kinds: str, action: Action = "redact", on: Sequence[Side] = BOTH) -> Guardrail:
    """Redact keys, tokens and passwords, or block the message.

    `kinds` are of `key` (of well-known services), `private key`, `password` and `url password`; all by default.
    """
    return _guardrail("secrets", "a secret", _chosen("secrets", SECRETS, kinds), action, on)


def length_limit(characters: int, *, on: Sequence[Side] = ("input",)) -> Guardrail:
    """Block messages whose texts have more characters."""
    if type(characters) is not int or characters < 1:
        raise ConfigurationError(f"length_limit: characters is a count, 1 or more, not {characters!r:.80}")

    def judge(message: Message, ctx: Any) -> Block | None:
        size = sum(len(text) for text in _texts(message))
        return (
            None
            if size <= characters
            else Block(f"the message has {size:,} characters; the limit is {characters:,}")
        )

    return _sided("length", judge, on)


def allowed_urls(*hosts: str, action: Action = "redact", on: Sequence[Side] = ("output",)) -> Guardrail:
    """Redact addresses on other hosts than these, as `[url]`, or block the message.

    A host stands for itself, `*.example.com` for its subdomains. A link or an image to a foreign host can carry
    the conversation away in its address.
    """
    bad = [host for host in hosts if not re.fullmatch(r"(\*\.)?[\w-]+(\.[\w-]+)*", str(host))]
    if bad or not hosts:
        raise ConfigurationError(
            f"allowed_urls takes hosts such as 'example.com' and '*.example.com', not {bad!r:.80}"
        )
    exact = frozenset([host.lower() for host in hosts if not host.startswith("*.")])
    below = tuple([host[1:].lower() for host in hosts if host.startswith("*.")])

    def detect(text: str):
        for found in _URL.finditer(text):
            url = found[0].rstrip(_TRAILING)
            try:
                host = (urlsplit(url).hostname or "").rstrip(".")
            except ValueError:
                host = ""
            if "\\" in url or not (host in exact or host.endswith(below or ("\0",))):
                yield found.start(), found.start() + len(url)

    return _guardrail("urls", "an address on a host that isn't allowed", {"url": detect}, action, on)


# -- parts ---------------------------------------------------------------------------------------------------


def _chosen(what: str, known: Mapping[str, Detector], kinds: Sequence[str]) -> dict[str, Detector]:
    if unknown := [kind for kind in kinds if kind not in known]:
        raise ConfigurationError(
            f"{what}: no kind {', '.join(map(repr, unknown))}; the kinds are {', '.join(known)}"
        )
    return {kind: known[kind] for kind in kinds or known}


def _guardrail(
    name: str, what: str, detectors: Mapping[str, Detector], action: Action, on: Sequence[Side]
) -> Guardrail:
    if action not in ("redact", "block"):
        raise ConfigurationError(f"{name}: action is 'redact' or 'block', not {action!r:.80}")

    def judge(message: Message, ctx: Any) -> Block | Rewrite | None:
        texts = _texts(message)
        if sum(map(len, texts)) > MAX_READ:
            return Block(f"the message is too long to be checked for {what}: over {MAX_READ:,} characters")
        if action == "block":
            found = next((kind for text in texts for kind, spans in detectors.items() if any(spans(text))), None)
            return None if found is None else Block(f"the message has {what} ({found})")
        parts = [_redacted(part, detectors) for part in message.content]
        return None if parts == list(message.content) else Rewrite(parts)

    return _sided(name, judge, on)


def _sided(name: str, judge: Callable[[Message, Any], Any], on: Sequence[Side]) -> Guardrail:
    if isinstance(on, str) or not on or not set(on) <= set(BOTH):
        raise ConfigurationError(f"{name}: on is a list of 'input' and 'output', not {on!r:.80}")
    return Guardrail(name, input=judge if "input" in on else None, output=judge if "output" in on else None)


def _texts(message: Message) -> list[str]:
    """The texts of a message, reasoning included."""
    return [part.text for part in message.content if isinstance(part, Text | Thinking)]


def _redacted(part: Content, detectors: Mapping[str, Detector]) -> Content:
    """A part without what was found. Signed reasoning stays: its vendor refuses a changed one."""
    if not isinstance(part, Text) and not (isinstance(part, Thinking) and part.signature is None):
        return part
    text = _redact(part.text, detectors)
    return part if text == part.text else replace(part, text=text)


def _redact(text: str, detectors: Mapping[str, Detector]) -> str:
    """The text with each span replaced by its kind. Of spans that overlap, the first kind names all."""
    spans = [(*span, kind) for kind, detect in detectors.items() for span in detect(text)]
    if not spans:
        return text
    order = {kind: place for place, kind in enumerate(detectors)}
    spans.sort(key=lambda span: (span[0], order[span[2]]))
    pieces: list[str] = []
    at, last = 0, -1
    for start, end, kind in spans:
        if start >= last:
            pieces += [text[at:start], f"[{kind}]"]
        at = last = max(last, end)
    return "".join([*pieces, text[at:]])
