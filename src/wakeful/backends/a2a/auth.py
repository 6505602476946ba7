"""Authentication at a remote agent: a bearer token, an API key, or OAuth2 client credentials."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from ...errors import ConfigurationError, NoCredentials
from ...errors.arguments import Checked

__all__ = ["ApiKey", "Auth", "Bearer", "Env", "OAuth2", "Secret", "reveal"]


class Env(Struct, metaclass=Checked, frozen=True):
    """A secret in an environment variable, read on each use."""

    name: str


# The secret itself, an environment variable, or a function, sync or async, that returns the secret.
Secret = str | Env | Callable[[], str | Awaitable[str]]


def _hidden(secret: Secret) -> str:
    return repr(secret) if isinstance(secret, Env) else "***"


class Bearer(Struct, metaclass=Checked, frozen=True):
    """`Authorization: Bearer <token>`."""

    token: Secret

    def __repr__(self) -> str:
        return f"Bearer({_hidden(self.token)})"


class ApiKey(Struct, metaclass=Checked, frozen=True):
    """An API key in a header such as `X-API-Key`."""

    header: str
    key: Secret

    def __repr__(self) -> str:
        return f"ApiKey({self.header!r}, {_hidden(self.key)})"


class OAuth2(Struct, metaclass=Checked, frozen=True):
    """OAuth2 client credentials: tokens come from `token_url` and are renewed before they expire."""

    token_url: str
    client_id: str
    client_secret: Secret
    scopes: Sequence[str] = ()

    def __repr__(self) -> str:
        secret = _hidden(self.client_secret)
        return f"OAuth2({self.token_url!r}, {self.client_id!r}, {secret}, {tuple(self.scopes)!r})"


Auth = Bearer | ApiKey | OAuth2


async def reveal(secret: Secret, what: str) -> str:
    """Resolve a secret to its value; `what` names it in errors, such as "Bearer's token"."""
    if isinstance(secret, str):
        value = secret
    elif isinstance(secret, Env):
        value = os.environ.get(secret.name, "")
        if not value:
            raise ConfigurationError(f"the environment variable {secret.name!r} holds no secret: set it")
    else:
        value = await _call_function(secret, what)
        if not isinstance(value, str):
            given = type(value).__name__
            raise ConfigurationError(f"{_describe(secret)}, which {what} comes from, gave a {given}, not a text")
    value = value.strip()  # Files and shells add a line break.
    if not value or not value.isascii() or not value.isprintable():
        raise ConfigurationError(f"{what} is empty, or no header can carry it: check where it comes from")
    return value


async def _call_function(secret: Callable[[], str | Awaitable[str]], what: str) -> Any:
    try:
        found: Any = secret()
        return await found if inspect.isawaitable(found) else found
    except Exception as error:
        # The error's message and cause may quote the secret, and this error is stored.
        raise NoCredentials(
            f"{_describe(secret)}, which {what} comes from, raised {type(error).__name__}; its message isn't "
            "shown, as it may hold the secret: call the function to see why, and retry the run once it returns one"
        ) from None


def _describe(function: Any) -> str:
    """Name a function with its file and line, as many are lambdas."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    line = "" if code is None else f" ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
    return f"the function {getattr(function, '__module__', '')}.{name}{line}"
