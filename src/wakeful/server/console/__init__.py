"""The web console: the files of its build, under `/console/`. It reads and acts through the HTTP API alone."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from pathlib import Path

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

__all__ = ["ASSETS", "is_console_path", "routes"]

PREFIX = "/console"
ASSETS = Path(__file__).parent / "assets"
"""The build, which `make console` makes and every wheel contains."""

INDEX = "index.html"
# The server puts the path in its place that the application is mounted at.
BASE = b'<base href="/console/" />'
# The names of these files have a hash of their content.
HASHED = "assets/"

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = {
    "default-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data: blob:",
    "media-src": "'self' data: blob:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    # No script can make HTML of a text, except for the templates of Svelte's components.
    "require-trusted-types-for": "'script'",
    "trusted-types": "svelte-trusted-html",
}
HEADERS = {
    "content-security-policy": "; ".join(f"{name} {value}" for name, value in POLICY.items()),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
MISSING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>wakeful</title></head><body>
<h1>The console isn't built</h1>
<p>This is a checkout of the sources. Build the console with npm, and load this page again:</p>
<pre>make console</pre>
<p>The wheels of wakeful contain it. The <a href="{root}/openapi.json">HTTP API</a> is here all the same.</p>
</body></html>
"""


def is_console_path(path: str) -> bool:
    """Whether a path is the console's. Its files hold no data, so they need no credential."""
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def routes(assets: Path = ASSETS) -> list[BaseRoute]:
    """Make the routes: the files of a build, and its page for every other path, which the page itself reads."""

    async def enter(request: Request) -> Response:
        return RedirectResponse(f"{_root(request)}{PREFIX}/", 307)

    async def show(request: Request) -> Response:
        path: str = request.path_params["path"]
        files = _files(assets, _stamp(assets))
        if files is None:
            return HTMLResponse(MISSING.format(root=escape(_root(request))), 404, HEADERS)
        found = files.get(path)
        if found is None and path.startswith(HASHED):
            return Response("there is no such file; load the console again", 404, HEADERS, "text/plain")
        if found is None or path == INDEX:
            return _page(request, files[INDEX])
        caching = "public, max-age=31536000, immutable" if path.startswith(HASHED) else "no-cache"
        return _respond(request, found, found.content, found.packed, caching)

    return [Route(PREFIX, enter), Route(f"{PREFIX}/{{path:path}}", show)]


class _File(Struct, frozen=True):
    content: bytes
    packed: bytes
    media_type: str


def _stamp(assets: Path) -> int:
    """The time of the build; 0 if there is none."""
    try:
        return (assets / INDEX).stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _files(assets: Path, stamp: int) -> Mapping[str, _File] | None:
    """The files of the build by their paths, which are few and small; None if there is no build."""
    if not stamp:
        return None
    found: dict[str, _File] = {}
    for path in sorted(assets.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            media_type = MEDIA_TYPES.get(path.suffix, "application/octet-stream")
            found[path.relative_to(assets).as_posix()] = _File(content, gzip.compress(content, 9), media_type)
    return found


def _page(request: Request, index: _File) -> Response:
    base = f'<base href="{escape(_root(request))}{PREFIX}/" />'.encode()
    content = index.content.replace(BASE, base)
    return _respond(request, index, content, gzip.compress(content), "no-cache")


def _respond(request: Request, file: _File, content: bytes, packed: bytes, caching: str) -> Response:
    headers = {**HEADERS, "cache-control": caching, "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, 200, {**headers, "content-encoding": "gzip"}, file.media_type)
    return Response(content, 200, headers, file.media_type)


def _root(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")
