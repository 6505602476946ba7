"""The parts of the HTTP API for the console, beside the everyday verbs."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from http_serving import Person, office, serve_people

from wakeful import Agent, Runtime, ScriptedModel, call, tool
from wakeful.extensions.permissions import Permissions, Policy, Rule


async def say(who: Person, thread: str, times: int = 1) -> list[str]:
    found: list[str] = []
    for _ in range(times):
        body = {"agent": "desk", "input": "Hi", "thread": thread, "wait": 30}
        found.append((await who.post("/v1/runs", json=body)).json()["run_id"])
    return found


async def listed(who: Person, query: str) -> tuple[list[int], str | None]:
    page = (await who.get(f"/v1/threads/t/messages?{query}")).json()
    return [each["seq"] for each in page["items"]], page["next"]


async def test_messages_are_paged_from_an_entry_both_ways() -> None:
    async with serve_people(office()) as people:
        await say(people["ann"], "t", 4)
        every, _ = await listed(people["ann"], "")
        assert len(every) == 8
        found, following = await listed(people["ann"], f"before={every[4]}&limit=3")
        assert found == every[1:4]
        assert (await listed(people["ann"], f"before={every[4]}&limit=3&cursor={following}"))[0] == every[:1]
        found, following = await listed(people["ann"], f"after={every[4]}&limit=2")
        assert found == every[5:7]
        assert await listed(people["ann"], f"after={every[4]}&limit=2&cursor={following}") == (every[7:], None)
        assert (await people["ann"].get("/v1/threads/t/messages?before=2&after=1")).status_code == 400


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_forks_of_a_thread_are_listed(kind: str, tmp_path: Path) -> None:
    options = {} if kind == "memory" else {"store": tmp_path / "app.db"}
    async with serve_people(office(**options)) as people:
        ann = people["ann"]
        for thread in ("t", "other"):
            await say(ann, thread)
        for into in ("a", "b"):
            assert (await ann.post("/v1/threads/t/fork", json={"into": into})).status_code == 201
        forks = (await ann.get("/v1/threads?base=t")).json()["items"]
        assert [each["id"] for each in forks] == ["b", "a"]
        assert (await ann.get("/v1/threads?base=other")).json()["items"] == []
        assert (await people["bob"].get("/v1/threads?base=t")).json()["items"] == []


async def test_agents_show_effects_to_those_who_may_inspect() -> None:
    async with serve_people(office()) as people:
        found = (await people["operator"].get("/v1/agents/refunds")).json()
        (refund,) = found["tools"]
        assert (refund["effect"], refund["approval"]) == ("once", "always")
        assert (found["delegates"], found["plugins"]) == ([], [])
        seen = (await people["ann"].get("/v1/agents")).json()
        assert [set(tool) & {"effect", "approval"} for agent in seen for tool in agent.get("tools", [])] == [set()]


async def test_times_of_a_schedule_are_listed_until_it_is_paused() -> None:
    async with serve_people(office()) as people:
        operator = people["operator"]
        body = {"agent": "desk", "input": "Hi", "cron": "0 * * * *"}
        await operator.put("/v1/schedules/hourly", json=body)
        times = (await operator.get("/v1/schedules/hourly/times?count=3")).json()
        assert [after - before for before, after in itertools.pairwise(times)] == [3_600_000] * 2
        await operator.post("/v1/schedules/hourly/pause")
        assert (await operator.get("/v1/schedules/hourly/times")).json() == []
        assert (await people["ann"].get("/v1/schedules/hourly/times")).status_code == 403


async def test_backlog_and_parked_runs_are_for_operators(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    async with Runtime(list(office().agents.values()), store=path) as runtime:
        assert (await runtime.run("refunds", "Refund A7")).status == "waiting"
    async with serve_people(Runtime([Agent("desk", model=ScriptedModel([]))], store=path)) as people:
        (parked,) = (await people["operator"].get("/v1/runs:parked")).json()
        assert parked["agent_id"] == "refunds"
        assert "is gone" in parked["reasons"][0]
        backlog = (await people["operator"].get("/v1/workers/backlog")).json()
        assert backlog["dead"] == {"count": 0, "more": False}
        for path in ("/v1/runs:parked", "/v1/workers/backlog"):
            assert (await people["ann"].get(path)).status_code == 403


async def test_preview_decides_by_the_rules_without_a_call() -> None:
    ran: list[str] = []

    @tool
    async def transfer(to: str, amount: int = 1) -> str:
        """Send money."""
        ran.append(to)
        return "sent"

    rules = Policy(
        ask=[Rule("transfer(amount > 100)", reason="Large.")], deny=['transfer(to = "eve")'], default="allow"
    )
    agent = Agent("clerk", model=ScriptedModel([]), tools=[transfer])
    desk = Agent("desk", model=ScriptedModel([]))
    runtime = Runtime([agent, desk], plugins=[Permissions(rules, shadow=Policy(default="deny"))])
    async with serve_people(runtime) as people:
        operator = people["operator"]

        async def preview(body: dict[str, Any], status: int = 200) -> dict[str, Any]:
            answer = await operator.post("/v1/agents/clerk/preview", json=body)
            assert answer.status_code == status, answer.text
            return answer.json()

        asks = await preview({"tool": "transfer", "arguments": {"to": "bob", "amount": 500}})
        assert (asks["decision"], asks["rule"], asks["reason"]) == ("ask", "ask transfer(amount > 100)", "Large.")
        assert asks["shadow"] == "deny by default"
        assert (await preview({"tool": "transfer", "arguments": {"to": "eve"}}))["decision"] == "deny"
        assert (await preview({"tool": "transfer", "arguments": {"to": "bob"}}))["layer"] == "default"
        assert "no tool" in (await preview({"tool": "pay"}, 400))["detail"]
        assert (await people["ann"].post("/v1/agents/clerk/preview", json={"tool": "transfer"})).status_code == 403
    assert ran == []


async def test_test_of_a_run_passes(tmp_path: Path) -> None:
    """With an approval, a denial, changed arguments, an error and text beside calls."""

    @tool(approval=True)
    async def refund(order: str) -> str:
        """Refund an order."""
        return f"refunded {order}"

    @tool(effect="pure")
    async def look(order: str) -> dict[str, str]:
        """Look an order up."""
        if order == "bad":
            raise ValueError("no such order")
        return {"order": order}

    turns = [
        [call("look", order="A7"), call("look", order="bad")],
        [call("refund", order=name) for name in ("A7", "A8", "A9")],
        'It\'s "done".\n',
    ]
    agent = Agent("support", model=ScriptedModel(turns), tools=[refund, look], instructions="Be 'brief'.")
    runtime = Runtime([agent], store=tmp_path / "app.db")
    async with serve_people(runtime) as people:
        ann, root = people["ann"], people["root"]
        run = (await ann.post("/v1/runs", json={"agent": "support", "input": "Go\non", "wait": 30})).json()
        waits = (await ann.get(f"/v1/runs/{run['run_id']}/test")).json()["source"]
        tickets = {each["arguments"]["order"]: each["id"] for each in run["tickets"]}
        decisions = [
            {"ticket_id": tickets["A7"], "verdict": "approve"},
            {"ticket_id": tickets["A8"], "verdict": "deny", "reason": "no"},
            {"ticket_id": tickets["A9"], "mode": "arguments", "value": {"order": "B9"}},
        ]
        body = {"decisions": decisions, "wait": 30}
        done = (await root.post(f"/v1/runs/{run['run_id']}/resume", json=body)).json()
        assert done["status"] == "done", done
        written = (await root.get(f"/v1/runs/{run['run_id']}/test")).json()
        assert "Be 'brief'." in written["source"]
        assert "brief" not in (await ann.get(f"/v1/runs/{run['run_id']}/test")).json()["source"]
        assert (await people["bob"].get(f"/v1/runs/{run['run_id']}/test")).status_code == 404
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / written["name"]).write_text(written["source"])
    (tmp_path / "tests" / "test_waits.py").write_text(waits)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "tests"]
    made = await asyncio.to_thread(subprocess.run, command, cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout
    assert "2 passed" in made.stdout


async def test_test_of_a_failed_run_is_refused() -> None:
    agent = Agent("broken", model=ScriptedModel([]))
    async with serve_people(Runtime([agent])) as people:
        run = (await people["ann"].post("/v1/runs", json={"agent": "broken", "input": "Hi", "wait": 30})).json()
        answer = await people["ann"].get(f"/v1/runs/{run['run_id']}/test")
        assert answer.status_code == 400
        assert "ScriptError" in answer.json()["detail"]
