"""Many rows, many updates, and cuts of the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from console.browser import Browser
from console.serving import serve_console
from wakeful import Agent, Approval, FunctionModel, ModelRequest, Runtime, ScriptedModel, call, tool
from wakeful.models import Chunk, StopChunk, TextChunk
from wakeful.server import ServerLimits

FAST = ServerLimits(watch_seconds=0.05)
DELTAS = 2000


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def clerk(request: ModelRequest) -> Any:
    return call("pay", amount=len(request.messages))


async def fill(runtime: Runtime, agent: str, count: int) -> None:
    """Start runs, many at once."""
    for begin in range(0, count, 200):
        await asyncio.gather(*[runtime.run(agent, "Go.") for _ in range(begin, min(count, begin + 200))])


async def _stream(count: int) -> AsyncIterator[Chunk]:
    for number in range(count):
        yield TextChunk(f"w{number} ")
        if number % 20 == 0:
            await asyncio.sleep(0.001)
    yield StopChunk("end_turn")


def test_inbox_with_many_tickets_shows_the_first_at_once(browser: Browser) -> None:
    runtime = Runtime([Agent("clerk", model=FunctionModel(clerk), tools=[pay])])
    with serve_console(lambda: runtime) as served:
        served.do(fill(served.runtime, "clerk", 400))
        tab = browser.tab("ann").open(served.page())
        tab.see("(400 for you)", "main")
        assert tab.count(".list .item") < 60
        tab.run(
            "for (let i = 0; i < 30; i++) {"
            " await page.locator('.list .pane').evaluate((pane) => (pane.scrollTop = pane.scrollHeight));"
            " await page.waitForTimeout(50); }"
        )
        assert tab.count(".list .item") < 60
        assert tab.evaluate("return document.querySelector('.list .all').offsetHeight") > 200 * 40


@pytest.mark.long
def test_figures_with_ten_thousand_tickets_and_runs(browser: Browser, tmp_path: Path) -> None:
    """Measures what docs/console.md states: 10,000 runs scroll, and as many open tickets fill the inbox."""
    runtime = Runtime([Agent("clerk", model=FunctionModel(clerk), tools=[pay])], store=str(tmp_path / "a.db"))
    with serve_console(lambda: runtime) as served:
        served.do(asyncio.wait_for(fill(served.runtime, "clerk", 10_000), 600))
        tab = browser.tab("ann")
        tab.run("globalThis.began = Date.now(); await page.goto(url)", url=served.page())
        tab.see("clerk", ".list")
        took = tab.run("return Date.now() - globalThis.began")
        tab.open(served.page("/runs"))
        tab.see("clerk", ".list")
        seen = tab.evaluate("""
            const pane = document.querySelector(".list .pane");
            for (const end = Date.now() + 60000; Date.now() < end; ) {
              pane.scrollTop = pane.scrollHeight;
              await new Promise((done) => setTimeout(done, 20));
              if (/^10000 runs/m.test(document.body.innerText)) break;
            }
            const [, shown] = document.body.innerText.match(/(\\d+)\\+? runs/);
            return [shown, document.querySelectorAll(".item").length];
        """)
        print(f"inbox of 10,000 tickets: {took} ms; scrolled {seen[0]} runs with {seen[1]} rows")
        assert seen[0] == "10000"
        assert seen[1] < 100


def test_run_that_streams_shows_its_text_once(browser: Browser) -> None:
    """The page takes 2,000 deltas, with the connection cut in the middle, and shows each once."""
    model = FunctionModel(lambda _: _stream(DELTAS))
    with serve_console(lambda: Runtime([Agent("writer", model=model)]), limits=FAST) as served:
        run = served.do(served.runtime.start("writer", "Write.")).run_id
        tab = browser.tab("ann").open(served.page(f"/runs/{run}?tab=events"))
        tab.see("run_start", ".pane")
        tab.run("await page.context().setOffline(true); await page.waitForTimeout(50)")
        tab.run("await page.context().setOffline(false)")
        tab.see("run_finish", ".pane", timeout=60)
        found = "document.querySelectorAll('.pane .root > details > summary > .name')"
        names = tab.evaluate(f"return [...{found}].map((each) => each.textContent)")
        assert len(names) == len(set(names))
        tab.see("live", "header")


@pytest.mark.long
def test_figures_of_an_hour_of_deltas(browser: Browser) -> None:
    """An hour of five deltas a second, at once: how many the page takes in a second, and what it keeps."""
    count = 18_000
    model = FunctionModel(lambda _: _stream(count))
    with serve_console(lambda: Runtime([Agent("writer", model=model)]), limits=FAST) as served:
        tab = browser.tab("ann").open(served.page("/runs"))
        tab.see("No run matches", "main")
        heap = "gc(); return performance.memory.usedJSHeapSize / 1e6"
        before = tab.evaluate(heap)
        run = served.do(served.runtime.start("writer", "Write.")).run_id
        tab.run("globalThis.began = Date.now()")
        tab.evaluate("document.querySelector('a.name').focus()")
        tab.open(served.page(f"/runs/{run}?tab=events"))
        tab.see("run_finish", ".pane", timeout=200)
        took = tab.run("return (Date.now() - globalThis.began) / 1000")
        after = tab.evaluate(heap)
        print(f"{count} deltas in {took:.1f} s: {count / took:.0f}/s; heap {before:.1f} MB, then {after:.1f} MB")
        assert after < before + 30


def test_approval_of_a_quorum_shows_the_votes(browser: Browser) -> None:
    @tool(approval=Approval(quorum=2))
    async def launch() -> str:
        """Launch."""
        return "launched"

    model = ScriptedModel([call("launch"), "Done."])
    with serve_console(
        lambda: Runtime([Agent("desk", model=model, tools=[launch])]), auth=True, limits=FAST
    ) as served:
        served.do(served.runtime.run("desk", "Go."))
        tab = browser.tab("carl").open(served.page())
        tab.fill("API key or token", served.key("carl"))
        tab.click("Log in")
        tab.see("launch", ".list")
        tab.press("j")
        tab.click("Approve", within="article")
        tab.see("1 of 2 approvals", "article")
