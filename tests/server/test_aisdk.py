"""The AI SDK's protocol: requests that are refused, and answers that are rewritten."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest
from front_end_serving import Served, bot, outcomes, pays, serve_bot

from wakeful.events import MessageAdded, TextDelta
from wakeful.server.aisdk import Encoder
from wakeful.server.json_patch import PatchError, apply_patch
from wakeful.types.content import Text
from wakeful.types.messages import Message, Producer
from wakeful.types.runs import Identity

TURN: dict[str, Any] = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
HI: dict[str, Any] = {"id": "c", "messages": [TURN], "trigger": "submit-message"}


async def post(served: Served, body: Any, path: str = "v6/bot") -> httpx.Response:
    """Send a request, and read its stream to the end."""
    async with httpx.AsyncClient(base_url=served.url, headers=served.headers) as client:
        return await client.post(f"/aisdk/{path}", json=body)


def chunks_of(reply: httpx.Response) -> list[dict[str, Any]]:
    """The chunks of a stream."""
    lines = [line[6:] for line in reply.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [msgspec.json.decode(line) for line in lines[:-1]]


def responded(ticket: str, call_id: str, *, approved: bool) -> dict[str, Any]:
    """A message of the assistant with an answer to an approval."""
    given = {
        "approval": {"id": ticket, "approved": approved},
        "state": "approval-responded",
        "toolCallId": call_id,
    }
    return {"id": "a1", "role": "assistant", "parts": [{"type": "dynamic-tool", "toolName": "pay", **given}]}


def file(url: str) -> dict[str, Any]:
    """A message with a file."""
    return {**TURN, "parts": [{"type": "file", "mediaType": "image/png", "url": url}]}


@pytest.mark.parametrize(
    ("change", "path", "status", "text"),
    [
        ({"messages": "Hi"}, "v6/bot", 400, "Expected `array`"),
        ({"messages": []}, "v6/bot", 400, "nothing to do"),
        ({"messages": [{**TURN, "parts": []}]}, "v6/bot", 400, "empty"),
        ({"messages": [{**TURN, "role": "robot"}]}, "v6/bot", 400, "robot"),
        ({"messages": [file("http://example.com/a.png")]}, "v6/bot", 400, "https"),
        ({"messages": [file("data:image/png,raw")]}, "v6/bot", 400, "base64"),
        ({"messages": [{**TURN, "parts": [{"type": "file"}]}]}, "v6/bot", 400, "mediaType"),
        ({"messages": [TURN, responded("no", "c1", approved=True)]}, "v6/bot", 404, "no ticket 'no'"),
        ({"trigger": "do-it"}, "v6/bot", 400, "do-it"),
        ({"trigger": "regenerate-message", "messages": []}, "v6/bot", 400, "another answer"),
        ({}, "v6/other", 404, "no agent 'other'"),
        ({}, "v4/bot", 400, "v5, v6, v7"),
        ({"messages": [file("data:image/png;base64," + "A" * 2_200_000)]}, "v6/bot", 413, "2,097,152"),
    ],
)
async def test_aisdk_bad_request_writes_nothing(change: Any, path: str, status: int, text: str) -> None:
    runtime = bot(["Hello"])
    async with serve_bot(runtime) as served:
        reply = await post(served, {**HI, **change}, path)
        assert (reply.status_code, text in reply.json()["error"]) == (status, True), reply.text
        assert (await runtime.runs.list(), await runtime.threads.list()) == ([], [])


async def test_aisdk_chats_and_tickets_of_others_are_unknown() -> None:
    runtime = bot([pays("A7"), "never"])
    async with serve_bot(runtime, "ann") as ann:
        (asked,) = [c for c in chunks_of(await post(ann, HI)) if c["type"] == "tool-approval-request"]
        given = [TURN, responded(asked["approvalId"], asked["toolCallId"], approved=True)]
        async with serve_bot(runtime, "bob") as bob:
            for body in (HI, {**HI, "messages": given}, {**HI, "id": "c2", "messages": given}):
                assert (await post(bob, body)).status_code == 404
            assert (await post(bob, {}, "v6/bot/c/cancel")).status_code == 404
            assert await outcomes(runtime) == [None]


async def test_aisdk_replayed_decision_counts_once() -> None:
    runtime = bot([pays("A7"), "Paid."])
    async with serve_bot(runtime, "ann") as served:
        (asked,) = [c for c in chunks_of(await post(served, HI)) if c["type"] == "tool-approval-request"]
        ids = (asked["approvalId"], asked["toolCallId"])
        for _ in range(2):
            reply = await post(served, {**HI, "messages": [TURN, responded(*ids, approved=True)]})
            assert "Paid." in reply.text
        other = await post(served, {**HI, "messages": [TURN, responded(*ids, approved=False)]})
        assert (other.status_code, other.json()["code"]) == (409, "run-not-waiting")
        assert await outcomes(runtime) == ["ok"]


async def test_aisdk_answer_is_cancelled() -> None:
    runtime = bot([pays("A7")])
    async with serve_bot(runtime) as served:
        await post(served, HI)
        assert (await post(served, {}, "v6/bot/c/cancel")).json() == {"cancelled": True}
        (run,) = await runtime.runs.list()
        assert run.status == "done"


RUN = Identity("run", "t", "bot", "run")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (7, ["text-start", "Hel", "text-end", "reset-step", "text-start", "Hey", " you", "text-end"]),
        (6, ["text-start", "Hel", "text-end", "data-reset", "text-start", "Hey", " you", "text-end"]),
    ],
)
def test_aisdk_rewritten_text_is_reset(version: int, expected: list[str]) -> None:
    encoder = Encoder("run", version)
    message = Message("m", "assistant", (Text("Hey you"),), producer=Producer("run"))
    events = [
        TextDelta(RUN, 2, 0, "m", 0, 0, "Hel"),
        TextDelta(RUN, 2, 0, "m", 1, 0, "Hey"),
        MessageAdded(RUN, 3, 0, message),
    ]
    frames = b"".join([encoder.encode(event) for event in events]).splitlines()
    chunks = [msgspec.json.decode(line[6:]) for line in frames if line]
    assert [chunk.get("delta", chunk["type"]) for chunk in chunks] == expected


def test_json_patch_applies_every_operation() -> None:
    patch = [
        {"op": "add", "path": "/items/-", "value": 2},
        {"op": "add", "path": "/items/0", "value": 0},
        {"op": "replace", "path": "/name", "value": "b"},
        {"op": "copy", "from": "/items/0", "path": "/first"},
        {"op": "move", "from": "/old~1", "path": "/new"},
        {"op": "test", "path": "/first", "value": 0},
        {"op": "remove", "path": "/items/1"},
    ]
    document = {"items": [1], "name": "a", "old/": True}
    assert apply_patch(document, patch) == {"items": [0, 2], "name": "b", "first": 0, "new": True}
    assert document == {"items": [1], "name": "a", "old/": True}
    for wrong in ("/no/where", "/items/9", "no", "/name/x"):
        with pytest.raises(PatchError):
            apply_patch(document, [{"op": "replace", "path": wrong, "value": 1}])
