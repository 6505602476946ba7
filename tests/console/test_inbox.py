"""The inbox: what a ticket shows, its answers, and how other tabs follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples.console_demo.agents import make_runtime

from console.browser import Browser, Tab
from console.serving import Served, Shop, serve_console
from wakeful import Agent, Approval, Principal, Runtime, ScriptedModel, call, tool
from wakeful.server import ServerLimits

FAST = ServerLimits(watch_seconds=0.05)


def payments(count: int = 1, paid: list[int] | None = None, **approval: Any) -> Callable[[], Runtime]:
    """A runtime whose agent pays once a person approved it."""

    @tool(approval=Approval(**approval))
    async def pay(payee: str, amount: int) -> str:
        """Pay somebody."""
        if paid is not None:
            paid.append(amount)
        return f"paid {amount}"

    script = [*[call("pay", payee=f"p{number}", amount=number) for number in range(count)], *["Done."] * count]
    return lambda: Runtime([Agent("clerk", model=ScriptedModel(script), tools=[pay])])


def ask(served: Served, count: int = 1) -> list[str]:
    """Start runs that wait for an approval; their ids."""
    ann = Principal("ann")
    return [served.do(served.runtime.run("clerk", "Pay.", principal=ann)).run_id for _ in range(count)]


def enter(browser: Browser, served: Served, name: str, key: str) -> Tab:
    """Log in with an API key."""
    tab = browser.tab(name).open(served.page())
    tab.fill("API key or token", key)
    tab.click("Log in")
    tab.see("Inbox", "main")
    return tab


def test_second_tab_follows_an_answered_ticket(browser: Browser) -> None:
    paid: list[int] = []
    with serve_console(payments(paid=paid), auth=True, limits=FAST) as served:
        (run,) = ask(served)
        carl = enter(browser, served, "carl", served.key("carl"))
        dora = enter(browser, served, "dora", served.key("dora"))
        for tab in (carl, dora):
            tab.click("pay", "link", "main")
            tab.see("May pay run?", "article")
        carl.fill("Reason", "it is fine", "article")
        carl.click("Approve", within="article")
        dora.see("Answered by", "article")
        dora.see("carl", "article")
        dora.see("it is fine", "article")
        dora.see("answered by carl", ".list")
        assert dora.count("article button:text('Approve')") == 0
        assert served.do(served.runtime.wait(run)).text == "Done."
        assert paid == [0]


def test_edited_arguments_are_shown_as_differences_and_run(browser: Browser) -> None:
    paid: list[int] = []
    with serve_console(payments(paid=paid), limits=FAST) as served:
        (run,) = ask(served)
        tab = browser.tab("ann").open(served.page())
        tab.see("payee p0", ".list")
        tab.press("j", "e")
        tab.fill("amount", "45", "article")
        assert tab.text("dl[aria-label=Changes] del") == "0"
        assert tab.text("dl[aria-label=Changes] ins") == "45"
        tab.click("Approve the changes")
        tab.see("Answered by", "article")
        served.do(served.runtime.wait(run))
        assert paid == [45]


def test_keys_move_and_deny(browser: Browser) -> None:
    with serve_console(payments(3), limits=FAST) as served:
        ask(served, 3)
        tab = browser.tab("ann").open(served.page())
        tab.see("payee p0", ".list")
        tab.press("j", "j", "j", "k", "d")
        tab.run("await page.locator(':is(input, textarea):focus').waitFor()")
        tab.run("await page.keyboard.type('too much')")
        tab.click("Deny now")
        tab.see("Denied by", "article")
        (denied,) = [t for t in served.do(served.runtime.tickets.list()) if t.status != "open"]
        assert denied.arguments["payee"] == "p1"
        (decision,) = served.do(served.runtime.tickets.decisions(denied.id))
        assert (decision.verdict, decision.reason) == ("deny", "too much")


def test_bulk_answers_each_selected_ticket(browser: Browser) -> None:
    paid: list[int] = []
    with serve_console(payments(4, paid=paid), limits=FAST) as served:
        runs = ask(served, 4)
        tab = browser.tab("ann").open(served.page())
        tab.see("payee p3", ".list")
        tab.run("for (const at of [0, 1, 2]) await page.locator('.item input').nth(at).check()")
        tab.click("Approve 3")
        tab.see("3 answered")
        for run in runs[:3]:
            served.do(served.runtime.wait(run))
        assert sorted(paid) == [0, 1, 2]
        tab.see("(1 for you)", "main")


def test_question_is_answered_in_a_form_of_its_schema(browser: Browser, tmp_path: Any) -> None:
    with serve_console(lambda: make_runtime(str(tmp_path / "a.db")), limits=FAST) as served:
        run = served.do(served.runtime.run("delivery", "Deliver A7.")).run_id
        tab = browser.tab("ann").open(served.page())
        tab.see("Where may the parcel go?", ".list")
        tab.press("j")
        tab.see("Where may the parcel go?", "article")
        tab.run("await page.locator('article').getByLabel('delivery').selectOption({ label: 'to a shop' })")
        tab.click("Send the answer")
        tab.see("Answered by", "article")
        served.do(served.runtime.wait(run))
        (made,) = served.do(served.runtime.runs.calls(run))
        assert made.decisions[0].value == {"delivery": "to a shop"}


def test_reassigned_ticket_leaves_for_its_assignee(browser: Browser) -> None:
    with serve_console(payments(), auth=True, limits=FAST) as served:
        ask(served)
        root = enter(browser, served, "root", served.key("root"))
        root.see("payee p0", ".list")
        root.press("j")
        root.fill("Comment", "please look at this", "article")
        root.click("Comment", within="article form")
        root.see("please look at this", "ul")
        root.run("await page.getByText('Reassign').first().click()")
        root.fill("New assignee", "dora", "article")
        root.click("Reassign", within="details")
        root.see("dora", "dl.facts")
        dora = enter(browser, served, "dora", served.key("dora", "approver"))
        dora.see("(1 for you)", "main")


def test_inbox_shows_what_led_to_a_ticket(browser: Browser, shop: Shop) -> None:
    tab = browser.tab("ann").open(shop.page("/tickets/:ticket"))
    tab.see("The tool needs an approval.", "article")
    tab.see("Pay A7 back.", "section[aria-label=Conversation]")
    tab.see("The number of the order.", "article")
    assert tab.run("return await page.getByLabel('reason').first().inputValue()") is not None
    assert tab.problems == []
