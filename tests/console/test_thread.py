"""The page of a thread, and the playground: conversations as they happen."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from console.browser import Browser, Tab
from console.serving import Served, serve_console
from console.slow_server import BLOCK, LATER, WORDS
from free_ports import free_port
from wakeful import (
    Agent,
    FunctionModel,
    ModelRequest,
    Runtime,
    ScriptedModel,
    ToolContext,
    Turn,
    Usage,
    call,
    tool,
)
from wakeful.models import PartChunk, StopChunk, TextChunk
from wakeful.stores import Commit
from wakeful.types import Base64, Citation, Document, Identity, Image, Message, Text, Url
from wakeful.types.ids import new_id

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

CITED = [
    TextChunk("Cited."),
    PartChunk(Citation("url", url="javascript:alert(1)", title="bad source")),
    PartChunk(Citation("url", url="https://example.com/", title="good source")),
    StopChunk("end_turn"),
]


class Weather(BaseModel):
    city: str
    degrees: int


@tool(approval=True)
async def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool(effect="pure")
async def look(order: str) -> dict[str, str]:
    """Look an order up."""
    return {"order": order, "state": "lost"}


def office() -> Runtime:
    look_first = Turn(text="Let me *see*.", thinking="Where is it?", calls=[call("look", order="A7")])
    turns = [look_first, call("refund", order="A7"), Turn(text="It is **refunded**.", usage=Usage(10, 5))]
    return Runtime(
        [
            Agent("support", model=ScriptedModel(turns * 20), tools=[refund, look], description="Refunds."),
            Agent("typed", model=ScriptedModel(['{"city": "Rome", "degrees": 21}'] * 20), output=Weather),
            Agent("desk", model=ScriptedModel(["Hello!"] * 50)),
            Agent("sources", model=ScriptedModel([Turn(chunks=CITED)])),
        ]
    )


def talk(tab: Tab, text: str) -> None:
    tab.fill("Message", text)
    tab.press("Enter")


def test_thread_shows_calls_and_answers_in_place(browser: Browser) -> None:
    with serve_console(office) as served:
        served.do(served.runtime.run("support", "Refund A7", thread="t"))
        tab = browser.tab("ann").open(served.page("/threads/t"))
        tab.see("Refund A7", "main")
        tab.see("look", "article")
        assert tab.count("article em") == 1
        tab.run("await page.locator('summary', { hasText: 'Reasoning' }).click()")
        tab.see("Where is it?", "article")
        tab.run("await page.locator('summary', { hasText: 'look' }).click()")
        tab.see("lost", "[aria-label=Result]")
        tab.see("ok", "article")
        tab.click("Approve")
        tab.see("refunded", "article strong")
        tab.see_none("Approve", "main")
        assert tab.problems == []


def test_pending_input_is_moved_edited_and_retracted(browser: Browser) -> None:
    with serve_console(office) as served:
        runtime = served.runtime
        served.do(runtime.run("support", "Refund A7", thread="t"))
        tab = browser.tab("ann").open(served.page("/threads/t"))
        for text in ("first", "second", "third"):
            talk(tab, text)
            tab.see(text, "[aria-label='Pending input']")

        def pending() -> list[str]:
            return [each.text for each in served.do(runtime.mail.pending("t"))]

        tab.run("await page.getByRole('button', { name: 'Move up' }).nth(2).click()")
        tab.until(
            "document.querySelectorAll('[aria-label=\"Pending input\"] li .text')[1]?.textContent === 'third'"
        )
        assert pending() == ["first", "third", "second"]
        tab.run("await page.getByRole('button', { name: 'Edit' }).first().click()")
        tab.fill("New text", "changed")
        tab.click("Save")
        tab.see("changed", "[aria-label='Pending input']")
        tab.run("await page.getByRole('button', { name: 'Retract' }).nth(1).click()")
        tab.see_none("third", "[aria-label='Pending input']")
        assert pending() == ["changed", "second"]
        assert tab.problems == []


def test_fork_is_shown_as_a_branch(browser: Browser) -> None:
    with serve_console(office) as served:
        served.do(served.runtime.run("desk", "One", thread="t"))
        served.do(served.runtime.run("desk", "Two", thread="t"))
        tab = browser.tab("ann").open(served.page("/threads/t"))
        tab.see("Two", "article")
        tab.run("await page.locator('article', { hasText: 'Two' }).getByRole('button', { name: 'Fork' }).click()")
        tab.see("A branch of", "main")
        tab.see("One", "article")
        tab.see_none("Two", "article")
        talk(tab, "Three")
        tab.see("Three", "article")
        tab.open(served.page("/threads/t"))
        tab.see("⑂", "article")
        tab.run("await page.locator('article a', { hasText: '⑂' }).click()")
        tab.see("Three", "article")
        assert tab.problems == []


def test_files_of_messages_are_inert(browser: Browser) -> None:
    """Pictures are shown, if they can't act; everything else is saved, or is a link."""
    svg = Image(Base64("image/svg+xml", "PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+"))
    parts = (Text("See"), Image(Base64("image/png", PIXEL)), svg, Image(Url("https://example.com/x.png")))
    with serve_console(office) as served:
        served.do(
            served.runtime.run("desk", [*parts, Document(Base64("text/html", "PGI+"), "a.html")], thread="t")
        )
        served.do(served.runtime.run("sources", "Why?", thread="cited"))
        tab = browser.tab("ann").open(served.page("/threads/cited"))
        tab.see("bad source", "article li")
        links = "return [...document.querySelectorAll('article a[target]')].map((each) => each.href)"
        assert tab.evaluate(links) == ["https://example.com/"]
        tab.open(served.page("/threads/t"))
        tab.see("Save a.html", "article")
        assert tab.count("article img") == 1
        assert tab.count("article img[src^='data:image/png']") == 1
        assert tab.evaluate(links) == ["https://example.com/x.png"]
        assert tab.problems == []


def test_playground_talks_answers_and_copies_a_test(browser: Browser, tmp_path: Path) -> None:
    """The copied text is a test for pytest that passes."""
    with serve_console(office) as served:
        tab = browser.tab("ann").open(served.page("/playground/support"))
        tab.see("once", "aside")
        tab.see("approval", "aside")
        talk(tab, "Refund A7")
        tab.click("Approve")
        tab.see("refunded", "article strong")
        tab.until("location.search.includes('thread=')")
        tab.click("Copy as test")
        tab.until("document.querySelector('#test-source')?.value.includes('RecordedTool')")
        source = tab.evaluate("return document.querySelector('#test-source').value")
        assert tab.problems == []
    (tmp_path / "test_copied.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "."]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout
    assert "1 passed" in made.stdout


def test_playground_shows_typed_output(browser: Browser) -> None:
    with serve_console(office) as served:
        tab = browser.tab("ann").open(served.page("/playground/typed"))
        talk(tab, "Rome?")
        tab.see("Rome", "section[aria-label='Typed output']")
        tab.see("21", "section[aria-label='Typed output']")
        assert tab.problems == []


def test_playground_shows_progress_and_takes_input_in_between(browser: Browser) -> None:
    """Progress of a tool is shown while it runs; input in between steers or interrupts the run."""
    proceed = asyncio.Event()

    @tool(effect="pure", timeout=None)
    async def search(ctx: ToolContext[Any]) -> str:
        """Search for long."""
        while not proceed.is_set():  # Progress isn't stored: who comes later sees the next one.
            ctx.progress(0.5, message="Half of it is read")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await proceed.wait()
        return "found"

    def answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        texts = [each.text for each in request.messages if each.role == "user"]
        return call("search") if last.role == "user" and last.text == "Search" else f"Heard {', '.join(texts)}."

    def make() -> Runtime:
        return Runtime([Agent("finder", model=FunctionModel(answer), tools=[search])])

    with serve_console(make) as served:
        tab = browser.tab("ann").open(served.page("/playground/finder"))
        talk(tab, "Search")
        tab.see("Half of it is read", "article")
        assert tab.count("article progress") == 1
        tab.run("await page.getByRole('combobox', { name: 'Policy' }).selectOption('steer')")
        talk(tab, "Also this")
        served.loop.call_soon_threadsafe(proceed.set)
        tab.see("Heard Search, Also this.", "article")
        assert tab.count("article progress") == 0
        assert tab.problems == []


@contextmanager
def slow_server(port: int, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A server process that the test may kill."""
    command = [sys.executable, "-m", "console.slow_server", str(port), str(folder / "app.db"), str(folder)]
    process = subprocess.Popen(command, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


SHOWN = "[...document.querySelectorAll('article.assistant')].map((each) => each.innerText).join(' ')"


def test_answer_is_shown_once_when_its_server_is_killed(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with slow_server(port, tmp_path) as process:
        httpx.post(f"{url}/v1/runs", json={"agent": "slow", "input": "Hi", "thread": "t"}).raise_for_status()
        tab = browser.tab("ann").open(f"{url}/console/threads/t")
        tab.until(f"{SHOWN}.includes('word99🦊')")
        process.kill()
        tab.see("reconnecting", "main")
        tab.until(f"{SHOWN}.includes('word99🦊')")
    (tmp_path / LATER).touch()
    with slow_server(port, tmp_path):
        tab.until(
            f"{SHOWN}.includes('word199🦊') && !document.querySelector('article[aria-busy=true]')", timeout=120
        )
        shown = tab.evaluate(f"return {SHOWN}").split()
        assert [word for word in shown if word.startswith("word")] == [word.strip() for word in WORDS]
        assert tab.count("article.assistant") == 1
        _ = tab.problems  # The browser reports the requests that failed in between.


@pytest.mark.long
def test_takeover_is_shown_when_a_worker_is_killed(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    (tmp_path / BLOCK).touch()
    with slow_server(port, tmp_path) as process:
        body = {"agent": "slow", "input": "Work", "thread": "t"}
        run = httpx.post(f"{url}/v1/runs", json=body).raise_for_status().json()["run_id"]
        tab = browser.tab("ann").open(f"{url}/console/threads/t")
        tab.see("started", "article")
        process.kill()
        tab.see("reconnecting", "main")
    (tmp_path / BLOCK).unlink()
    with slow_server(port, tmp_path):
        tab.see("The work is done.", "article", timeout=120)
        tab.see("ok", "article")
        tab.see("took the run over", "main")
        triggers = [
            line
            for line in httpx.get(f"{url}/v1/runs/{run}/events?follow=false").text.splitlines()
            if '"trigger":"recover"' in line
        ]
        assert len(triggers) == 1
        _ = tab.problems


@pytest.mark.long
def test_fifty_thousand_messages_scroll(browser: Browser) -> None:
    """From the end to the beginning, in time in proportion to what is seen."""
    with serve_console(office) as served:
        _fill(served, 50_000)
        tab = browser.tab("ann").open(served.page("/threads/long"))
        tab.see("Message 49999", "article")
        assert tab.count("article") < 60
        tab.click("Beginning")
        tab.see("Message 0 ", "article")
        assert tab.count("article") < 60
        tab.click("End")
        tab.see("Message 49999", "article")
        # Page by page from the end up.
        reached = tab.run(
            """
            const pane = page.locator('[role=log]');
            let first = 50_000;
            for (let turn = 0; first > 45_000 && turn < 2000; turn++) {
              await pane.evaluate((each) => each.scrollTo(0, 0));
              await page.waitForTimeout(20);
              const text = await page.locator('article').first().innerText();
              first = Number(text.match(/Message (\\d+)/)?.[1] ?? first);
            }
            return first;
            """
        )
        assert reached <= 45_000
        assert tab.count("article") < 60
        assert tab.problems == []


def _fill(served: Served, count: int) -> None:
    """Write messages in the form that runs write them."""

    async def write() -> None:
        store = served.runtime.store
        for start in range(0, count, 5000):
            log = [
                Message(
                    new_id(),
                    "user" if at % 2 == 0 else "assistant",
                    (Text(f"Message {at} {'word ' * (at % 40)}"),),
                )
                for at in range(start, start + 5000)
            ]
            found = await store.thread("long")
            version = 0 if found is None else found.version
            await store.commit(Commit("long", Identity("r", "long", "desk", "r"), version=version, log=log))

    served.do(write())
