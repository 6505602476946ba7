"""Reminders: which calls they follow, their place, their cooldown, wrong rules and crashes."""

from __future__ import annotations

from typing import Any

import pytest

from wakeful import (
    Agent,
    ConfigurationError,
    FunctionModel,
    ModelRequest,
    Runtime,
    ScriptedModel,
    ToolError,
    call,
    tool,
)
from wakeful.extensions.reminders import Remind, Reminders
from wakeful.stores import Store
from wakeful.testing import CrashSite, crash_matrix


@tool(effect="pure")
async def push(branch: str) -> str:
    """Push a branch."""
    if branch == "gone":
        raise ToolError("no such branch")
    return f"pushed {branch}"


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if message.role == "user"]


async def shown(*rules: Remind, branches: tuple[str, ...] = ("main", "dev")) -> list[list[str]]:
    model = ScriptedModel([*[call("push", branch=branch) for branch in branches], "done"])
    async with Runtime([Agent("coder", model=model, tools=[push], plugins=[Reminders(*rules)])]) as runtime:
        await runtime.run("coder", "go", thread="t")
        assert all(message.text != "Tell the team." for message in await runtime.threads.messages("t"))
    return [texts(request)[1:] for request in model.requests]


async def test_reminder_follows_a_call_that_fits() -> None:
    assert await shown(Remind('push(branch = "main")', "Tell the team.")) == [[], ["Tell the team."], []]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Remind("push", "x", outcome="error"), [[], [], ["x"]]),
        (Remind("push", "x", outcome="ok"), [[], ["x"], []]),
        (Remind("p*", "x"), [[], ["x"], ["x"]]),
        (Remind("push", "x", contains="PUSHED main"), [[], ["x"], []]),
        (Remind("push", "x", cooldown=5), [[], ["x"], []]),
        (Remind("push when agent = 'other'", "x"), [[], [], []]),
        (Remind("effect:pure unless (branch = 'main')", "x"), [[], [], ["x"]]),
    ],
)
async def test_conditions_choose_the_calls(rule: Remind, expected: list[list[str]]) -> None:
    assert await shown(rule, branches=("main", "gone")) == expected


async def test_reminder_of_the_system_text_stands_there() -> None:
    model = ScriptedModel([call("push", branch="a"), "done"])
    rule = Remind("push", "Tell the team.", target="system")
    async with Runtime([Agent("coder", model=model, tools=[push], plugins=[Reminders(rule)])]) as runtime:
        await runtime.run("coder", "go")
    assert "Tell the team." in model.requests[1].system


def test_wrong_rules_are_refused_together() -> None:
    rules: Any = [
        Remind("push(", "x"),
        Remind("push", " "),
        Remind("push", "x", outcome="fine"),  # type: ignore[arg-type]
        Remind("push", "x", target="top"),  # type: ignore[arg-type]
        Remind("push", "x", cooldown=-1),
        Remind("push when tainted", "x"),
        "push",
    ]
    with pytest.raises(ConfigurationError) as refused:
        Runtime([Agent("coder", model="local:x", tools=[push], plugins=[Reminders(*rules)])])
    assert len([problem for problem in refused.value.problems if "reminder " in problem]) == 7
    with pytest.raises(ConfigurationError, match="fits no tool"):
        Runtime([Agent("coder", model=ScriptedModel([]), tools=[push], plugins=[Reminders(Remind("pull", "x"))])])


async def office(site: CrashSite) -> None:
    def answer(request: ModelRequest) -> Any:
        done = sum(message.role == "tool" for message in request.messages)
        if done:
            assert texts(request)[-1] == "Tell the team."
        return call("push", branch="main") if done < 2 else "done"

    agent = Agent(
        "coder", model=FunctionModel(answer), tools=[push], plugins=[Reminders(Remind("push", "Tell the team."))]
    )
    async with Runtime([agent], store=site.store) as runtime:
        await runtime.run("coder", "go", thread="t", request_id="r")


async def done(site: CrashSite, store: Store) -> None:
    (run,) = await store.runs()
    assert (run.status, run.steps) == ("done", 3)


@pytest.mark.long
def test_reminders_survive_every_kill() -> None:
    assert crash_matrix(office, check=done, points=["before", "after"]).kills >= 8
