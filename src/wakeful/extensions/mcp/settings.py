"""The settings of an MCP server, and their checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

from ...tools import MAX_RESULT_BYTES
from ...types.base import Data
from ...types.calls import Effect
from ...types.runs import Principal

__all__ = ["Headers", "Protocol", "Settings", "Trust", "settings_problems"]

Trust = Literal["none", "hints"]
Protocol = Literal["auto", "2025-11-25", "2026-07-28"]
Headers = Mapping[str, str] | Callable[[Principal | None], Mapping[str, str]]

# With the prefix, a tool's name still has room for itself.
_NAME = re.compile(r"[A-Za-z0-9-](?:_?[A-Za-z0-9-]){0,31}\Z")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_CHOICES: dict[str, tuple[str, ...]] = {
    "trust": get_args(Trust),
    "elicitation": ("ask", "deny"),
    "protocol": get_args(Protocol),
}
_EFFECTS = ("pure", "idempotent", "once")


class Settings(Data):
    """How to reach a server, which of its tools are offered, and what is believed of it."""

    name: str
    url: str | None = None
    command: Sequence[str] | None = None
    server: Any = None
    env: Mapping[str, str] = {}
    cwd: str | None = None
    headers: Any = None
    timeout: float = 60.0
    connect_timeout: float = 10.0
    tools: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    effects: Mapping[str, Effect] = {}
    trust: Trust = "none"
    approval: bool | Mapping[str, bool] = False
    elicitation: Literal["ask", "deny"] = "ask"
    required: bool = False
    max_result_bytes: int = MAX_RESULT_BYTES
    protocol: Protocol = "auto"

    @property
    def where(self) -> str:
        """The server as errors name it, without credentials."""
        if self.url is not None:
            parts = urlsplit(self.url)
            return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
        return "in this process" if self.command is None else f"`{self.command[0]}`"


def settings_problems(given: Settings) -> Iterator[str]:
    """Yield what is wrong with the settings."""
    name: Any = given.name
    if not isinstance(name, str) or not _NAME.match(name):
        yield f"its name has 1 to 32 letters, digits, '-' or single '_', not {name!r:.80}"
    if find_spec("mcp") is None:
        yield "the SDK isn't installed: pip install 'wakeful[mcp]'"
    if sum(way is not None for way in (given.url, given.command, given.server)) != 1:
        yield "give one of url=..., command=[...] and server=..."
    else:
        yield from _address_problems(given)
    yield from _option_problems(given)
    yield from _pattern_problems(given)


def _address_problems(given: Settings) -> Iterator[str]:
    command: Any = given.command
    if given.url is not None:
        yield from _url_problems(given.url)
        if given.env or given.cwd:
            yield "env and cwd are for a server that is started by command=[...]"
    elif given.headers is not None:
        yield "headers are for a server at a url=..."
    if command is not None:
        is_list = isinstance(command, list | tuple)
        parts = cast(Sequence[Any], command) if is_list else ()
        if not parts or not all(isinstance(part, str) and part and "\0" not in part for part in parts):
            yield f"command is a list of a program and its arguments, not {command!r:.80}"
    yield from _header_problems(given.headers)


def _url_problems(url: Any) -> Iterator[str]:
    try:
        parts = urlsplit(str(url))
        is_url = isinstance(url, str) and parts.scheme in ("http", "https") and (parts.port or 1) > 0
    except ValueError:
        parts, is_url = urlsplit(""), False
    if not is_url or not parts.hostname:
        yield f"url begins with http:// or https:// and names a host, not {url!r:.80}"
    elif parts.username or parts.password:
        yield "url has a login in it, which logs would show; give headers={'Authorization': ...}"


def _header_problems(headers: Any) -> Iterator[str]:
    if headers is None or callable(headers):
        return
    if not isinstance(headers, Mapping):
        yield f"headers is a dict or a function of the principal, not of the type {type(headers).__name__}"
        return
    for name, value in cast(Mapping[Any, Any], headers).items():
        if not isinstance(name, str) or not _HEADER.match(name):
            yield f"headers has a name that HTTP doesn't allow: {name!r:.80}"
        elif not isinstance(value, str) or not value.isascii() or not value.isprintable():
            yield f"the header {name!r} has a value that HTTP doesn't allow"


def _option_problems(given: Settings) -> Iterator[str]:
    for option in ("timeout", "connect_timeout", "max_result_bytes"):
        value: Any = getattr(given, option)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            yield f"{option} is a positive number, not {value!r:.80}"
    for option, choices in _CHOICES.items():
        if getattr(given, option) not in choices:
            yield f"{option} is {' or '.join(map(repr, choices))}, not {getattr(given, option)!r:.80}"
    if not isinstance(cast(Any, given.required), bool):
        yield f"required is True or False, not {given.required!r:.80}"
    env: Any = given.env
    if not isinstance(env, Mapping) or not all(
        isinstance(k, str) and isinstance(v, str) for k, v in cast(Mapping[Any, Any], env).items()
    ):
        yield "env is a dict of texts"


def _pattern_problems(given: Settings) -> Iterator[str]:
    for option in ("tools", "exclude"):
        value: Any = getattr(given, option)
        texts = cast(Sequence[Any], value) if isinstance(value, list | tuple) else None
        if texts is None or not all(isinstance(text, str) and text for text in texts):
            yield f"{option} is a list of patterns of the server's tool names, not {value!r:.80}"
    effects: Any = given.effects
    if not isinstance(effects, Mapping):
        yield f"effects is a dict of patterns and effects, not {effects!r:.80}"
    else:
        for pattern, effect in cast(Mapping[Any, Any], effects).items():
            if not isinstance(pattern, str) or effect not in _EFFECTS:
                yield f"effects: {pattern!r:.40} is {' or '.join(map(repr, _EFFECTS))}, not {effect!r:.80}"
    approval: Any = given.approval
    if isinstance(approval, Mapping):
        for pattern, value in cast(Mapping[Any, Any], approval).items():
            if not isinstance(pattern, str) or not isinstance(value, bool):
                yield f"approval: {pattern!r:.40} is True or False, not {value!r:.80}"
    elif not isinstance(approval, bool):
        yield f"approval is True, False or a dict of patterns, not {approval!r:.80}"
