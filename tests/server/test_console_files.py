"""The console's files: where they are served, and what a browser is told about them."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from server.http_serving import office, serve_people
from wakeful.errors import ConfigurationError
from wakeful.server import ConsoleLogin
from wakeful.server.console import routes

PAGE = '<html><head><base href="/console/" /></head><script type="module" src="./assets/a-1.js"></script></html>'


def browse(assets: Path, mount: str = "", login: ConsoleLogin | None = None) -> httpx.AsyncClient:
    """A client of a server of a build."""
    served = Starlette(routes=routes(assets, login))
    if mount:
        served = Starlette(routes=[Mount(mount, served)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(served), base_url="http://localhost")


def build(folder: Path, page: str = PAGE) -> Path:
    """A small build."""
    (folder / "assets").mkdir(exist_ok=True)
    (folder / "index.html").write_text(page)
    (folder / "assets" / "a-1.js").write_text("export {};")
    return folder


async def test_console_needs_no_credential() -> None:
    """The page asks for one; its files hold no data."""
    async with serve_people(office()) as people:
        assert (await people["anonymous"].get("/console/")).status_code in (200, 404)
        assert (await people["anonymous"].get("/console")).headers["location"] == "/console/"
        assert (await people["anonymous"].get("/console-x")).status_code == 401
        assert (await people["anonymous"].post("/console/")).status_code == 401


async def test_console_page_forbids_inline_and_foreign(tmp_path: Path) -> None:
    async with browse(build(tmp_path)) as http:
        for path in ("/console/", "/console/assets/a-1.js", "/console/assets/none.js"):
            headers = (await http.get(path)).headers
            policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
            assert policy["default-src"] == "'self'"
            assert policy["img-src"] == "'self' data: blob:"
            assert policy["frame-ancestors"] == policy["object-src"] == "'none'"
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"


async def test_console_page_answers_every_path(tmp_path: Path) -> None:
    async with browse(build(tmp_path)) as http:
        for path in ("", "runs", "runs/a%2Fb", "index.html", "%2e%2e/x"):
            reply = await http.get(f"/console/{path}")
            assert (reply.status_code, reply.text) == (200, PAGE)
            assert reply.headers["cache-control"] == "no-cache"
        assert (await http.get("/console/assets/gone.js")).status_code == 404


async def test_console_files_are_kept_by_browsers(tmp_path: Path) -> None:
    async with browse(build(tmp_path)) as http:
        reply = await http.get("/console/assets/a-1.js", headers={"accept-encoding": "gzip"})
        assert reply.text == "export {};"
        assert reply.headers["content-encoding"] == "gzip"
        assert "immutable" in reply.headers["cache-control"]
        assert reply.headers["content-type"].startswith("text/javascript")
        plain = await http.get("/console/assets/a-1.js", headers={"accept-encoding": "identity"})
        assert plain.text == "export {};"


async def test_console_follows_the_mount_path(tmp_path: Path) -> None:
    async with browse(build(tmp_path), "/agents") as http:
        assert '<base href="/agents/console/" />' in (await http.get("/agents/console/runs/x")).text
        assert (await http.get("/agents/console")).headers["location"] == "/agents/console/"


async def test_console_says_how_to_build_when_it_is_absent(tmp_path: Path) -> None:
    async with browse(tmp_path) as http:
        reply = await http.get("/console/")
        assert reply.status_code == 404
        assert "make console" in reply.text
        assert "content-security-policy" in reply.headers


async def test_console_shows_a_new_build_at_once(tmp_path: Path) -> None:
    async with browse(build(tmp_path)) as http:
        await http.get("/console/")
        (tmp_path / "index.html").unlink()
        assert (await http.get("/console/")).status_code == 404
        build(tmp_path, "new")
        assert (await http.get("/console/")).text == "new"


async def test_console_may_call_the_issuer_of_its_login(tmp_path: Path) -> None:
    login = ConsoleLogin(
        issuer="https://id.example/realm", client_id="console", origins=("https://token.example",)
    )
    async with browse(build(tmp_path), login=login) as http:
        assert (await http.get("/console/settings.json")).json()["login"]["client_id"] == "console"
        policy = (await http.get("/console/")).headers["content-security-policy"].split("; ")
        assert "connect-src 'self' https://id.example https://token.example" in policy
    async with browse(build(tmp_path)) as http:
        assert (await http.get("/console/settings.json")).json() == {"login": None}
        policy = (await http.get("/console/")).headers["content-security-policy"].split("; ")
        assert "connect-src 'self'" in policy


def test_login_refuses_an_issuer_without_scheme() -> None:
    with pytest.raises(ConfigurationError, match="begins with https://"):
        ConsoleLogin(issuer="id.example", client_id="console")


async def test_api_replies_are_inert_in_a_browser() -> None:
    """A reply that a browser shows as a page is neither guessed to be one, nor may run anything."""
    async with serve_people(office()) as people:
        run = (await people["ann"].post("/v1/runs", json={"agent": "desk", "input": "hi", "wait": 60})).json()
        for path in ("/v1/me", f"/v1/threads/{run['thread_id']}/export"):
            headers = (await people["ann"].get(path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in headers["content-security-policy"]
        assert headers["content-disposition"] == "attachment"
