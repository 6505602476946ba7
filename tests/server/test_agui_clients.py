"""AG-UI's own clients talk to agents: every story once with each of their versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ag_ui_validate.pytest_plugin import validate_agui
from front_end_serving import SHOW, Halves, Served, bot, outcomes, pays, serve_bot, support

from node_clients import NodeClient, node_client, run_example
from wakeful import Turn, call

CLIENTS = [
    pytest.param("agui", id="1.0.0"),
    pytest.param("agui-0.0.59", id="0.0.59", marks=pytest.mark.long),
]
# The messages that show a surface.
SURFACE = ["surfaceUpdate", "dataModelUpdate", "beginRendering"]
TOOLS = [{"name": "show", "description": "Show a page.", "parameters": SHOW}]


def hi(text: str = "Hi", an_id: str = "u1") -> dict[str, str]:
    """A message of the user."""
    return {"id": an_id, "text": text}


async def open_agent(client: NodeClient, served: Served, **options: Any) -> None:
    """Make an agent of the client for the thread `t`."""
    await client.ask("open", url=f"{served.url}/agui/bot", thread="t", headers=served.headers, **options)


async def run(client: NodeClient, **given: Any) -> Any:
    """Run the client's agent; what it was sent is a valid stream."""
    answer = await client.ask("run", **given)
    if answer["failed"] is None and "cut" not in given:
        events = [
            line.removeprefix("data: ") for line in answer["stream"].splitlines() if line.startswith("data: ")
        ]
        # A result after an answer is that of a call in an earlier stream.
        known = {"AGUI207": "off"} if "resume" in given else None
        report = validate_agui(events, severity_overrides=known)
        found = [each for each in report.diagnostics if each.severity == "error"]
        assert (events != [], found) == (True, [])
    return answer


def shown(answer: Any) -> Any:
    """The messages of the client, without those that only live streams have."""
    return [message for message in answer["messages"] if message["role"] != "activity"]


def texts(answer: Any, role: str = "assistant") -> list[str]:
    """The texts of the client's messages of a role."""
    return [message.get("content") for message in answer["messages"] if message["role"] == role]


@pytest.mark.parametrize("version", CLIENTS)
async def test_agui_client_streams_an_answer(version: str, tmp_path: Path) -> None:
    script = [Turn(thinking="Hm.", text=["Let me ", "look."], calls=[call("look", place="Rome")]), "Rome is fine."]
    async with serve_bot(bot(script)) as served, node_client(version, "agui.mjs", tmp_path) as client:
        await open_agent(client, served)
        answer = await run(client, say=hi())
        assert answer["failed"] is None
        assert texts(answer) == ["Let me look.", "Rome is fine."]
        assert texts(answer, "tool") == ["Rome is fine"]
        assert texts(answer, "reasoning") == ["Hm."]
        (asked,) = [m for m in answer["messages"] if m.get("toolCalls")]
        assert asked["toolCalls"][0]["function"] == {"name": "look", "arguments": '{"place": "Rome"}'}
        activities = {m["activityType"]: m["content"] for m in answer["messages"] if m["role"] == "activity"}
        assert activities["plan"] == {"steps": ["look", "tell"]}
        assert activities["tool-output"]["chunks"] == ["looking"]
        assert activities["tool-progress"]["fraction"] == 0.5
        # Read again from the log, it leaves another client with the same messages.
        await open_agent(client, served, name="b")
        again = await run(client, name="b", say=hi())
        assert shown(again) == shown(answer)


@pytest.mark.parametrize("version", CLIENTS)
async def test_agui_client_runs_its_own_tool(version: str, tmp_path: Path) -> None:
    runtime = bot([[call("show", page="/a"), call("show", page="/b")], "Both are shown."])
    async with serve_bot(runtime) as served, node_client(version, "agui.mjs", tmp_path) as client:
        await open_agent(client, served)
        asked = await run(client, say=hi(), tools=TOOLS)
        assert asked["interrupts"] == []
        calls = [each for message in asked["messages"] for each in message.get("toolCalls", ())]
        if version == "agui":
            assert asked["ended"]["outcome"]["pendingToolCallIds"] == [each["id"] for each in calls]
        results = [
            {"id": f"r{place}", "role": "tool", "toolCallId": each["id"], "content": "ok"}
            for place, each in enumerate(calls)
        ]
        rest = await run(client, add=results[:1], tools=TOOLS)
        assert rest["failed"] is None
        done = await run(client, add=results[1:], tools=TOOLS)
        assert texts(done)[-1] == "Both are shown."
        assert len(texts(done, "tool")) == 2
        assert len(await runtime.runs.list()) == 1


@pytest.mark.parametrize("version", CLIENTS)
async def test_agui_client_approves_in_two_parts(version: str, tmp_path: Path) -> None:
    store = tmp_path / "app.db"
    async with node_client(version, "agui.mjs", tmp_path) as client:
        async with serve_bot(bot([pays("A7", "B8")], store=store), "ann") as served:
            await open_agent(client, served)
            asked = await run(client, say=hi())
            first, second = asked["interrupts"]
            assert (first["reason"], first["responseSchema"]["required"]) == ("tool_call", ["approved"])
            given = [{"interruptId": first["id"], "status": "resolved", "payload": {"approved": True}}]
            rest = await run(client, resume=given, pending=[first["id"]])
            assert [each["id"] for each in rest["interrupts"]] == [second["id"]]
            assert texts(rest, "tool") == ["paid A7"]
        runtime = bot(["Both are settled."], store=store)
        async with serve_bot(runtime, "ann") as served:
            await client.ask("open", name="b", url=f"{served.url}/agui/bot", thread="t", headers=served.headers)
            given = [{"interruptId": second["id"], "status": "cancelled"}]
            done = await run(client, name="b", resume=given)
            assert (texts(done)[-1], done["interrupts"]) == ("Both are settled.", [])
            assert await outcomes(runtime) == ["ok", "blocked"]


@pytest.mark.parametrize("version", CLIENTS)
async def test_agui_requester_may_not_approve(version: str, tmp_path: Path) -> None:
    runtime = bot([call("refund", order="A7"), "done"])
    async with serve_bot(runtime, "ann") as served, node_client(version, "agui.mjs", tmp_path) as client:
        await open_agent(client, served)
        asked = await run(client, say=hi())
        (interrupt,) = asked["interrupts"]
        given = [{"interruptId": interrupt["id"], "status": "resolved", "payload": True}]
        refused = await run(client, resume=given)
        assert (refused["failed"]["status"], refused["failed"]["payload"]["type"]) == (403, "RUN_ERROR")
        assert (await runtime.tickets.get(interrupt["id"])).status == "open"


@pytest.mark.parametrize("version", CLIENTS)
async def test_agui_cut_answer_is_resumed(version: str, tmp_path: Path) -> None:
    model = Halves("Hello, ", "how are you?")
    runtime = bot(model)
    async with serve_bot(runtime) as served, node_client(version, "agui.mjs", tmp_path) as client:
        await open_agent(client, served)
        cut = await run(client, say=hi(), cut="Hello, ")
        assert (cut["ended"]["code"], texts(cut)) == ("abort", ["Hello, "])
        model.may_go_on.set()
        done = await run(client)
        assert (done["failed"], texts(done)) == (None, ["Hello, how are you?"])
        assert len(await runtime.runs.list()) == 1


@pytest.mark.parametrize("version", CLIENTS)
async def test_agui_duplicate_request_runs_once(version: str, tmp_path: Path) -> None:
    runtime = bot(["Hello", "never"])
    async with serve_bot(runtime) as served, node_client(version, "agui.mjs", tmp_path) as client:
        for name in ("a", "b"):
            await client.ask("open", name=name, url=f"{served.url}/agui/bot", thread="t")
            answer = await run(client, name=name, say=hi())
            assert (answer["failed"], texts(answer)) == (None, ["Hello"])
        assert len(await runtime.runs.list()) == 1


@pytest.mark.parametrize("version", CLIENTS)
async def test_agui_client_shows_subagents(version: str, tmp_path: Path) -> None:
    runtime = bot([call("delegate", to="below"), "Told."], below=[call("look", place="Rome"), "It is fine."])
    async with serve_bot(runtime) as served, node_client(version, "agui.mjs", tmp_path) as client:
        await open_agent(client, served)
        answer = await run(client, say=hi())
        assert answer["failed"] is None
        assert texts(answer)[-1] == "Told."
        assert answer["events"].count("SUBAGENT_STARTED") == answer["events"].count("SUBAGENT_FINISHED") == 1


@pytest.mark.parametrize("version", CLIENTS)
async def test_agui_client_answers_a_question(version: str, tmp_path: Path) -> None:
    runtime = bot([call("poll", question="Where to?"), "Off to Rome."])
    async with serve_bot(runtime, "ann") as served, node_client(version, "agui.mjs", tmp_path) as client:
        await open_agent(client, served)
        asked = await run(client, say=hi())
        (interrupt,) = asked["interrupts"]
        assert (interrupt["reason"], interrupt["message"]) == ("input_required", "Where to?")
        given = [{"interruptId": interrupt["id"], "status": "resolved", "payload": "Rome"}]
        done = await run(client, resume=given)
        assert texts(done, "tool") == ["the user says Rome"]


@pytest.mark.parametrize("version", CLIENTS)
async def test_agui_client_shows_a_surface_again(version: str, tmp_path: Path) -> None:
    runtime = bot([call("form"), "Off to Rome."])
    async with serve_bot(runtime) as served, node_client(version, "agui.mjs", tmp_path) as client:
        for name in ("a", "b"):  # The second client reads the log.
            await open_agent(client, served, name=name)
            answer = await run(client, name=name, say=hi())
            (surface,) = [m for m in answer["messages"] if m["role"] == "activity"]
            assert (surface["activityType"], surface["content"]["surfaceId"]) == ("a2ui-surface", "form")
            assert [next(iter(each)) for each in surface["content"]["operations"]] == SURFACE
        given = [{"interruptId": answer["interrupts"][0]["id"], "status": "resolved", "payload": "Rome"}]
        done = await run(client, name="b", resume=given)
        assert len([m for m in done["messages"] if m["role"] == "activity"]) == 1


async def test_agui_example_of_the_page_runs(tmp_path: Path) -> None:
    async with serve_bot(support()) as served:
        assert await run_example("agui", "ag-ui.md", served.url, tmp_path) == "It is refunded."
