"""Operations: the declaration of a method and path, from which route, checks and document are made."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, get_type_hints

from msgspec import Struct

from ...errors import ConfigurationError, WakefulError
from ...identity import AUTHENTICATED, PUBLIC, SCOPES

__all__ = ["OPERATIONS", "Lines", "Operation", "Stream", "op"]

Handler = Callable[..., Coroutine[Any, Any, Any]]


class Stream:
    """The reply of an operation that sends server-sent events of a type."""


class Lines:
    """The reply of an operation that sends lines of JSON."""


class Operation(Struct, frozen=True, eq=False, kw_only=True):
    """An operation of the HTTP API.

    `name` is `noun.verb`. `body` and `query` are the structs that its handler takes, `reply` the type that it
    returns: a struct, `Stream`, `Lines`, or None for no content. `statuses` are the successful ones.
    `is_repeatable` says that it takes an `Idempotency-Key`, `has_version` that it takes `If-Match`. `errors` are
    the errors of its own, beside those that every operation has.
    """

    name: str
    method: str
    path: str
    scope: str
    handler: Handler
    summary: str
    description: str
    body: Any
    query: Any
    reply: Any
    statuses: tuple[int, ...]
    errors: tuple[type[WakefulError], ...]
    is_repeatable: bool
    has_version: bool
    content_type: str

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path's parameters."""
        return tuple(re.findall(r"{(\w+)(?::\w+)?}", self.path))


OPERATIONS: dict[str, Operation] = {}
"""All operations by name, in the order of their declaration."""


def op(
    name: str,
    method: str,
    path: str,
    *,
    scope: str,
    reply: Any = None,
    statuses: tuple[int, ...] = (200,),
    errors: tuple[type[WakefulError], ...] = (),
    repeatable: bool = False,
    versioned: bool = False,
    content_type: str = "application/json",
    table: dict[str, Operation] = OPERATIONS,
) -> Callable[[Handler], Handler]:
    """Declare an operation, which replies with a value of the type `reply`, or with 204 if that is None.

    Its handler takes the `Call`, the path's parameters, and a `body` and a `query` if it has those; annotations
    give their types. `table` is the table of a protocol's operations, by default that of the HTTP API. Raises
    `ConfigurationError` for a scope that doesn't exist.
    """
    if scope not in (PUBLIC, AUTHENTICATED) and scope not in SCOPES:
        raise ConfigurationError(
            f"operation {name} has the scope {scope!r}, which isn't in SCOPES; declare it there"
        )
    if name in table:
        raise ConfigurationError(f"two operations are called {name}")

    def declare(handler: Handler) -> Handler:
        hints: Mapping[str, Any] = get_type_hints(handler)
        summary, _, description = (handler.__doc__ or "").partition("\n")
        found = Operation(
            name=name,
            method=method,
            path=path,
            scope=scope,
            handler=handler,
            summary=summary.strip(),
            description=re.sub(r"\n\s+", "\n", description).strip(),
            body=hints.get("body"),
            query=hints.get("query"),
            reply=reply,
            statuses=statuses if reply is not None else (204,),
            errors=errors,
            is_repeatable=repeatable,
            has_version=versioned,
            content_type=content_type,
        )
        taken = set(hints) - {"call", "body", "query", "return"}
        if taken != set(found.parameters):
            raise ConfigurationError(
                f"operation {name} takes {sorted(taken)}, but its path has {found.parameters}"
            )
        table[name] = found
        return handler

    return declare
