"""The login at an OpenID Connect issuer, with an issuer that checks the code and its verifier."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from console.browser import Browser
from console.serving import serve_console
from server.http_serving import office
from sockets import serve_in_thread
from wakeful.identity import Tokens
from wakeful.server import ConsoleLogin

OPEN = {"access-control-allow-origin": "*"}


class Issuer:
    """An issuer that logs everybody in as ann, or refuses."""

    def __init__(self) -> None:
        self.refuses = False
        self.asked: dict[str, str] = {}
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.describe),
                Route("/authorize", self.authorize),
                Route("/token", self.exchange, methods=["POST"]),
            ]
        )

    async def describe(self, request: Request) -> Response:
        own = str(request.base_url)
        found = {"authorization_endpoint": f"{own}authorize", "token_endpoint": f"{own}token"}
        return JSONResponse(found, headers=OPEN)

    async def authorize(self, request: Request) -> Response:
        self.asked = dict(request.query_params)
        answer = {"error": "access_denied"} if self.refuses else {"code": "c0de"}
        return RedirectResponse(
            f"{self.asked['redirect_uri']}?{urlencode({**answer, 'state': self.asked['state']})}", 302
        )

    async def exchange(self, request: Request) -> Response:
        given = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        digest = urlsafe_b64encode(sha256(given["code_verifier"].encode()).digest()).decode().rstrip("=")
        is_right = given["code"] == "c0de" and digest == self.asked["code_challenge"]
        found = {"access_token": "of-ann"} if is_right else {"error": "invalid_grant"}
        return JSONResponse(found, 200 if is_right else 400, headers=OPEN)


def test_login_at_the_issuer_returns_to_the_page(browser: Browser) -> None:
    issuer = Issuer()
    with serve_in_thread(lambda: issuer.app) as url:
        login = ConsoleLogin(issuer=url, client_id="console", parameters={"audience": "wakeful"})
        with serve_console(office, auth=Tokens(tokens={"of-ann": "ann"}), login=login) as served:
            tab = browser.tab("ann").open(served.page("/runs?status=done"))
            tab.click("Log in at")
            tab.see("No run matches", "main")
            tab.until("location.pathname + location.search === '/console/runs?status=done'")
            tab.see("ann", "nav[aria-label=Pages]")
            assert issuer.asked["audience"] == "wakeful"
            assert issuer.asked["code_challenge_method"] == "S256"
            assert tab.evaluate("return { ...sessionStorage, ...localStorage }") == {}
            tab.run("await page.reload()")
            tab.see("Log in at")


def test_login_that_is_refused_says_so(browser: Browser) -> None:
    issuer = Issuer()
    issuer.refuses = True
    with serve_in_thread(lambda: issuer.app) as url:
        login = ConsoleLogin(issuer=url, client_id="console")
        with serve_console(office, auth=Tokens(tokens={"of-ann": "ann"}), login=login) as served:
            tab = browser.tab("ann").open(served.page())
            tab.click("Log in at")
            tab.see("the issuer refused the login: access_denied", "[role=alert]")
