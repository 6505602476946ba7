"""The AI SDK's own chats talk to agents: every story once with each major version."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from front_end_serving import SHOW, Halves, Served, bot, outcomes, pays, serve_bot, support, watched

from node_clients import NodeClient, node_client, run_example
from wakeful import Turn, call

CLIENTS = [
    pytest.param("v6", id="6.0.326"),
    pytest.param("v5", id="5.0.277", marks=pytest.mark.long),
    pytest.param("v7", id="7.0.173", marks=pytest.mark.long),
]
# The messages that show a surface.
SURFACE = ["surfaceUpdate", "dataModelUpdate", "beginRendering"]
TOOLS = [{"name": "show", "description": "Show a page.", "parameters": SHOW}]
HI = {"text": "Hi"}


def driver(version: str, folder: Path) -> Any:
    """The client of a version."""
    return node_client(f"aisdk-{version}", "aisdk.mjs", folder)


async def open_chat(client: NodeClient, served: Served, version: str, **options: Any) -> None:
    """Make a chat of the client with the id `c`."""
    url = f"{served.url}/aisdk/{version}/bot"
    await client.ask("open", **{"url": url, "id": "c", "headers": served.headers, **options})


async def do(client: NodeClient, what: str, **given: Any) -> Any:
    """Let the chat do something; every chunk that it was sent fits the schema of its version."""
    answer = await client.ask(what, **given)
    if answer["failed"] is None and "cut" not in given:
        checked = await client.ask("check", stream=answer["stream"])
        assert (checked["count"] > 0, checked["wrong"]) == (True, [])
    return answer


def parts(answer: Any, kind: str = "text") -> list[Any]:
    """The parts of a type in the last message."""
    return [part for part in answer["messages"][-1]["parts"] if part["type"] == kind]


def texts(answer: Any) -> list[str]:
    """The texts of the last message."""
    return [part["text"] for part in parts(answer)]


@pytest.mark.parametrize("version", CLIENTS)
async def test_aisdk_client_streams_an_answer(version: str, tmp_path: Path) -> None:
    script = [Turn(thinking="Hm.", text=["Let me ", "look."], calls=[call("look", place="Rome")]), "Rome is fine."]
    async with serve_bot(bot(script)) as served, driver(version, tmp_path) as client:
        await open_chat(client, served, version)
        answer = await do(client, "send", message=HI)
        assert answer["failed"] is None
        assert texts(answer) == ["Let me look.", "Rome is fine."]
        assert [part["text"] for part in parts(answer, "reasoning")] == ["Hm."]
        (looked,) = parts(answer, "dynamic-tool")
        assert (looked["state"], looked["input"], looked["output"]) == (
            "output-available",
            {"place": "Rome"},
            "Rome is fine",
        )
        (plan,) = parts(answer, "data-activity")
        assert plan["data"]["content"] == {"steps": ["look", "tell"]}


@pytest.mark.parametrize("version", CLIENTS)
async def test_aisdk_client_runs_its_own_tool(version: str, tmp_path: Path) -> None:
    runtime = bot([[call("show", page="/a"), call("show", page="/b")], "Both are shown."])
    async with serve_bot(runtime) as served, driver(version, tmp_path) as client:
        await open_chat(client, served, version, body={"tools": TOOLS})
        asked = await do(client, "send", message=HI)
        first, second = parts(asked, "tool-show")
        assert first["state"] == second["state"] == "input-available"
        for part in (first, second):
            await client.ask("output", toolCallId=part["toolCallId"], tool="show", output={"shown": True})
            done = await do(client, "go")
        assert texts(done) == ["Both are shown."]
        assert [part["state"] for part in parts(done, "tool-show")] == ["output-available"] * 2
        assert (len(done["messages"]), len(await runtime.runs.list())) == (2, 1)


@pytest.mark.parametrize("version", CLIENTS)
async def test_aisdk_client_approves_in_two_parts(version: str, tmp_path: Path) -> None:
    store = tmp_path / "app.db"
    async with driver(version, tmp_path) as client:
        async with serve_bot(bot([pays("A7", "B8")], store=store), "ann") as served:
            await open_chat(client, served, version)
            asked = await do(client, "send", message=HI)
            first, second = tickets(asked, version)
            rest = await decide(client, version, first, approved=True)
            assert rest["failed"] is None
        runtime = bot(["Both are settled."], store=store)
        async with serve_bot(runtime, "ann") as served:
            await open_chat(client, served, version, messages=rest["messages"])
            done = await decide(client, version, second, approved=False)
            assert texts(done)[-1] == "Both are settled."
            assert await outcomes(runtime) == ["ok", "blocked"]
            if version != "v5":
                states = [part["state"] for part in parts(done, "dynamic-tool")]
                assert (len(done["messages"]), states) == (2, ["output-available", "output-denied"])


def tickets(answer: Any, version: str) -> list[str]:
    """The tickets that the chat was asked."""
    if version == "v5":
        return [part["data"]["ticket"] for part in parts(answer, "data-approval")]
    asked = parts(answer, "dynamic-tool")
    assert [part["state"] for part in asked] == ["approval-requested"] * len(asked)
    return [part["approval"]["id"] for part in asked]


async def decide(client: NodeClient, version: str, ticket: str, *, approved: bool) -> Any:
    """Answer a ticket in the way of the version."""
    if version == "v5":
        data = {"type": "data-answer", "data": {"ticket": ticket, "approved": approved}}
        return await do(client, "send", message={"role": "user", "parts": [data]})
    await client.ask("approve", id=ticket, approved=approved)
    return await do(client, "go")


@pytest.mark.parametrize("version", CLIENTS)
async def test_aisdk_requester_may_not_approve(version: str, tmp_path: Path) -> None:
    runtime = bot([call("refund", order="A7"), "done"])
    async with serve_bot(runtime, "ann") as served, driver(version, tmp_path) as client:
        await open_chat(client, served, version)
        (ticket,) = tickets(await do(client, "send", message=HI), version)
        refused = await decide(client, version, ticket, approved=True)
        assert (refused["statuses"], '"status":403' in refused["failed"]) == ([403], True)
        assert (await runtime.tickets.get(ticket)).status == "open"


@pytest.mark.parametrize("version", CLIENTS)
async def test_aisdk_cut_answer_is_resumed(version: str, tmp_path: Path) -> None:
    model = Halves("Hello, ", "how are you?")
    runtime = bot(model)
    async with serve_bot(runtime) as served, driver(version, tmp_path) as client:
        await open_chat(client, served, version)
        cut = await client.ask("send", message=HI, cut="Hello, ")
        assert texts(cut) == ["Hello, "]
        # Version 5 can't replace a message: its application drops the half one.
        kept = cut["messages"][:1] if version == "v5" else cut["messages"]
        await open_chat(client, served, version, name="b", messages=kept)
        await watched(runtime, "c", until=False)
        resumed = asyncio.create_task(client.ask("resume", name="b"))
        await watched(runtime, "c")
        model.may_go_on.set()
        done = await resumed
        assert (texts(done), len(done["messages"])) == (["Hello, how are you?"], 2)
        assert len(await runtime.runs.list()) == 1


@pytest.mark.parametrize("version", CLIENTS)
async def test_aisdk_duplicate_request_runs_once(version: str, tmp_path: Path) -> None:
    runtime = bot(["Hello", "never"])
    async with serve_bot(runtime) as served, driver(version, tmp_path) as client:
        for name in ("a", "b"):
            await open_chat(client, served, version, name=name)
            message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
            answer = await do(client, "send", name=name, message=message)
            assert texts(answer) == ["Hello"]
        assert len(await runtime.runs.list()) == 1


@pytest.mark.parametrize("version", CLIENTS)
async def test_aisdk_client_edits_and_regenerates(version: str, tmp_path: Path) -> None:
    runtime = bot(["one", "two", "three", "four"])
    async with serve_bot(runtime) as served, driver(version, tmp_path) as client:
        await open_chat(client, served, version)
        first = await do(client, "send", message=HI)
        await do(client, "send", message={"text": "More"})
        edited = await do(client, "send", message={"text": "Less", "messageId": first["messages"][0]["id"]})
        assert texts(edited) == ["three"]
        again = await do(client, "regenerate")
        assert (texts(again), len(again["messages"])) == (["four"], 2)
        stored = await client.ask("load", url=f"{served.url}/aisdk/{version}/bot/c/messages")
        shown = [[part["text"] for part in message["parts"] if part["type"] == "text"] for message in stored]
        assert shown == [["Less"], ["four"]]
        # The first branch is as it was.
        assert [m.text for m in await runtime.threads.messages("c")] == ["Hi", "one", "More", "two"]


@pytest.mark.parametrize("version", CLIENTS)
async def test_aisdk_client_shows_runs_below(version: str, tmp_path: Path) -> None:
    runtime = bot([call("delegate", to="below"), "Told."], below=[call("look", place="Rome"), "It is fine."])
    async with serve_bot(runtime) as served, driver(version, tmp_path) as client:
        await open_chat(client, served, version)
        answer = await do(client, "send", message=HI)
        assert texts(answer) == ["Told."]
        (below,) = parts(answer, "data-subagent")
        assert (below["data"]["status"], below["data"]["text"]) == ("done", "It is fine.")


@pytest.mark.parametrize("version", CLIENTS)
async def test_aisdk_client_answers_a_question(version: str, tmp_path: Path) -> None:
    runtime = bot([call("poll", question="Where to?"), "Off to Rome."])
    async with serve_bot(runtime, "ann") as served, driver(version, tmp_path) as client:
        await open_chat(client, served, version)
        asked = await do(client, "send", message=HI)
        (question,) = parts(asked, "data-question")
        assert question["data"]["message"] == "Where to?"
        data = {"type": "data-answer", "data": {"ticket": question["data"]["ticket"], "value": "Rome"}}
        done = await do(client, "send", message={"role": "user", "parts": [data]})
        assert texts(done) == ["Off to Rome."]


@pytest.mark.parametrize("version", CLIENTS)
async def test_aisdk_client_shows_a_surface_again(version: str, tmp_path: Path) -> None:
    runtime = bot([call("form"), "Off to Rome."])
    async with serve_bot(runtime) as served, driver(version, tmp_path) as client:
        for name in ("a", "b"):  # The second chat reads the log.
            await open_chat(client, served, version, name=name)
            message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
            answer = await do(client, "send", name=name, message=message)
            (surface,) = parts(answer, "data-a2ui-surface")
            assert [next(iter(each)) for each in surface["data"]["content"]["operations"]] == SURFACE


async def test_aisdk_example_of_the_page_runs(tmp_path: Path) -> None:
    async with serve_bot(support()) as served:
        assert await run_example("aisdk-v6", "ai-sdk.md", served.url, tmp_path) == "It is refunded."
