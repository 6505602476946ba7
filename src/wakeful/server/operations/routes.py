"""Routes of the operations: match, check rights, decode, call the handler, encode."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_origin, get_type_hints
from urllib.parse import quote, unquote

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from ...errors import NotAllowed
from ...identity import AUTHENTICATED, PUBLIC
from ..problems import error_response, problem_of, problem_response
from ..serving import Serving
from ..sse import EventStream
from .call import Call, Reply
from .operation import Operation

# A browser that is led to a reply neither guesses its type nor runs what is in it.
HEADERS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
}

__all__ = ["ApiRoute", "InvalidQuery", "encode", "routes_of"]


class InvalidQuery(msgspec.ValidationError):
    """A query parameter is unknown or has an invalid value."""


class ApiRoute(BaseRoute):
    """All operations of one path.

    Segments are matched before they are decoded, so that an id may contain an encoded slash.
    """

    def __init__(self, serving: Serving, path: str, operations: Mapping[str, Operation]) -> None:
        self.path = path
        self.methods = [*operations, *(["HEAD"] if "GET" in operations else [])]
        self._serving = serving
        self._operations = operations
        pattern = re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)
        self._match = re.compile(pattern).fullmatch

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a request's path."""
        if scope["type"] != "http":
            return Match.NONE, {}
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        path = raw.decode("latin-1").partition("?")[0].removeprefix(quote(scope.get("root_path", "")))
        found = self._match(path)
        if found is None:
            return Match.NONE, {}
        params = {name: unquote(text) for name, text in found.groupdict().items()}
        return Match.FULL, {"path_params": params, "endpoint": self}

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        """Operations have no names in Starlette's sense."""
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        operation = self._operations.get(method)
        if operation is None:
            allow = ", ".join(self.methods)
            response = problem_response(problem_of(405, f"{self.path} takes {allow}"), allow=allow)
            await response(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await _respond(self._serving, operation, request)
        except Exception as error:
            response = error_response(error)
        await response(scope, receive, send)


async def _respond(serving: Serving, operation: Operation, request: Request) -> Any:
    call = Call(serving, operation, request.scope["caller"], request)
    try:
        return await _handle(call, request)
    except NotAllowed:
        kind, an_id = next(iter(request.path_params.items()), (operation.name.partition(".")[0], None))
        await call.audit_refusal(kind, an_id)
        raise


async def _handle(call: Call, request: Request) -> Any:
    operation = call.operation
    if operation.scope not in (PUBLIC, AUTHENTICATED) and not call.caller.may(operation.scope):
        raise NotAllowed(
            f"{operation.name} needs the scope {operation.scope!r}, which this credential doesn't have",
            operation.scope,
        )
    given: dict[str, Any] = dict(request.path_params)
    if operation.query is not None:
        given["query"] = decode_query(operation.query, request.query_params)
    elif request.query_params:
        raise InvalidQuery(f"{operation.name} takes no query parameters")
    if operation.body is not None:
        call.body = await request.body()
        given["body"] = msgspec.json.decode(call.body or b"{}", type=operation.body)
    return _response_of(operation, await operation.handler(call, **given))


def _response_of(operation: Operation, value: Any) -> Any:
    if isinstance(value, Response | EventStream):
        return value
    headers = dict(HEADERS)
    status = operation.statuses[0]
    if operation.content_type != "application/json":
        headers["content-disposition"] = "attachment"
    if isinstance(value, Reply):
        headers, status, value = {**headers, **value.headers}, value.status or status, value.value
    if (value is None and operation.reply is None) or status == 204:
        return Response(None, 204, headers)
    if isinstance(value, bytes):
        return Response(value, status, headers, operation.content_type)
    return Response(encode(value), status, headers, operation.content_type)


def decode_query(kind: Any, params: QueryParams) -> Any:
    """Query parameters as a struct. Parameters of tuples may be repeated."""
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for name in params:
        if name not in hints:
            raise InvalidQuery(f"there is no query parameter {name!r:.80}; there are {', '.join(hints) or 'none'}")
        values = params.getlist(name)
        is_list = get_origin(hints[name]) is tuple
        if len(values) > 1 and not is_list:
            raise InvalidQuery(f"the query parameter {name!r} is given {len(values)} times; give it once")
        given[name] = values if is_list else values[0]
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidQuery(str(error).replace("`$.", "`$.query.")) from None


def _dump(value: Any) -> Any:
    """The JSON form of an output that msgspec doesn't know: that of a pydantic model."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return dump(mode="json", by_alias=True)


encode = msgspec.json.Encoder(enc_hook=_dump).encode


def routes_of(serving: Serving, table: Mapping[str, Operation]) -> list[BaseRoute]:
    """Make a route for each path of a table of operations."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in table.values():
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [ApiRoute(serving, path, found) for path, found in by_path.items()]
