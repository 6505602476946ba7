"""Who we are to a remote agent: a bearer token, an API key, or OAuth2 client credentials."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from ...errors import ConfigurationError, NoCredentials
from ...errors._arguments import Checked

__all__ = ["ApiKey", "Auth", "Bearer", "Env", "OAuth2", "Secret", "reveal"]


class Env(Struct, metaclass=Checked, frozen=True):
    """A secret that an environment variable holds, read whenever it is needed."""

    name: str


# As it is, from the environment, or from a function that may be async: definitions of agents need not hold it.
Secret = str | Env | Callable[[], str | Awaitable[str]]


def _hidden(secret: Secret) -> str:
    return repr(secret) if isinstance(secret, Env) else "***"


class Bearer(Struct, metaclass=Checked, frozen=True):
    """`Authorization: Bearer <token>`."""

    token: Secret

    def __repr__(self) -> str:
        return f"Bearer({_hidden(self.token)})"


class ApiKey(Struct, metaclass=Checked, frozen=True):
    """A key in a header of its own, such as `X-API-Key`."""

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
    """The secret itself; `what` it is, such as Bearer's token, names it in errors."""
    if isinstance(secret, str):
        value = secret
    elif isinstance(secret, Env):
        value = os.environ.get(secret.name, "")
        if not value:
            raise ConfigurationError(f"the environment variable {secret.name!r} holds no secret: set it")
    else:
        value = await _asked(secret, what)
        if not isinstance(value, str):
            given = type(value).__name__
            raise ConfigurationError(f"{_function(secret)}, which {what} comes from, gave a {given}, not a text")
    # What a file or a shell adds at the end is no part of a secret, and no header can carry it.
    value = value.strip()
    if not value or not value.isascii() or not value.isprintable():
        raise ConfigurationError(f"{what} is empty, or no header can carry it: check where it comes from")
    return value


async def _asked(secret: Callable[[], str | Awaitable[str]], what: str) -> Any:
    try:
        found: Any = secret()
        return await found if inspect.isawaitable(found) else found
    except Exception as error:
        # Neither its words nor its cause: they may quote the secret, and this is written down.
        raise NoCredentials(
            f"{_function(secret)}, which {what} comes from, raised {type(error).__name__}; what it said isn't "
            "shown, for it may hold the secret: call it by itself to see why, and retry the run once it gives one"
        ) from None


def _function(function: Any) -> str:
    """A function by its name, and by its place, for many are lambdas."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    place = "" if code is None else f" ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
    return f"the function {getattr(function, '__module__', '')}.{name}{place}"
