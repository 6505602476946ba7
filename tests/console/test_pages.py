"""Every page of the route table: sizes, themes, accessibility, screenshots; and the console's budgets."""

from __future__ import annotations

import gzip
import os
import re
from typing import Any

import pytest
from tools.build_console import CONSOLE

from console.browser import Browser, Tab
from console.serving import Shop
from wakeful.server.console import ASSETS

INDEX = (CONSOLE / "src" / "pages" / "index.ts").read_text()
PATHS: list[str] = re.findall(r'{\s*path: "([^"]+)"', INDEX)
SHOTS = CONSOLE.parent / "docs" / "images"
# `make screenshots` renews those of docs/console.md.
SHOTS_WANTED = "WAKEFUL_SCREENSHOTS" in os.environ
# Pages that show more with something selected.
LIVELIER = {"/": "/?whose=all"}
BUDGET = 120 * 1024
LINES = 8000

# Widths from a phone's to a desk's, in both themes.
VIEWS = [(360, "light"), (360, "dark"), (1440, "light"), (1440, "dark")]


def show(tab: Tab, shop: Shop, path: str) -> None:
    """Open a page, and wait until it has its data."""
    tab.open(shop.page(path))
    tab.until("document.querySelector('main h1, main h2') !== null")
    if path != "/components":  # It shows what loading looks like.
        tab.until("!/Loading…/.test(document.body.innerText)")


@pytest.mark.parametrize("path", PATHS)
def test_page_has_no_overflow_and_no_axe_findings(browser: Browser, shop: Shop, path: str) -> None:
    tab = browser.tab("ann")
    axe = (CONSOLE / "node_modules" / "axe-core" / "axe.min.js").read_text()
    for width, theme in VIEWS:
        tab.resize(width)
        tab.run("await page.emulateMedia({ colorScheme: theme })", theme=theme)
        show(tab, shop, path)
        assert tab.evaluate("return document.documentElement.scrollWidth - innerWidth") <= 0, (width, theme)
        if width == 1440 or theme == "light":
            assert findings(tab, axe) == [], (width, theme)
    assert tab.problems == []
    if SHOTS_WANTED:
        SHOTS.mkdir(exist_ok=True)
        tab.resize(1200, 760)
        tab.run("await page.emulateMedia({ colorScheme: 'light' })")
        show(tab, shop, LIVELIER.get(path, path))
        name = re.sub(r"\W+", "-", path).strip("-") or "inbox"
        tab.run("await page.screenshot({ path })", path=str(SHOTS / f"console-{name}.png"))


def findings(tab: Tab, axe: str) -> list[Any]:
    """The serious findings of axe-core, with the elements."""
    tab.evaluate(axe)
    found: list[Any] = tab.evaluate("""
        const { violations } = await axe.run(document, { resultTypes: ["violations"] });
        return violations.filter((each) => ["serious", "critical"].includes(each.impact))
          .map((each) => [each.id, each.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))]);
    """)
    return found


def test_javascript_stays_below_its_budget(built: None) -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in ASSETS.rglob("*.js")}
    assert sum(sizes.values()) < BUDGET, sizes


def test_sources_stay_below_their_lines() -> None:
    names = [path for folder in ("src", "tools") for path in (CONSOLE / folder).rglob("*") if path.is_file()]
    lines = {path: len(path.read_text().splitlines()) for path in names if "generated" not in path.parts}
    assert sum(lines.values()) < LINES
