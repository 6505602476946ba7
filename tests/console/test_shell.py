"""The frame of the console: pages, the connection, and the budgets."""

from __future__ import annotations

from console.browser import Browser
from console.serving import serve_console
from server.http_serving import office


def test_console_shows_its_start_page(browser: Browser) -> None:
    with serve_console(office) as served:
        tab = browser.tab("ann").open(served.page())
        tab.see("Inbox", "main")
        tab.see("live", "header")
        assert tab.problems == []
