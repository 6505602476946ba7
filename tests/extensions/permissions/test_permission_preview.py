"""Trying proposed rules on the calls of a store: what changes, and how fast it is found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmarks.policies import measure, policy_of
from typer.testing import CliRunner

from wakeful import Agent, FunctionModel, Principal, Runtime, call, tool
from wakeful.cli.app import app as cli
from wakeful.errors import ConfigurationError
from wakeful.extensions.permissions import Permissions, Policy, preview_policy
from wakeful.types import Remember


@tool
async def transfer(to: str, amount: int, currency: str = "EUR") -> str:
    """Send money."""
    return f"sent {amount}"


@tool(effect="pure", hints=["private"])
async def balance() -> str:
    """Look up the balance."""
    return "100"


def answer(request: Any) -> Any:
    last = request.messages[-1]
    if last.role == "tool":
        return "done"
    return call("balance") if last.text == "balance" else call("transfer", to="bob", amount=int(last.text))


OLD = Policy(ask=["transfer(amount > 100)"], allow=["transfer"])


def bank(**options: Any) -> Runtime:
    agent = Agent("clerk", model=FunctionModel(answer), tools=[transfer, balance])
    return Runtime([agent], plugins=[Permissions(OLD)], **options)


async def fill(runtime: Runtime) -> None:
    for number, text in enumerate(["5", "50", "500", "balance"]):
        await runtime.run("clerk", text, thread=f"t{number}", principal=Principal("ada"))


async def test_preview_counts_what_the_rules_would_change() -> None:
    async with bank() as runtime:
        await fill(runtime)
        proposed = Policy(deny=["transfer(amount > 400)"], ask=["transfer(amount > 10)"], allow=["transfer"])
        found = await preview_policy(runtime.store, proposed)
        assert (found.calls, found.asked, found.would_ask) == (4, 1, 1)
        assert found.decisions == {"allow -> allow": 2, "ask -> deny": 1, "allow -> ask": 1}
        changes = {(c.before_rule, c.after_rule): c.count for c in found.changes}
        assert changes == {
            ("ask transfer(amount > 100)", "deny transfer(amount > 400)"): 1,
            ("allow transfer", "ask transfer(amount > 10)"): 1,
        }
        assert {c.tool for c in found.changes} == {"transfer"}
        unchanged = await preview_policy(runtime.store, OLD)
        assert (unchanged.changes, unchanged.decisions) == ((), {"allow -> allow": 3, "ask -> ask": 1})


async def test_preview_looks_at_the_newest_calls() -> None:
    async with bank() as runtime:
        await fill(runtime)
        found = await preview_policy(runtime.store, Policy(deny=["balance"]), last=1)
        assert (found.calls, found.decisions) == (1, {"allow -> deny": 1})


async def test_preview_compares_two_policies() -> None:
    async with bank() as runtime:
        await fill(runtime)
        found = await preview_policy(runtime.store, Policy(allow=["*"]), against=Policy(deny=["*"]))
        assert found.decisions == {"deny -> allow": 4}


async def test_preview_knows_hints_and_defaults_of_resolved_agents() -> None:
    async with bank() as runtime:
        await fill(runtime)
        rules = Policy(deny=["hint:private", "transfer(currency = 'EUR')"], allow=["*"])
        assert (await preview_policy(runtime.store, rules)).would_ask == 0
        assert "allow -> deny" not in (await preview_policy(runtime.store, rules)).decisions
        found = await preview_policy(runtime.store, rules, agents={"clerk": runtime.agents.resolved("clerk")})
        assert found.decisions == {"allow -> deny": 3, "ask -> deny": 1}


async def test_preview_counts_grants_that_held_at_the_time() -> None:
    async with bank() as runtime:
        first = await runtime.run("clerk", "500", thread="t")
        remember = Remember("thread", pattern="transfer")
        await runtime.resume(first.run_id, first.tickets[0].approve(remember=remember))
        await runtime.run("clerk", "700", thread="t")
        found = await preview_policy(runtime.store, OLD)
        assert found.decisions == {"allow -> allow": 1, "ask -> ask": 1}


async def test_preview_refuses_bad_policies_with_all_problems(tmp_path: Path) -> None:
    async with bank() as runtime:
        with pytest.raises(ConfigurationError) as refused:
            await preview_policy(runtime.store, Policy(deny=["f("]), against=tmp_path / "none.toml")
        assert len(refused.value.problems) == 2


def test_command_line_previews_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    async def runs() -> None:
        async with bank(store=tmp_path / "app.db") as runtime:
            await fill(runtime)

    asyncio.run(runs())
    monkeypatch.chdir(tmp_path)
    Path("rules.toml").write_text('deny = ["transfer(amount > 400)"]\nallow = ["*"]\n')

    def wakeful(*arguments: str) -> Any:
        return CliRunner().invoke(cli, arguments, catch_exceptions=False)

    assert wakeful("policy", "preview", "rules.toml").exit_code == 2
    shown = wakeful("policy", "preview", "rules.toml", "app.db", "--last", "100").stdout
    assert "4 calls; people are asked 0 times instead of 1" in shown
    assert "ask -> deny" in shown
    monkeypatch.setenv("WAKEFUL_STORE", "app.db")
    found = msgspec.json.decode(wakeful("policy", "preview", "rules.toml", "--json").stdout)
    assert (found["calls"], found["decisions"]["ask -> deny"]) == (4, 1)
    assert "1 deny, 0 ask, 1 allow" in wakeful("policy", "check", "rules.toml").stdout
    Path("rules.toml").write_text('deny = ["transfer("]\nask = [7]')
    broken = wakeful("policy", "check", "rules.toml")
    assert (broken.exit_code, "deny[0]" in broken.stderr, "ask[0]" in broken.stderr) == (2, True, True)


def test_speed_of_evaluation_is_measured() -> None:
    assert measure(policy_of(30), calls=200) > 0
