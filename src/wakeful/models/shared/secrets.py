"""API keys, URLs and headers: validation, and removal of secrets from names and errors."""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from re import Pattern
from typing import Any, TypeVar, cast
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from ...errors import BadCredentials, ConfigurationError, ModelError

__all__ = [
    "Key",
    "check_address",
    "check_headers",
    "check_proxy",
    "check_url",
    "hide_secrets",
    "model_name",
    "redact",
    "redact_repr",
    "scrub",
    "secret_patterns",
]

E = TypeVar("E", bound=ModelError)

# Shorter secrets would match parts of ordinary words.
_MIN_LENGTH = 4
# The mask that vendors put between the start and the end of a key.
_MASKED = r"[\w-]*(?:[*•…]|\.\.|[xX]{4})[\w.*•…-]*"
# Matches a password with an unescaped slash, too: the text after the colon is then no port number.
_USERINFO = re.compile(r"(://)(?:[^/?#\s]*@|[^/?#\s@]*:(?!\d+(?:[/?#\s]|$))\S*@)")
_QUERY = re.compile(r"(://[^\s?#]*)[?#]\S*")
# The same inside a quoted Python string.
_QUOTED_QUERY = re.compile(r"(://[^\s?#'\"]*)[?#][^\s'\"]*")
_LOGIN = (
    " has a user or a password in it, which logs would show; give a key as api_key=... or in the environment, and "
    "any other login as headers={'Authorization': ...}"
)
_BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{20,}")
_PLAIN = re.compile(r"[!-~]+")


class Key:
    """An API key from an argument or the environment. It is read on use and never shown."""

    __slots__ = ("_given", "names")
    # Whether a request needs the key.
    is_required = True

    def __init__(self, given: str | None, *names: str) -> None:
        if not isinstance(cast(Any, given), str | None):
            raise ConfigurationError(f"api_key is a text, not of the type {type(given).__name__}")
        self._given = given
        self.names = names

    def __repr__(self) -> str:
        return f"Key({'given' if self._given else ' or '.join(self.names)})"

    __str__ = __repr__

    @property
    def found(self) -> str | None:
        """The key without surrounding whitespace; None if there is none."""
        return self._found()[1]

    def _found(self) -> tuple[str, str | None]:
        places = (("api_key=...", self._given), *((name, os.environ.get(name)) for name in self.names))
        return next(((where, key) for where, value in places if (key := (value or "").strip())), ("", None))

    def check(self, model: str) -> str | None:
        """Return the key, if any; raises `BadCredentials` if it has invalid characters."""
        where, key = self._found()
        if key is not None and _PLAIN.fullmatch(key) is None:
            raise BadCredentials(
                f"{model}: the key in {where} has a space, a line break or another character that no key has; "
                "copy it again, alone"
            )
        return key

    def require(self, model: str) -> str:
        """Return the key; raises `BadCredentials` if there is none."""
        if (key := self.check(model)) is None:
            names = " or ".join(self.names)
            raise BadCredentials(f"{model}: there is no key; set {names} in the environment, or pass api_key=...")
        return key


def model_name(vendor: str, model: str, address: str | None) -> str:
    """Build a model's name. It includes the address if that isn't the vendor's, to tell replicas apart."""
    return redact(f"{vendor}:{model}" + (f"@{address.rstrip('/')}" if address else ""))


def redact(text: str) -> str:
    """Remove credentials and queries from the URLs in a text, such as a model's name."""
    return _QUERY.sub(r"\1", _USERINFO.sub(r"\1", text)) if "://" in text else text


def redact_repr(shown: str) -> str:
    """Remove credentials and queries from the URLs in a `repr`."""
    return _QUOTED_QUERY.sub(r"\1", _USERINFO.sub(r"\1***@", shown)) if "://" in shown else shown


def check_url(model: str, url: Any, what: str = "its base URL") -> str:
    """Validate a base URL: HTTP, without credentials, query and fragment. `what` names it in errors."""
    subject = f"{redact(model)}: {what}"
    parts = _split(subject, url, ("http", "https"), "http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(subject + _LOGIN)
    if parts.query or parts.fragment:
        raise ConfigurationError(
            f"{subject} has a query or a fragment, behind a ? or a #, which no request would carry; remove it, "
            "and give a key as api_key=... or in headers={...}"
        )
    return url.strip()


def check_address(name: str) -> None:
    """Refuse a model name whose address has credentials: names appear in logs and events."""
    if _USERINFO.search(name) is not None:
        raise ConfigurationError(f"{redact(name)}: its base URL{_LOGIN}")


def check_proxy(model: str, url: Any) -> str:
    """Validate the URL of a proxy, which may have credentials."""
    _split(f"{model}: its proxy", url, ("http", "https", "socks5", "socks5h"), "http://127.0.0.1:3128")
    return url.strip()


def _split(subject: str, url: Any, schemes: tuple[str, ...], example: str) -> SplitResult:
    if not isinstance(url, str):
        raise ConfigurationError(f"{subject} is a text such as {example}, not {url!r:.80}")
    try:
        parts = urlsplit(url.strip())
        good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ConfigurationError(
            f"{subject} isn't a URL: its host or its port is wrong, or it has a character that must be written as "
            "in %2F"
        ) from None
    if not good:
        scheme, colon, _ = url.partition("://")
        known = " and ".join((", ".join(schemes[:-1]), schemes[-1]))
        why = f"the scheme {scheme!r} is none of {known}" if colon else "the scheme is missing"
        if colon and scheme in schemes:
            why = "it has no host, or its port is wrong"
        raise ConfigurationError(f"{subject} is wrong: {why}; write it as in {example}")
    return parts


def check_headers(model: str, headers: Any) -> dict[str, str]:
    """Validate headers and strip their values."""
    if not isinstance(headers, Mapping | None):
        raise ConfigurationError(f"{model}: headers is a dict of names and texts, not {type(headers).__name__}")
    found: dict[str, str] = {}
    for name, value in cast(Mapping[Any, Any], headers or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigurationError(
                f"{model}: headers have names and values that are texts; that of {name!r:.80} is of the type "
                f"{type(value).__name__}"
            )
        found[name] = value.strip()
    for name, value in found.items():
        if not (value.isascii() and (value.isprintable() or not value)):
            raise ConfigurationError(
                f"{model}: the value of the header {name!r} has a line break or another character that a header "
                "can't have"
            )
    return found


def secret_patterns(
    *keys: str | None, urls: Iterable[str | None] = (), headers: Iterable[str] = ()
) -> tuple[Pattern[str], ...]:
    """Build patterns for every form in which an error may repeat these secrets, longest first.

    They include keys that a vendor masked after the first characters. A very short key matches only as a whole
    word.
    """
    secrets = [key for key in keys if key]
    short = {key for secret in secrets if len(key := secret.strip()) < _MIN_LENGTH and key}
    begun = {secret.strip()[:_MIN_LENGTH] for secret in secrets if len(secret.strip()) >= 2 * _MIN_LENGTH}
    for url in urls:
        secrets += _in_url(url or "")
    for value in headers:
        secrets += _in_header(value)
    forms = {
        form
        for secret in secrets
        for one in (secret, secret.strip())
        for form in (one, repr(one)[1:-1], json.dumps(one)[1:-1], quote(one, safe=""))
        if len(form) >= _MIN_LENGTH
    }
    exact = [re.escape(form) for form in sorted(forms, key=len, reverse=True)]
    alone = [rf"(?<![\w-]){re.escape(form)}(?![\w-])" for form in sorted(short)]
    masked = [re.escape(form) + _MASKED for form in sorted(begun)]
    return tuple([re.compile(form) for form in (*exact, *masked, *alone)])


def _in_url(url: str) -> list[str]:
    found = [value for _, value in parse_qsl(url.partition("?")[2])]
    if (match := _USERINFO.search(url)) is not None:
        whole = match[0][3:-1]
        for info in (whole, unquote(whole)):
            user, colon, password = info.partition(":")
            found += [info, password, b64encode((info if colon else f"{user}:").encode()).decode()]
    return found


def _in_header(value: str) -> list[str]:
    scheme, _, credentials = value.strip().partition(" ")
    found = [value, credentials]
    if scheme.lower() == "basic":
        try:
            info = b64decode(credentials.strip()).decode()
        except ValueError:
            return found
        found += [info, info.partition(":")[2]]
    return found


def scrub(text: str, secrets: Iterable[Pattern[str]]) -> str:
    """Remove secrets from a text: some vendors and SDKs repeat them in errors."""
    for secret in secrets:
        text = secret.sub("***", text)
    return _BEARER.sub(r"\1***", _USERINFO.sub(r"\1***@", text))


def hide_secrets(error: E, secrets: Iterable[Pattern[str]]) -> E:
    """Remove secrets from an error before it leaves an adapter."""
    error.args = (scrub(str(error), secrets), *error.args[1:])
    if error.request_id is not None:
        error.request_id = scrub(error.request_id, secrets)
    return error
