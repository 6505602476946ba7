"""The protocols that a server offers beside the HTTP API, and the shapes of their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..api.problems import MEDIA_TYPE, Problem
from ..errors import ConfigurationError

__all__ = ["PROTOCOLS", "ErrorShapes", "load_protocols"]

PROTOCOLS = ("a2a", "agui", "aisdk", "openai")
"""The names of the protocols. Each is a package beside this module with `routes(serving)` and
`public_paths(serving)`. One that checks its callers itself has a `PREFIX`, below which are all its paths, and
`error_body(problem)`, the body of an error there."""

ErrorBody = Callable[[Problem], Any]


def load_protocols(names: Sequence[str]) -> list[ModuleType]:
    """Import the packages of these protocols."""
    if unknown := [name for name in names if name not in PROTOCOLS]:
        raise ConfigurationError(
            f"no protocol {', '.join(map(repr, unknown))}; there are {', '.join(PROTOCOLS)}, beside the HTTP API"
        )
    return [import_module(f".{name}", __package__) for name in dict.fromkeys(names)]


class ErrorShapes:
    """Gives problems the form that a path's protocol has for errors, whatever part of the server sends them."""

    def __init__(self, app: ASGIApp, shapes: Mapping[str, ErrorBody]) -> None:
        self._app = app
        self._shapes = shapes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; the body of a problem is replaced."""
        shape = self._shape_of(scope) if scope["type"] == "http" else None
        await self._app(scope, receive, send if shape is None else _shaped(send, shape))

    def _shape_of(self, scope: Scope) -> ErrorBody | None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        found = (shape for prefix, shape in self._shapes.items() if path.startswith(f"{prefix}/"))
        return next(found, None)


def _shaped(send: Send, shape: ErrorBody) -> Send:
    """A `send` that replaces the body of a problem. Problems are sent in one piece."""
    held: Message | None = None

    async def sending(message: Message) -> None:
        nonlocal held
        if message["type"] == "http.response.start" and _is_problem(message):
            held = message
            return
        if held is not None:
            body = msgspec.json.encode(shape(msgspec.json.decode(message["body"], type=Problem)))
            others = [(name, value) for name, value in held["headers"] if name not in _REPLACED]
            headers = [*others, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await send({**held, "headers": headers})
            message, held = {**message, "body": body}, None
        await send(message)

    return sending


_REPLACED = (b"content-type", b"content-length")


def _is_problem(start: Message) -> bool:
    return (b"content-type", MEDIA_TYPE.encode()) in start.get("headers", ())
