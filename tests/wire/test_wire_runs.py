"""A run with a real SDK: tools, streaming, cancelling, and connections that end with the runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from wire_script import Calls, Codec, Says, Script
from wire_server import Reply, WireServer
from wire_vendors import VENDORS

from wakeful import Agent, Member, Pool, Runtime, ScriptedModel, tool
from wakeful.models import forbid_live_models
from wakeful.types.runs import Cancelled, Failed


@pytest.fixture(params=VENDORS, ids=lambda codec: codec.name)
def codec(request: pytest.FixtureRequest) -> Codec:
    return request.param


@pytest.fixture(autouse=True)
def _live_allowed(no_live_models: None) -> Iterator[None]:
    before = forbid_live_models(False)
    yield
    forbid_live_models(before)


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"the {at} is blue"


async def test_a_run_with_a_tool(codec: Codec) -> None:
    first = Script([Calls("look", ['{"at": ', '"sky"}'])], stop="tool_use")
    async with WireServer(codec.answer(first), codec.answer(Script([Says(["Blue."])]))) as server:
        agent = Agent("a", model=codec.model(server.url), tools=[look], instructions="Be brief.")
        async with Runtime([agent]) as runtime:
            result = await runtime.run("a", "What colour is the sky?")
            assert server.open == 1
        assert result.text == "Blue."
        assert result.usage.total_tokens == 58
        body = server.requests[1].body
        codec.check(body)
        assert codec.read(body).of("result")[0][1] == [("text", "the sky is blue")]


async def test_a_fault_ends_the_run_with_its_name(codec: Codec) -> None:
    server = WireServer(codec.fault("bad_key"))
    async with server, Runtime([Agent("a", model=codec.model(server.url))]) as runtime:
        result = await runtime.run("a", "hi")
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "BadCredentials"
    assert codec.key not in result.termination.message


async def test_cancelling_a_run_closes_its_connection(codec: Codec) -> None:
    whole = codec.answer(Script([Says(["Hel", "lo"])]))
    server = WireServer(replace(whole, ends="stall", cut_at=whole.size // 2))
    async with server, Runtime([Agent("a", model=codec.model(server.url))]) as runtime:
        handle = await runtime.start("a", "hi")
        await asyncio.wait_for(server.stalled.wait(), 5)
        await handle.cancel()
        await asyncio.wait_for(server.gone.wait(), 1)
        result = await handle.result()
    assert isinstance(result.termination, Cancelled)


async def test_a_pool_turns_from_what_is_not_the_vendor_to_the_next(codec: Codec) -> None:
    async with WireServer(Reply([b"<html>Sign in</html>"], 200, {"content-type": "text/html"})) as server:
        wrong, right = codec.model(server.url), ScriptedModel(["Good morning."], name="other")
        pool = Pool([wrong, Member(right, role="failover")])
        async with Runtime([Agent("host", model=pool)]) as runtime:
            result = await runtime.run("host", "Hello")
        assert (result.text, len(server.requests)) == ("Good morning.", 1)
