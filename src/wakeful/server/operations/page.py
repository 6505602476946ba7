"""The page that shows the API to a person: plain HTML without scripts, made of the OpenAPI document."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from html import escape
from typing import Any

from starlette.responses import Response

from ...identity import PUBLIC
from .call import Call
from .document import document
from .operation import op

__all__ = ["fields_of", "needs_of", "operations_of", "parameters_of", "replies_of", "type_text"]

_STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 20%, transparent) }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem }
h2 { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 1rem }
h3 { margin: 2rem 0 .25rem } h3 code { font-size: 1.05em }
code { font: .92em ui-monospace, monospace } p { margin: .4rem 0 }
table { border-collapse: collapse; margin: .5rem 0; width: 100% }
td, th { border-bottom: 1px solid var(--line); padding: .2rem .6rem .2rem 0 }
td, th { text-align: left; vertical-align: top }
nav { columns: 12rem } nav a { display: block } small { opacity: .75 }
"""
_POLICY = f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'"


@op("api.page", "GET", "/docs", scope=PUBLIC, reply=str, content_type="text/html")
async def show(call: Call) -> Any:
    """This API as a page for people, which needs no other server."""
    headers = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff"}
    return Response(_page(), headers=headers, media_type="text/html")


def operations_of(found: Mapping[str, Any]) -> dict[str, list[tuple[str, str, dict[str, Any]]]]:
    """The operations of a document by noun: method, path and description of each."""
    nouns: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in found["paths"].items():
        for method, each in methods.items():
            nouns.setdefault(each["tags"][0], []).append((method.upper(), path, each))
    return nouns


def needs_of(operation: Mapping[str, Any]) -> str:
    """The credential or the scope that an operation needs."""
    match operation["x-scope"]:
        case "public":
            return "needs no credential"
        case "authenticated":
            return "needs a credential"
        case scope:
            return f"needs the scope {scope}"


def parameters_of(operation: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The parameters of an operation: name, place and type."""
    return [(each["name"], each["in"], type_text(each["schema"])) for each in operation["parameters"]]


def replies_of(operation: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The replies of an operation: status, meaning and type; of an error its type is left out."""
    found: list[tuple[str, str, str]] = []
    for status, reply in operation["responses"].items():
        content = reply.get("content", {})
        kinds = [
            "server-sent events" if kind == "text/event-stream" else type_text(each["schema"])
            for kind, each in content.items()
        ]
        found.append((status, reply["description"], "" if status >= "4" else ", ".join(kinds)))
    return found


def fields_of(schema: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The fields of a schema: name, type, and `required` or the default."""
    required = schema.get("required", ())
    return [
        (name, type_text(each), "required" if name in required else _default(each))
        for name, each in schema.get("properties", {}).items()
    ]


def _default(schema: Mapping[str, Any]) -> str:
    return "" if schema.get("default") in (None, "", [], {}) else repr(schema["default"])


def type_text(schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(type_text(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(str(each) for each in schema["enum"])
    match schema.get("type"):
        case "array" if schema.get("items"):
            return f"list of {type_text(schema['items'])}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"map of {type_text(schema['additionalProperties']) or 'any'}"
        case None:
            return "any"
        case kind:
            return str(kind)


@cache
def _page() -> bytes:
    found = document()
    nouns = operations_of(found)
    schemas = found["components"]["schemas"]
    menu = "".join([f'<a href="#{escape(noun)}">{escape(noun)}</a>' for noun in [*nouns, "schemas"]])
    parts = [
        f"<h1>wakeful {escape(found['info']['version'])}</h1>",
        '<p>The HTTP API. <a href="openapi.json">openapi.json</a> describes it for programs.</p>',
        f"<nav>{menu}</nav>",
    ]
    for noun, operations in nouns.items():
        parts.append(f'<h2 id="{escape(noun)}">{escape(noun)}</h2>')
        parts += [_operation(*each) for each in operations]
    parts.append('<h2 id="schemas">schemas</h2>')
    parts += [_schema(name, each) for name, each in sorted(schemas.items())]
    head = f'<meta charset="utf-8"><title>wakeful: HTTP API</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'.encode()


def _operation(method: str, path: str, found: Mapping[str, Any]) -> str:
    needs = needs_of(found)
    parts = [
        f"<h3><code>{method} {escape(path)}</code></h3>",
        f"<p>{escape(found['summary'])} <small>({escape(found['operationId'])}, {escape(needs)})</small></p>",
    ]
    parts += [f"<p>{escape(each)}</p>" for each in found.get("description", "").split("\n\n") if each]
    parts.append(_table(("parameter", "in", "type"), parameters_of(found)))
    if "requestBody" in found:
        (body,) = found["requestBody"]["content"].values()
        parts.append(f"<p>Body: <code>{escape(type_text(body['schema']))}</code></p>")
    parts.append(_table(("status", "meaning", "reply"), replies_of(found)))
    return "".join(parts)


def _schema(name: str, found: Mapping[str, Any]) -> str:
    text = f"<p>{escape(found.get('description', ''))}</p>"
    kind = "" if "properties" in found else f"<p><code>{escape(type_text(found))}</code></p>"
    return f"<h3>{escape(name)}</h3>{text}{kind}{_table(('field', 'type', ''), fields_of(found))}"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    body = "".join(["<tr>" + "".join([f"<td>{escape(cell)}</td>" for cell in row]) + "</tr>" for row in rows])
    if not body:
        return ""
    return "<table><tr>" + "".join([f"<th>{escape(each)}</th>" for each in head]) + f"</tr>{body}</table>"
