"""A vendor's question before it calls a tool of an MCP server is a ticket; the answer goes back to the vendor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from test_wire_responses_answers import APPROVAL, MESSAGE, completed, done, stream
from wire_replay import Replayed

from wakeful import Agent, ModelSettings, Runtime
from wakeful.models import forbid_live_models
from wakeful.models.openai import OpenAIModel


@pytest.fixture(autouse=True)
def _live_allowed(no_live_models: None) -> Iterator[None]:
    before = forbid_live_models(False)
    yield
    forbid_live_models(before)


MCP = {"type": "mcp", "server_label": "wiki", "server_url": "https://wiki.test", "require_approval": "always"}


@pytest.mark.parametrize("approve", [True, False])
async def test_approval_request_is_a_ticket(approve: bool) -> None:
    replayed = Replayed(stream(done(APPROVAL), completed(APPROVAL)), stream(completed(MESSAGE)))
    client = replayed.client()
    model = OpenAIModel("gpt-5-mini", api_key="k", base_url="http://vendor.test/v1", http_client=client)
    agent = Agent("a", model=model, settings=ModelSettings(extra={"tools": [MCP]}))
    async with Runtime([agent]) as runtime:
        waiting = await runtime.run("a", "Ask the wiki.")
        (ticket,) = waiting.tickets
        assert (ticket.tool, ticket.arguments["server_label"]) == ("mcp_approval_request", "wiki")
        answer: Any = ticket.approve() if approve else ticket.deny("not today")
        result = await runtime.resume(waiting.run_id, answer)
    await client.aclose()
    assert result.text == "Hi"
    first, second = replayed.requests
    assert first["tools"] == [MCP]
    assert second["input"][-2] == APPROVAL
    sent = second["input"][-1]
    assert (sent["type"], sent["approval_request_id"], sent["approve"]) == (
        "mcp_approval_response",
        "mcpr_1",
        approve,
    )
    assert approve or "not today" in sent["reason"]
