"""Hostile content, few scopes, and tenants."""

from __future__ import annotations

from typing import Any

from console.browser import Browser, Tab
from console.serving import Served, serve_console
from wakeful import Agent, Principal, Runtime, ScriptedModel, call, tool
from wakeful.server import ServerLimits

FAST = ServerLimits(watch_seconds=0.05)
HOSTILE = """
<img src=x onerror="window.hit=1"><script>window.hit=1</script><svg onload="window.hit=1"></svg>
[click](javascript:window.hit=1) [data](data:text/html,<script>window.hit=1</script>)
![image](https://evil.example/x.png)
<a href="javascript:window.hit=1">here</a> <iframe src="https://evil.example"></iframe>
<style>*{display:none}</style>
"""


@tool(approval=True)
async def act(text: str) -> str:
    """Do something."""
    return text


def hostile() -> Runtime:
    """A runtime whose model, tool and caller send markup."""
    model = ScriptedModel([call("act", text=HOSTILE), HOSTILE] * 5)
    return Runtime([Agent("mallory", model=model, tools=[act])])


def enter(browser: Browser, served: Served, name: str, key: str, path: str = "/") -> Tab:
    tab = browser.tab(name).open(served.page(path))
    tab.fill("API key or token", key)
    tab.click("Log in")
    tab.see_none("API key or token")
    return tab


def test_hostile_text_stays_text(browser: Browser) -> None:
    with serve_console(hostile, limits=FAST) as served:
        result = served.do(served.runtime.run("mallory", HOSTILE, principal=Principal(HOSTILE[1:31])))
        tab = browser.tab("ann")
        asked: list[str] = []
        tab.run("globalThis.asked = []; page.on('request', (request) => globalThis.asked.push(request.url()))")
        (ticket,) = result.tickets
        for path in (
            f"/tickets/{ticket.id}",
            f"/runs/{result.run_id}",
            f"/runs/{result.run_id}?tab=events",
            "/runs",
        ):
            tab.open(served.page(path))
            tab.see("mallory", "main")
            tab.evaluate("for (const each of document.querySelectorAll('summary')) each.click()")
            assert tab.evaluate("return window.hit ?? 0") == 0
            assert (
                tab.count(
                    "main script, main iframe, main svg, main img, main style, main [onerror], main [onload]"
                )
                == 0
            )
            links: list[str] = tab.evaluate(
                "return [...document.querySelectorAll('main a')].map((each) => each.href)"
            )
            assert not [link for link in links if link.startswith(("javascript:", "data:"))]
        asked = tab.run("return globalThis.asked")
        assert [url for url in asked if not url.startswith(served.url)] == []
        assert tab.problems == []


def test_caller_with_few_scopes_sees_what_it_may(browser: Browser) -> None:
    with serve_console(hostile, auth=True, limits=FAST) as served:
        result = served.do(served.runtime.run("mallory", "hi", principal=Principal("ann")))
        reader = enter(browser, served, "ann", served.key("ann", "runs:read"), f"/runs/{result.run_id}")
        reader.see("mallory", "main")
        assert reader.count("button:text('Cancel')") == 0
        assert reader.text("nav[aria-label=Pages]").splitlines()[0] == "Runs"
        reader.open(served.page("/tickets/x"))
        reader.see("doesn't have the scope tickets:read", "main")
        approver = enter(browser, served, "dora", served.key("dora", "approver"))
        approver.see("act", ".list")
        assert "Runs" not in approver.text("nav[aria-label=Pages]")


def test_two_tenants_see_their_own(browser: Browser) -> None:
    with serve_console(hostile, auth=True, limits=FAST) as served:
        ours = served.do(served.runtime.run("mallory", "ours"))
        theirs = served.do(served.runtime.tenant("elsewhere").run("mallory", "theirs"))
        for name, tenant, own, other in (
            ("ann", "default", ours, theirs),
            ("eve", "elsewhere", theirs, ours),
        ):
            tab = enter(browser, served, name, served.key(name, tenant=tenant), "/runs")
            tab.until("document.querySelector(`.list a[href$='${given.run}']`) !== null", run=own.run_id)
            assert tab.count(".list .item") == 1
            tab.open(served.page(f"/runs/{other.run_id}"))
            tab.see("no run", "main")


def test_key_is_kept_for_the_tab_alone(browser: Browser) -> None:
    with serve_console(hostile, auth=True, limits=FAST) as served:
        tab = enter(browser, served, "ann", served.key("ann"))
        tab.run("await page.reload()")
        tab.see("Inbox", "main")
        other = browser.tab("ann/2").open(served.page())
        other.see("API key or token")
        stored: dict[str, Any] = tab.evaluate("return { local: { ...localStorage }, cookies: document.cookie }")
        assert stored == {"local": {}, "cookies": ""}
        tab.click("Log out")
        tab.see("API key or token")
        assert tab.evaluate("return sessionStorage.length") == 0


def test_wrong_key_is_refused_in_words(browser: Browser) -> None:
    with serve_console(hostile, auth=True) as served:
        tab = browser.tab("ann").open(served.page())
        tab.fill("API key or token", "wk_wrong")
        tab.click("Log in")
        tab.see("doesn't accept this key", "[role=alert]")
