"""The reference of the HTTP API is that of the operations, and the server shows it to a person."""

from __future__ import annotations

import html
import sys
from pathlib import Path

import httpx

from wakeful import Agent, Runtime, ScriptedModel
from wakeful.server import app, lifespan
from wakeful.server.operations import OPERATIONS

ROOT = Path(__file__).parents[2]


def test_reference_is_that_of_the_operations() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    import http_reference

    assert http_reference.PAGE.read_text() == http_reference.reference(), "run: python tools/http_reference.py"


async def test_page_shows_every_operation_without_scripts() -> None:
    served = app(Runtime([Agent("desk", model=ScriptedModel([]))]), auth=lambda _: None)  # type: ignore[arg-type]
    async with (
        lifespan(served),
        httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://x") as http,
    ):
        page = await http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    for operation in OPERATIONS.values():
        assert f"<code>{operation.method} {html.escape(operation.path)}</code>" in page.text
    assert "<script" not in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text
