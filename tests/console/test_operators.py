"""The pages of operators: letters, schedules, agents, usage, workers, keys and the audit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from console.browser import Browser
from console.serving import Served, serve_console
from wakeful import Agent, MailPolicy, Principal, Runtime, ScriptedModel, Turn, Usage, call, tool
from wakeful.extensions.permissions import Permissions, Policy, Rule
from wakeful.messaging import DeliveryPolicy
from wakeful.types import OutboundMessage

SEEN = [
    "/threads",
    "/threads/t",
    "/threads/t?tab=branches",
    "/threads/t?tab=state",
    "/playground/clerk?thread=t",
    "/agents",
    "/agents/clerk",
    "/workers",
    "/workers?tab=queue",
    "/workers?tab=dispatches",
    "/mail",
    "/mail?tab=relays",
    "/schedules",
    "/usage",
    "/usage?metric=p95&by=model",
    "/keys",
    "/audit",
]

# The serious findings of axe-core, which runs beside the page's policy.
AXE = """
const { readFileSync } = await import('node:fs');
await page.evaluate(readFileSync('node_modules/axe-core/axe.min.js', 'utf8'));
const { violations } = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })");
const serious = violations.filter((each) => ['serious', 'critical'].includes(each.impact));
return serious.map((each) => [each.id, each.nodes[0].html]);
"""


class Mailbox:
    """An address outside the store, closed at first."""

    def __init__(self) -> None:
        self.is_open = False
        self.delivered: list[str] = []

    async def deliver(self, message: OutboundMessage) -> None:
        if not self.is_open:
            raise ConnectionError("the office is closed")
        self.delivered.append(message.text)


@tool
async def transfer(to: str, amount: float = 1.0) -> str:
    """Send money."""
    return f"sent {amount}"


def office(path: Path, mailbox: Mailbox) -> Runtime:
    to = {"relation": "agent", "thread_id": "mail:ann@example.com"}
    send = Turn(calls=[call("send_message", to=to, message="Hello")], usage=Usage(120, 30, cost=2000))
    rules = Policy(ask=[Rule("transfer(amount > 100)", reason="Large transfers.")], default="allow")
    clerk = Agent(
        "clerk",
        model=ScriptedModel([send, "Sent."] * 9, name="vendor:large"),
        tools=[transfer],
        delegates=["desk"],
        mail=MailPolicy(to=("outside:mail:*@example.com",)),
        description="Writes letters.",
        instructions="Be kind.",
    )
    desk = Agent("desk", model=ScriptedModel(["All is well."] * 50), handoffs=["clerk"])
    return Runtime(
        [clerk, desk],
        plugins=[Permissions(rules)],
        store=path / "app.db",
        transports={"mail": mailbox},
        delivery=DeliveryPolicy(attempts=1),
    )


async def dead_letters(served: Served, count: int) -> None:
    """Wait until this many letters were given up."""
    while len(await served.runtime.mail.dead_letters()) < count:
        await asyncio.sleep(0.01)


def test_dead_letters_are_replayed_and_dropped(browser: Browser, tmp_path: Path) -> None:
    mailbox = Mailbox()
    with serve_console(lambda: office(tmp_path, mailbox)) as served:
        for _ in range(2):
            served.do(served.runtime.run("clerk", "Say hello to Ann"))
        served.do(dead_letters(served, 2))
        tab = browser.tab("ann").open(served.page("/mail"))
        tab.see("the office is closed", "main")
        mailbox.is_open = True
        tab.click("Replay", within="tbody")
        tab.until("document.querySelectorAll('tbody tr').length === 1")
        tab.click("Drop")
        tab.see("No message was given up.", "main")
        tab.click("Relays", role="link")
        tab.see("done", "table")
        assert mailbox.delivered == ["Hello"]
        assert tab.problems == []


def test_schedule_runs_now_and_is_paused(browser: Browser, tmp_path: Path) -> None:
    with serve_console(lambda: office(tmp_path, Mailbox())) as served:
        served.do(served.runtime.schedules.put("daily", "desk", "Report.", cron="0 9 * * *"))
        tab = browser.tab("ann").open(served.page("/schedules"))
        tab.see("Report.", "table")
        tab.run("await page.locator('tbody summary').click()")
        tab.until("document.querySelectorAll('tbody li').length === 8")
        tab.click("Run now: daily")
        tab.see("It runs on thread", "body")
        tab.click("Pause daily")
        tab.see("paused", "table")
        assert served.do(served.runtime.schedules.get("daily")).paused
        tab.click("Continue daily")
        tab.see_none("paused", "table")
        assert tab.problems == []


def test_agent_shows_its_graph_and_previews_permissions(browser: Browser, tmp_path: Path) -> None:
    with serve_console(lambda: office(tmp_path, Mailbox())) as served:
        tab = browser.tab("ann").open(served.page("/agents"))
        tab.see("delegates to", "figure")
        assert tab.count("figure svg rect") == 2
        tab.click("clerk", role="link", within="table")
        tab.see("Be kind.", "main")
        tab.run("await page.getByRole('combobox', { name: 'Tool' }).selectOption('transfer')")
        preview = "section[aria-label='Permission preview']"
        tab.click("+ amount", within=preview)
        tab.fill("amount", "500", preview)
        tab.click("Ask the rules")
        tab.see("Large transfers.", preview)
        tab.fill("amount", "5", preview)
        tab.click("Ask the rules")
        tab.see("allow", preview)
        assert tab.problems == []


def test_usage_is_plotted_by_agent_and_model(browser: Browser, tmp_path: Path) -> None:
    with serve_console(lambda: office(tmp_path, Mailbox())) as served:
        served.do(served.runtime.run("clerk", "Say hello to Ann"))
        served.do(served.runtime.run("desk", "Hi"))
        tab = browser.tab("ann").open(served.page("/usage"))
        tab.see("150", "main")
        assert tab.count("svg rect") == 1
        tab.run("await page.getByLabel('By', { exact: true }).selectOption('model')")
        tab.see("vendor:large", "table")
        tab.run("await page.getByLabel('Show').selectOption('p95')")
        tab.until("location.search.includes('metric=p95') && document.querySelectorAll('svg circle').length === 2")
        assert tab.problems == []


def test_key_is_made_shown_once_and_revoked(browser: Browser, tmp_path: Path) -> None:
    with serve_console(lambda: office(tmp_path, Mailbox()), auth=True) as served:
        tab = browser.tab("root").open(served.page("/keys"))
        tab.fill("API key", served.key("root"))
        tab.click("Log in")
        tab.see("New key", "main")
        assert "401" in " ".join(tab.problems)  # The console asked without a key.
        tab.click("New key")
        tab.fill("Name", "deploys", "dialog")
        tab.fill("Scopes", "runs:read", "dialog")
        tab.click("Create")
        tab.until("document.querySelector('#key-text')?.value.startsWith('wk_')")
        tab.click("I have it")
        tab.click("Revoke deploys")
        tab.click("Revoke it")
        tab.see("revoked", "table")
        tab.open(served.page("/audit"))
        tab.see("keys.revoke", "table")
        assert tab.problems == []


def test_pages_follow_the_scopes_of_the_caller(browser: Browser, tmp_path: Path) -> None:
    with serve_console(lambda: office(tmp_path, Mailbox()), auth=True) as served:
        guest = Principal("guest")
        served.do(served.runtime.schedules.put("daily", "desk", "Report.", cron="0 9 * * *", principal=guest))
        key = served.key("guest", "schedules:read", "agents:read", "usage:read")
        tab = browser.tab("guest").open(served.page("/schedules"))
        tab.fill("API key", key)
        tab.click("Log in")
        tab.see("Report.", "table")
        assert tab.count("tbody button") == 0
        names = (
            "return [...document.querySelectorAll('nav[aria-label=Pages] a')].map((each) => each.innerText.trim())"
        )
        assert tab.evaluate(names) == ["Agents", "Schedules", "Usage"]
        tab.open(served.page("/agents/clerk"))
        tab.see("Writes letters.", "main")
        assert "Be kind." not in tab.text()
        tab.open(served.page("/keys"))
        tab.see("keys:admin", "main")


def test_parked_runs_say_why_they_wait(browser: Browser, tmp_path: Path) -> None:
    @tool(approval=True)
    async def refund(order: str) -> str:
        """Refund an order."""
        return order

    async def park() -> None:
        agent = Agent("old", model=ScriptedModel([call("refund", order="A7")]), tools=[refund])
        async with Runtime([agent], store=tmp_path / "app.db") as runtime:
            await runtime.run("old", "Refund A7")

    asyncio.run(park())
    with serve_console(lambda: office(tmp_path, Mailbox())) as served:
        tab = browser.tab("ann").open(served.page("/agents"))
        tab.see("agent 'old' is gone", "section[aria-label='Parked runs']")
        tab.open(served.page("/workers"))
        tab.see("alive", "table")
        assert tab.problems == []


@pytest.mark.long
def test_pages_fit_every_width_and_theme(browser: Browser, tmp_path: Path) -> None:
    with serve_console(lambda: office(tmp_path, Mailbox())) as served:
        served.do(served.runtime.run("clerk", "Say hello to Ann", thread="t"))
        served.do(dead_letters(served, 1))
        served.do(served.runtime.schedules.put("daily", "desk", "Report.", cron="0 9 * * *"))
        served.do(served.runtime.threads.fork("t", into="branch"))
        tab = browser.tab("ann")
        for width in (360, 1440):
            tab.resize(width, 900)
            for scheme in ("light", "dark"):
                tab.run("await page.emulateMedia({ colorScheme: scheme })", scheme=scheme)
                for path in SEEN:
                    tab.open(served.page(path))
                    tab.see("live", "header")
                    tab.until(
                        "document.querySelector('main h1') && !document.querySelector('main .notice.loading')"
                    )
                    over = tab.evaluate("return document.documentElement.scrollWidth - innerWidth")
                    assert over <= 0, (path, width)
                    if width == 1440:
                        assert tab.run(AXE) == [], (path, scheme)
        assert tab.problems == []
