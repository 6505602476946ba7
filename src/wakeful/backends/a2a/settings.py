"""Settings of a remote agent: URL, authentication, effect, timeouts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal, cast, get_args

from msgspec import Struct

from ...errors import InvalidConfig, RemoteError
from .auth import ApiKey, Auth, Bearer, Env, OAuth2
from .urls import check_url

__all__ = ["Effect", "Settings", "settings_of"]

Effect = Literal["pure", "idempotent", "once"]


class Settings(Struct, frozen=True):
    """The settings of one remote agent. `timeout` and `connect_timeout` are in seconds."""

    url: str
    auth: Auth | None = None
    effect: Effect = "once"
    timeout: float = 300.0
    connect_timeout: float = 5.0
    allow_private: bool = False
    hosts: Sequence[str] = ()


def settings_of(endpoint: Mapping[str, Any]) -> Settings:
    """Read and check the settings of an endpoint; raises `InvalidConfig`. `auth` may be data."""
    unknown = sorted(set(endpoint) - set(Settings.__struct_fields__))
    if unknown:
        raise InvalidConfig(
            f"unknown setting {unknown[0]!r}: an A2A endpoint has {', '.join(Settings.__struct_fields__)}"
        )
    given: dict[str, Any] = {"url": "", **endpoint, "auth": _auth_of(endpoint.get("auth"))}
    settings = Settings(**given)
    if not isinstance(cast(Any, settings.url), str):
        raise InvalidConfig(f"the agent's address is a URL, not {settings.url!r:.80}")
    try:
        check_url(settings.url, "the agent's address")
    except RemoteError as error:
        raise InvalidConfig(error.detail) from None
    if settings.effect not in get_args(Effect):
        raise InvalidConfig(
            f"effect={settings.effect!r} can't be kept with a remote agent: {', '.join(get_args(Effect))} can"
        )
    if type(settings.timeout) not in (int, float) or not settings.timeout > 0:
        raise InvalidConfig(f"timeout={settings.timeout!r:.80} is no time: give a positive number of seconds")
    if type(settings.connect_timeout) not in (int, float) or not settings.connect_timeout >= 0:
        raise InvalidConfig(
            f"connect_timeout={settings.connect_timeout!r:.80} is no time: give a number of seconds, or 0"
        )
    if not isinstance(cast(Any, settings.allow_private), bool):
        raise InvalidConfig(f"allow_private is True or False, not {settings.allow_private!r:.80}")
    hosts = cast(Any, settings.hosts)
    if isinstance(hosts, str) or not all(isinstance(host, str) and host for host in hosts):
        raise InvalidConfig(f"hosts is a list of host names, not {hosts!r:.80}")
    for package in ("a2a", "httpx"):
        if find_spec(package) is None:
            raise InvalidConfig(f"agents behind A2A need the package {package!r}: pip install 'wakeful[a2a]'")
    return settings


_AUTH: dict[str, type[Auth]] = {"bearer": Bearer, "api_key": ApiKey, "oauth2": OAuth2}


_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def _auth_of(given: Any) -> Auth | None:
    """Read auth from an object or from data such as `{"type": "bearer", "token": {"env": "NAME"}}`."""
    if given is None:
        return None
    if isinstance(given, Bearer | ApiKey | OAuth2):
        return _check_auth(given)
    if not isinstance(given, Mapping):
        raise InvalidConfig(f"auth must be a Bearer, an ApiKey or an OAuth2, not a {type(given).__name__}")
    fields = dict(cast(Mapping[str, Any], given))
    kind = _AUTH.get(str(fields.pop("type", "")))
    if kind is None:
        raise InvalidConfig(f"auth needs a type: one of {', '.join(_AUTH)}")
    try:
        return _check_auth(kind(**{name: _secret_of(value) for name, value in fields.items()}))
    except TypeError as error:
        raise InvalidConfig(f"auth of type {kind.__name__}: {error}") from None


def _check_auth(auth: Auth) -> Auth:
    """Check the fields of auth; errors never show a value, which may be a secret."""
    for name in auth.__struct_fields__:
        value: Any = getattr(auth, name)
        if name in ("token", "key", "client_secret"):
            fits, should = isinstance(value, str | Env) or callable(value), "a text, an Env or a function"
        elif name == "scopes":
            scopes = cast(list[Any], value) if isinstance(value, list | tuple) else [None]
            fits, should = all(isinstance(scope, str) for scope in scopes), "a list of texts"
        elif name == "header":
            fits, should = (
                isinstance(value, str) and _HEADER.fullmatch(value),
                "a header's name, such as X-API-Key",
            )
        else:
            fits, should = isinstance(value, str) and bool(value), "a text that isn't empty"
        if not fits:
            given = "what it holds" if isinstance(value, str) else f"a {type(cast(Any, value)).__name__}"
            raise InvalidConfig(f"auth: {type(auth).__name__}'s {name} is {should}, not {given}")
    if isinstance(auth, OAuth2):
        try:
            check_url(auth.token_url, "the token's address")
        except RemoteError as error:
            raise InvalidConfig(error.detail) from None
    return auth


def _secret_of(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    fields = cast(Mapping[str, Any], value)
    return Env(str(fields["env"])) if set(fields) == {"env"} else fields
