"""Write docs/http-api-reference.md from the operations. A test compares the two.

Usage: python tools/http_reference.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wakeful.server.operations.document import document
from wakeful.server.operations.page import fields_of, needs_of, operations_of, parameters_of, replies_of, type_text

PAGE = Path(__file__).parent.parent / "docs" / "http-api-reference.md"

HEAD = """# HTTP API reference

Every operation of [the HTTP API](http-api.md), made from their declarations by `tools/http_reference.py`. A server
shows the same at `/docs`, with all schemas, and as OpenAPI 3.1 at `/openapi.json`. Errors are
[problems](http-api.md#errors).
"""


def reference() -> str:
    """The text of the page."""
    found = document()
    lines = [HEAD]
    for noun, operations in operations_of(found).items():
        lines.append(f"## {noun}\n")
        for method, path, each in operations:
            lines += _operation(method, path, each, found["components"]["schemas"])
    return "\n".join(lines).rstrip() + "\n"


def _operation(method: str, path: str, found: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    name = f"`{found['operationId']}` {needs_of(found)}."
    lines = [f"### {method} {path}\n", f"{found['summary']} {name}\n"]
    if found.get("description"):
        lines.append(" ".join(found["description"].split()) + "\n")
    given = [(name, place, kind) for name, place, kind in parameters_of(found) if place != "path"]
    rows = [f"| `{name}` | {place} | {_cell(kind)} |" for name, place, kind in given]
    if "requestBody" in found:
        (body,) = found["requestBody"]["content"].values()
        schema = schemas[type_text(body["schema"])]
        for name, kind, default in fields_of(schema):
            rows.append(f"| `{name}` | body{', required' if default == 'required' else ''} | {_cell(kind)} |")
    if rows:
        lines += ["| parameter | in | type |", "|---|---|---|", *rows, ""]
    replies = [
        f"{status} {_cell(kind)}".strip() if kind else status
        for status, _, kind in replies_of(found)
        if status < "6"
    ]
    good = [each for each in replies if each < "4"]
    bad = [each for each in replies if each >= "4"]
    lines.append(f"Replies: {', '.join(good)}. Errors: {', '.join(bad)}.\n")
    return lines


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(reference())
