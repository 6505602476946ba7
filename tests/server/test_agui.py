"""AG-UI: requests that are refused, streams that are read again, and answers that are rewritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from front_end_serving import Served, bot, outcomes, pays, serve_bot

from wakeful import Runtime, call
from wakeful.events import MessageAdded, StreamReset, TextDelta
from wakeful.server.agui import Encoder
from wakeful.server.growth import Rewritten
from wakeful.types.content import Text
from wakeful.types.messages import Message, Producer
from wakeful.types.runs import Identity

HI: dict[str, Any] = {
    "threadId": "t",
    "runId": "r",
    "protocolVersion": "1.0",
    "messages": [{"id": "u1", "role": "user", "content": "Hi"}],
}
IMAGE = {"type": "image", "source": {"type": "file", "value": "f1"}}


async def post(served: Served, body: Any, *, agent: str = "bot") -> httpx.Response:
    """Send a request, and read its stream to the end."""
    async with httpx.AsyncClient(base_url=served.url, headers=served.headers) as client:
        return await client.post(f"/agui/{agent}", json=body)


def events_of(reply: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream."""
    return [msgspec.json.decode(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]


def resume(*entries: tuple[str, Any], run: str = "r2") -> dict[str, Any]:
    """A request that answers interrupts."""
    given = [{"interruptId": an_id, "status": "resolved", "payload": value} for an_id, value in entries]
    return {**HI, "runId": run, "resume": given}


@pytest.mark.parametrize(
    ("change", "agent", "status", "text"),
    [
        ({"messages": "Hi"}, "bot", 400, "Expected `array`"),
        ({"threadId": None}, "bot", 400, "threadId"),
        ({"protocolVersion": "2.0"}, "bot", 400, "isn't spoken here"),
        ({"protocolVersion": "1"}, "bot", 400, "isn't spoken here"),
        ({"messages": []}, "bot", 400, "nothing to do"),
        ({"messages": [{"id": "u1", "role": "robot"}]}, "bot", 400, "robot"),
        ({"messages": [{"id": "u1", "role": "user", "content": [IMAGE]}]}, "bot", 400, "'file'"),
        ({"messages": [{"id": "u1", "role": "user", "content": [{"type": "smell"}]}]}, "bot", 400, "'smell'"),
        ({"tools": [{"name": "no name"}]}, "bot", 400, "no name"),
        ({"resume": [{"interruptId": "no", "status": "resolved"}]}, "bot", 404, "no ticket 'no'"),
        ({"resume": [{"interruptId": "no", "status": "maybe"}]}, "bot", 400, "maybe"),
        ({}, "other", 404, "no agent 'other'"),
        ({"messages": [{"id": "u1", "role": "user", "content": "x" * 2_200_000}]}, "bot", 413, "2,097,152"),
    ],
)
async def test_agui_bad_request_writes_nothing(change: Any, agent: str, status: int, text: str) -> None:
    runtime = bot(["Hello"])
    async with serve_bot(runtime) as served:
        reply = await post(served, {**HI, **change}, agent=agent)
        assert (reply.status_code, reply.headers["content-type"]) == (status, "application/json")
        assert (reply.json()["type"], text in reply.json()["message"]) == ("RUN_ERROR", True), reply.text
        assert (await runtime.runs.list(), await runtime.threads.list()) == ([], [])


async def test_agui_unknown_fields_are_ignored() -> None:
    async with serve_bot(bot(["Hello"])) as served:
        reply = await post(served, {**HI, "newField": 1, "forwardedProps": {"a": 1}, "context": []})
        assert events_of(reply)[-1]["outcome"] == {"type": "success"}


async def test_agui_client_before_version_1_gets_no_new_fields() -> None:
    async with serve_bot(bot(["Hello"])) as served:
        started, *_, finished = events_of(await post(served, {**HI, "protocolVersion": None}))
        assert started == {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
        assert finished == {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


async def test_agui_threads_and_interrupts_of_others_are_unknown() -> None:
    runtime = bot([*pays("A7"), "never"])
    async with serve_bot(runtime, "ann") as ann:
        asked = events_of(await post(ann, HI))[-1]["outcome"]["interrupts"]
        async with serve_bot(runtime, "bob") as bob:
            for body in (HI, resume((asked[0]["id"], True)), {**resume((asked[0]["id"], True)), "threadId": "t2"}):
                reply = await post(bob, body)
                assert (reply.status_code, reply.json()["type"]) == (404, "RUN_ERROR")
            assert await outcomes(runtime) == [None]
            assert len(await runtime.threads.list()) == 1


async def test_agui_replayed_decision_counts_once() -> None:
    runtime = bot([pays("A7", "B8"), "Paid."])
    async with serve_bot(runtime, "ann") as served:
        first, second = events_of(await post(served, HI))[-1]["outcome"]["interrupts"]
        for _ in range(2):
            rest = events_of(await post(served, resume((first["id"], True))))[-1]
            assert [each["id"] for each in rest["outcome"]["interrupts"]] == [second["id"]]
        other = await post(served, resume((first["id"], False)))
        assert (other.status_code, other.json()["code"]) == (409, "ticket-closed")
        done = await post(served, resume((first["id"], True), (second["id"], {"approved": True}), run="r3"))
        assert events_of(done)[-1]["outcome"] == {"type": "success"}
        assert await outcomes(runtime) == ["ok", "ok"]


async def test_agui_message_without_resume_is_refused_when_asked() -> None:
    runtime = bot([*pays("A7"), "never"])
    async with serve_bot(runtime, "ann") as served:
        await post(served, HI)
        reply = await post(served, {**HI, "messages": [*HI["messages"], {**HI["messages"][0], "id": "u2"}]})
        assert (reply.status_code, "waits for answers" in reply.json()["message"]) == (409, True)
        assert len(await runtime.runs.list()) == 1


async def test_agui_message_id_with_other_content_is_refused() -> None:
    async with serve_bot(bot(["Hello"])) as served:
        await post(served, HI)
        reply = await post(served, {**HI, "messages": [{"id": "u1", "role": "user", "content": "Bye"}]})
        assert (reply.status_code, reply.json()["type"]) == (422, "RUN_ERROR")


async def test_agui_unsent_message_goes_with_the_next_one() -> None:
    runtime = bot([RuntimeError("no"), "Hello"])
    async with serve_bot(runtime) as served:
        assert events_of(await post(served, HI))[-1]["type"] == "RUN_ERROR"
        more = [{"id": name, "role": "user", "content": name} for name in ("u2", "u3")]
        await post(served, {**HI, "messages": [*HI["messages"], *more]})
        texts = [m.text for m in await runtime.threads.messages("t") if m.role == "user"]
        assert texts == ["Hi", "u2\n\nu3"]


async def test_agui_thread_is_read_by_another_client(tmp_path: Path) -> None:
    store = tmp_path / "app.db"
    async with serve_bot(
        bot([[call("poll", question="Where to?"), call("look", place="Rome")]], store=store)
    ) as one:
        asked = events_of(await post(one, HI))[-1]
    async with serve_bot(bot([], store=store)) as served, httpx.AsyncClient(base_url=served.url) as client:
        reply = await client.get("/agui/bot/threads/t/stream", params={"version": "1.0"})
        started, snapshot, *rest, finished = events_of(reply)
        assert [each["type"] for each in rest if not each["type"].startswith("STEP")] == []
        assert (started["type"], finished["outcome"]) == ("RUN_STARTED", asked["outcome"])
        assert [message["role"] for message in snapshot["messages"]] == ["user", "assistant", "tool"]
        unknown = await client.get("/agui/bot/threads/other/stream")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-thread")


# -- rewritten answers -----------------------------------------------------------------------------------------

RUN = Identity("run", "t", "bot", "run")


def delta(offset: int, text: str, attempt: int = 0) -> TextDelta:
    """A piece of the answer `m`."""
    return TextDelta(RUN, 2, 0, "m", attempt, offset, text)


def answer(text: str) -> MessageAdded:
    """The answer `m` in the log."""
    return MessageAdded(RUN, 3, 0, Message("m", "assistant", (Text(text),), producer=Producer("run")))


def encoded(encoder: Encoder, *events: Any) -> list[Any]:
    """The events of AG-UI as a client reads them, without their fields but the text."""
    frames: list[bytes] = []
    for event in events:
        try:
            frames.append(encoder.encode(event))
        except Rewritten:
            frames += [encoder.rewrite([{"id": "u1", "role": "user", "content": "Hi"}]), encoder.encode(event)]
    found = [msgspec.json.decode(line[6:]) for line in b"".join(frames).splitlines() if line]
    return [each.get("delta", each["type"].rpartition("_")[2]) for each in found]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([delta(0, "Hel"), delta(3, "lo"), answer("Hello")], ["START", "Hel", "lo", "END"]),
        ([delta(3, "lo"), answer("Hello")], ["START", "Hello", "END"]),
        ([delta(0, "Hel"), delta(0, "He", 1), delta(2, "llo", 1), answer("Hello")], ["START", "Hel", "lo", "END"]),
        (
            [delta(0, "Hel"), delta(0, "Hey", 1), answer("Hey you")],
            ["START", "Hel", "END", "SNAPSHOT", "START", "Hey", " you", "END"],
        ),
        ([delta(0, "Hello"), answer("Hell")], ["START", "Hello", "END", "SNAPSHOT", "START", "Hell", "END"]),
    ],
)
def test_agui_text_is_sent_once_or_replaced(events: Any, expected: list[str]) -> None:
    assert encoded(Encoder("t", "r", "run"), *events) == expected
    reset = [events[0], StreamReset(RUN, 2, 0, "m", 1, "broken"), *events[1:]]
    assert encoded(Encoder("t", "r", "run"), *reset) == expected


async def test_agui_failed_run_is_an_error() -> None:
    runtime: Runtime = bot([])
    async with serve_bot(runtime) as served:
        last = events_of(await post(served, HI))[-1]
        assert (last["type"], last["code"]) == ("RUN_ERROR", "ScriptError")
