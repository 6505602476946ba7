"""The OpenAPI 3.1 document of the operations, and the page that shows it to a person."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any, get_type_hints

import msgspec
from starlette.responses import Response

from ...api.problems import MEDIA_TYPE, Problem, status_of
from ...identity import PUBLIC, SCOPES
from ...types.events import AnyEvent
from .call import Call
from .operation import OPERATIONS, Lines, Operation, Stream, op

__all__ = ["document"]

# The path parameter that a reply has the value of, and where.
_LINKS = {
    "runs.create": ("run", "/run_id"),
    "threads.send": ("thread", "/thread_id"),
    "threads.fork": ("thread", "/thread_id"),
    "threads.import": ("thread", "/thread_id"),
    "tasks.create": ("task", "/id"),
    "schedules.put": ("name", "/name"),
    "keys.create": ("key", "/key/id"),
    "tickets.comment": ("ticket", "/id"),
}
# One server-sent event. Its data is an event as JSON, or {"reason": ...} in the last one.
_FRAME = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["event", "data"],
}
_REF = "#/components/schemas/{name}"
# Errors that every operation has; operations with a body, a query or a key have more.
_COMMON = {"400": "The request is invalid.", "500": "The server failed.", "503": "The store can't be reached."}
_KEYED = {"422": "The key was used for another request, or the content can't be processed."}


@op("api.document", "GET", "/openapi.json", scope=PUBLIC, reply=dict[str, Any])
async def show(call: Call) -> Any:
    """The OpenAPI 3.1 document of this API."""
    return Response(_encoded(), media_type="application/json")


@cache
def _encoded() -> bytes:
    return msgspec.json.encode(document())


def document() -> dict[str, Any]:
    """Build the OpenAPI document."""
    operations = list(OPERATIONS.values())
    types = _types(operations)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema_of = dict(zip([_key(each) for each in types], schemas, strict=True))
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "wakeful", "version": version("wakeful"), "summary": "Durable agents over HTTP."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, a token or a JWT."}
            },
        },
        "x-scopes": dict(SCOPES),
    }


def _types(operations: list[Operation]) -> list[Any]:
    found: list[Any] = [Problem, AnyEvent]
    for operation in operations:
        if operation.body is not None:
            found.append(operation.body)
        if operation.reply not in (None, Stream, Lines):
            found.append(operation.reply)
        if operation.query is not None:
            found += get_type_hints(operation.query).values()
    unique = {_key(each): each for each in found}
    return list(unique.values())


def _key(kind: Any) -> str:
    return repr(kind)


def _links(operation: Operation) -> dict[str, Any]:
    """Links from a reply to the operations on what it names."""
    found = _LINKS.get(operation.name)
    if found is None:
        return {}
    name, where = found
    targets = [each for each in OPERATIONS.values() if each.parameters == (name,) and each.name != operation.name]
    return {
        each.name: {"operationId": each.name, "parameters": {name: f"$response.body#{where}"}} for each in targets
    }


def _describe(operation: Operation, schema_of: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.name.partition(".")[0]],
        "summary": operation.summary,
        "parameters": _parameters(operation, schema_of),
        "responses": _responses(operation, schema_of),
        "security": [] if operation.scope == PUBLIC else [{"bearer": []}],
        "x-scope": operation.scope,
    }
    if operation.description:
        found["description"] = operation.description
    if operation.body is not None:
        schema = schema_of[_key(operation.body)]
        is_required = any(field.required for field in msgspec.structs.fields(operation.body))
        found["requestBody"] = {"required": is_required, "content": {"application/json": {"schema": schema}}}
    return found


def _parameters(operation: Operation, schema_of: dict[str, Any]) -> list[dict[str, Any]]:
    found = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in operation.parameters
    ]
    if operation.query is not None:
        hints = get_type_hints(operation.query)
        for field in msgspec.structs.fields(operation.query):
            schema = schema_of[_key(hints[field.name])]
            found.append({"name": field.name, "in": "query", "required": field.required, "schema": _plain(schema)})
    if operation.is_repeatable:
        key: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[\\x21-\\x7e]+$"}
        found.append({"name": "Idempotency-Key", "in": "header", "required": False, "schema": key})
    if operation.has_version:
        found.append({"name": "If-Match", "in": "header", "required": False, "schema": {"type": "string"}})
    return found


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A query parameter is left out rather than null."""
    kept = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    return kept[0] if len(kept) == 1 else schema


def _responses(operation: Operation, schema_of: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status in operation.statuses:
        found[str(status)] = {"description": operation.summary, **_content(operation, status, schema_of)}
        if links := _links(operation):
            found[str(status)]["links"] = links
    problem = {"content": {MEDIA_TYPE: {"schema": schema_of[_key(Problem)]}}}
    texts = dict(_COMMON)
    if operation.scope != PUBLIC:
        texts |= {"401": "There is no valid credential.", "403": "The credential doesn't permit it."}
        texts["429"] = "There are too many requests."
    if operation.body is not None:
        texts |= {"413": "The body is too large.", "415": "The body isn't JSON."}
    if operation.is_repeatable:
        texts |= _KEYED
    if operation.parameters:
        texts["404"] = "There is no such resource for this caller."
    if operation.has_version:
        texts |= {"412": "The resource changed.", "428": "If-Match is missing."}
    for error in operation.errors:
        status = str(status_of(error))
        texts[status] = (error.__doc__ or "").partition("\n")[0]
    return found | {status: {"description": text, **problem} for status, text in sorted(texts.items())}


def _content(operation: Operation, status: int, schema_of: dict[str, Any]) -> dict[str, Any]:
    if operation.reply is None or status == 204:
        return {}
    if operation.reply is Stream:
        return {"content": {"text/event-stream": {"schema": _FRAME, "x-event": schema_of[_key(AnyEvent)]}}}
    if operation.reply is Lines:
        return {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
    return {"content": {operation.content_type: {"schema": schema_of[_key(operation.reply)]}}}
