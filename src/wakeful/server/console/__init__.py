"""The web console: the files of its build, under `/console/`. It reads and acts through the HTTP API alone."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ...errors import ConfigurationError

__all__ = ["ASSETS", "ConsoleLogin", "is_console_path", "routes"]

PREFIX = "/console"
ASSETS = Path(__file__).parent / "assets"
"""The build, which `make console` makes and every wheel contains."""

INDEX = "index.html"
# What the page needs to know before a login.
SETTINGS = "settings.json"
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


class ConsoleLogin(Struct, frozen=True, kw_only=True):
    """The console's login at an OpenID Connect issuer, by authorization code and PKCE in the browser.

    `client_id` is that of a public client, whose redirect URI is the console's address, such as
    `https://agents.example.com/console/`. `scope` is requested; `parameters` are added to the authorization
    request, such as `{"audience": …}`. The issuer and the `origins` are the only foreign addresses that the page
    may call. The access token is kept in the page's memory.
    """

    issuer: str
    client_id: str
    scope: str = "openid"
    parameters: dict[str, str] = {}
    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for url in (self.issuer, *self.origins):
            if urlsplit(url).scheme not in ("https", "http") or not urlsplit(url).netloc:
                raise ConfigurationError(f"an address of a login begins with https://, and {url!r:.80} doesn't")


def is_console_path(path: str) -> bool:
    """Whether a path is the console's. Its files hold no data, so they need no credential."""
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def routes(assets: Path = ASSETS, login: ConsoleLogin | None = None) -> list[BaseRoute]:
    """Make the routes: the files of a build, and its page for every other path, which the page itself reads."""
    headers = {**HEADERS, "content-security-policy": _policy(login)}
    settings = msgspec.json.encode({"login": None if login is None else msgspec.structs.asdict(login)})

    async def enter(request: Request) -> Response:
        return RedirectResponse(f"{_root(request)}{PREFIX}/", 307)

    async def show(request: Request) -> Response:
        path: str = request.path_params["path"]
        if path == SETTINGS:
            return Response(settings, 200, {**headers, "cache-control": "no-cache"}, "application/json")
        files = _files(assets, _stamp(assets))
        if files is None:
            return HTMLResponse(MISSING.format(root=escape(_root(request))), 404, headers)
        found = files.get(path)
        if found is None and path.startswith(HASHED):
            return Response("there is no such file; load the console again", 404, headers, "text/plain")
        if found is None or path == INDEX:
            return _page(request, files[INDEX], headers)
        caching = "public, max-age=31536000, immutable" if path.startswith(HASHED) else "no-cache"
        return _respond(request, found, found.content, found.packed, {**headers, "cache-control": caching})

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


def _page(request: Request, index: _File, headers: Mapping[str, str]) -> Response:
    base = f'<base href="{escape(_root(request))}{PREFIX}/" />'.encode()
    content = index.content.replace(BASE, base)
    return _respond(request, index, content, gzip.compress(content), {**headers, "cache-control": "no-cache"})


def _respond(request: Request, file: _File, content: bytes, packed: bytes, headers: Mapping[str, str]) -> Response:
    headers = {**headers, "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, 200, {**headers, "content-encoding": "gzip"}, file.media_type)
    return Response(content, 200, headers, file.media_type)


def _policy(login: ConsoleLogin | None) -> str:
    """The content security policy. The issuer of the login may be called, and nothing else."""
    named = () if login is None else (login.issuer, *login.origins)
    origins = ["{0.scheme}://{0.netloc}".format(urlsplit(url)) for url in named]
    policy = {**POLICY, "connect-src": " ".join(["'self'", *dict.fromkeys(origins)])}
    return "; ".join(f"{name} {value}" for name, value in policy.items())


def _root(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")
