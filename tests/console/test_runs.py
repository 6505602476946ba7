"""The list of runs and the page of one."""

from __future__ import annotations

from typing import Any

from examples.console_demo.agents import make_runtime

from console.browser import Browser
from console.serving import Shop, serve_console
from wakeful import Agent, ModelError, Runtime, ScriptedModel
from wakeful.server import ServerLimits

FAST = ServerLimits(watch_seconds=0.05)


def test_filters_of_runs_are_in_the_url(browser: Browser, shop: Shop) -> None:
    tab = browser.tab("ann").open(shop.page("/runs"))
    tab.see("writer", ".list")
    tab.run("await page.getByLabel('Ended by').selectOption('error')")
    tab.see_none("writer", ".list")
    tab.see("the model's vendor is down", ".list")
    tab.until("location.search === '?outcome=error'")
    tab.run("await page.reload()")
    tab.see("broken", ".list")
    assert "writer" not in tab.text(".list")


def test_new_run_appears_without_a_reload(browser: Browser) -> None:
    runtime = lambda: Runtime([Agent("desk", model=ScriptedModel(["Hello!"] * 3))])  # noqa: E731
    with serve_console(runtime, limits=FAST) as served:
        tab = browser.tab("ann").open(served.page("/runs?agent=desk"))
        tab.see("No run matches", "main")
        served.do(served.runtime.run("desk", "Hi"))
        tab.see("done", ".list")


def test_failed_runs_are_retried_together(browser: Browser) -> None:
    model = ScriptedModel([ModelError("down"), ModelError("down"), "Back.", "Back."])
    with serve_console(lambda: Runtime([Agent("desk", model=model)]), limits=FAST) as served:
        for _ in range(2):
            handle = served.do(served.runtime.start("desk", "Hi"))
            served.do(served.runtime.wait(handle.run_id, check=False))
        tab = browser.tab("ann").open(served.page("/runs"))
        tab.see("failed", ".list")
        tab.run("for (const box of await page.locator('.item input').all()) await box.check()")
        tab.click("Retry 2")
        tab.see_none("failed", ".list")
        assert {run.status for run in served.do(served.runtime.runs.list())} == {"done"}
        assert served.do(served.runtime.runs.count(outcome="error")).count == 0


def test_run_page_says_why_it_waits_and_what_it_costs(browser: Browser, shop: Shop) -> None:
    tab = browser.tab("ann").open(shop.page("/runs/:run"))
    tab.see("its tasks", "[role=status]")
    tab.see("Tree of 4 runs")
    tab.see("7,100 tokens")
    tab.open(shop.page("/runs/:waiting"))
    tab.see("an approval", "[role=status]")
    tab.see("in 4 h", "[role=status]")
    tab.open(shop.page("/runs/:failed"))
    tab.see("the model's vendor is down", "[role=status]")
    tab.see("Retry")
    assert tab.problems == []


def test_tree_folds_searches_and_shows_failures(browser: Browser, shop: Shop) -> None:
    tab = browser.tab("ann").open(shop.page("/runs/:run"))
    tab.see("agent_run_refunds", "[role=tree]")
    tab.see("stock", "[role=tree]")
    rows = tab.count("[role=treeitem]")
    tab.run("await page.locator('[role=treeitem] .fold').first().click()")
    tab.until("document.querySelectorAll('[role=treeitem]').length === 1")
    tab.run("await page.locator('[role=treeitem] .fold').first().click()")
    tab.until("document.querySelectorAll('[role=treeitem]').length === given.rows", rows=rows)
    tab.fill("Search the tree", "wait_for_stock")
    tab.see("wait_for_stock", "[role=tree]")
    tab.see_none("agent_run_desk", "[role=tree]")
    tab.open(shop.page("/runs/:failed"))
    tab.see("send_letter", "[role=tree]")
    tab.run("await page.getByLabel('failed only').check()")
    tab.see("send_letter", "[role=tree]")


def test_timeline_shows_waits_and_a_takeover(browser: Browser, shop: Shop) -> None:
    tab = browser.tab("ann").open(shop.page("/runs/:unknown") + "?tab=timeline")
    tab.see("taken over by another worker", "ul[aria-label=Moments]")
    tab.see("waits for an answer", "ul[aria-label=Timeline]")


def test_unknown_call_is_settled_from_the_ledger(browser: Browser, shop: Shop) -> None:
    tab = browser.tab("ann").open(shop.page("/runs/:unknown") + "?tab=ledger")
    tab.run("await page.locator('summary', { hasText: 'charge' }).click()")
    tab.click("Answer its ticket", "link")
    tab.see("its outcome is unknown", "article")
    tab.see("Supply a result", "article")


def test_events_are_shown_once_with_their_fields(browser: Browser, shop: Shop) -> None:
    tab = browser.tab("ann").open(shop.page("/runs/:failed") + "?tab=events")
    tab.see("run_finish", ".pane")
    names = tab.evaluate(
        "return [...document.querySelectorAll('.pane .root > details > summary > .name')]"
        ".map((each) => each.textContent)"
    )
    assert len(names) == len(set(names)) > 8


def test_run_is_paused_continued_and_cancelled(browser: Browser, tmp_path: Any) -> None:
    with serve_console(lambda: make_runtime(str(tmp_path / "a.db")), limits=FAST) as served:
        run = served.do(served.runtime.run("stock", "Lamps?")).run_id
        tab = browser.tab("ann").open(served.page(f"/runs/{run}"))
        tab.see("a timer", "[role=status]")
        tab.click("Pause")
        tab.see("Continue")
        tab.click("Continue")
        tab.see("Pause")
        tab.click("Cancel")
        tab.fill("Reason", "no longer needed", "dialog")
        tab.click("Cancel the run")
        tab.see("no longer needed", "[role=status]")
        assert served.do(served.runtime.runs.get(run)).status == "done"


def test_fork_leads_to_the_new_thread(browser: Browser, shop: Shop) -> None:
    tab = browser.tab("ann").open(shop.page("/runs/:failed"))
    tab.click("Fork here")
    tab.until("location.pathname.startsWith('/console/threads/')")
