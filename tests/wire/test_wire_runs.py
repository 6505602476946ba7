"""Runs with a real SDK: tools, streaming, cancellation, and closed connections."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from wire_script import Calls, Codec, Says, Script, Thinks
from wire_server import Reply, WireServer
from wire_vendors import VENDORS

from wakeful import Agent, Pool, Runtime, ScriptedModel, tool
from wakeful.models import Member, forbid_live_models
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


async def test_run_with_a_tool_completes(codec: Codec) -> None:
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


async def test_fault_ends_the_run_with_its_error(codec: Codec) -> None:
    server = WireServer(codec.fault("bad_key"))
    async with server, Runtime([Agent("a", model=codec.model(server.url))]) as runtime:
        result = await runtime.run("a", "hi", check=False)
    assert isinstance(result.termination, Failed)
    assert result.termination.error == "BadCredentials"
    assert codec.key not in result.termination.message


async def test_cancelled_run_closes_its_connection(codec: Codec) -> None:
    whole = codec.answer(Script([Says(["Hel", "lo"])]))
    server = WireServer(replace(whole, ends="stall", cut_at=whole.size // 2))
    async with server, Runtime([Agent("a", model=codec.model(server.url))]) as runtime:
        handle = await runtime.start("a", "hi")
        await asyncio.wait_for(server.stalled.wait(), 120)
        await handle.cancel()
        await asyncio.wait_for(server.gone.wait(), 120)
        result = await handle.result()
    assert isinstance(result.termination, Cancelled)


FIRST_USE = """
import asyncio, sys, threading

from wakeful import Agent, RetryPolicy, Runtime

name, module = sys.argv[1:]
found = []


class Watching:
    def find_spec(self, fullname, path=None, target=None):
        if fullname == module or fullname.startswith(module + "."):
            found.append(threading.current_thread() is threading.main_thread())


async def main():
    async with Runtime([Agent("a", model=name)], retry=RetryPolicy(retries=0)) as runtime:
        return await runtime.run("a", "hi", check=False)


assert module not in sys.modules
sys.meta_path.insert(0, Watching())
print(type(asyncio.run(main()).termination).__name__, len(found) > 0, sum(found))
"""


@pytest.mark.parametrize(
    ("name", "module", "variable"),
    [
        ("openai-compatible:m@http://127.0.0.1:1/v1", "openai", "OPENAI_COMPATIBLE_API_KEY"),
        pytest.param("openai:m", "openai", "OPENAI_BASE_URL", marks=pytest.mark.long),
        pytest.param("anthropic:m", "anthropic", "ANTHROPIC_BASE_URL", marks=pytest.mark.long),
        pytest.param("google:m", "google.genai", "GOOGLE_GEMINI_BASE_URL", marks=pytest.mark.long),
        pytest.param("bedrock:m", "boto3", "AWS_ENDPOINT_URL", marks=pytest.mark.long),
    ],
)
def test_first_use_imports_the_sdk_in_a_thread(name: str, module: str, variable: str) -> None:
    keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "AWS_BEARER_TOKEN_BEDROCK")
    place = {"AWS_REGION": "us-east-1", variable: "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE, name, module],
        env={**os.environ, **dict.fromkeys(keys, "k"), **place},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["Failed", "True", "0"], done.stderr


async def test_thread_continues_after_a_cancelled_thinking_answer(codec: Codec) -> None:
    if not codec.can.signed_reasoning:
        pytest.skip(f"{codec.name} has no reasoning that goes back")
    encrypted = "Z0FB" if codec.name == "openai" else None
    whole = codec.answer(Script([Thinks(["Hm."], "c2ln", encrypted), Says(["Well."])]))
    thought = next(place for place, piece in enumerate(whole.pieces) if b"Well." in piece)
    cut = replace(whole, ends="stall", cut_at=sum(len(piece) for piece in whole.pieces[:thought]))
    server = WireServer(cut, codec.answer(Script([Says(["Here."])])))
    async with server, Runtime([Agent("a", model=codec.model(server.url))]) as runtime:
        handle = await runtime.start("a", "one", thread="t")
        await asyncio.wait_for(server.stalled.wait(), 120)
        await handle.cancel()
        assert isinstance((await handle.result()).termination, Cancelled)
        assert (await runtime.run("a", "two", thread="t")).text == "Here."
        parts = codec.read(server.requests[1].body).parts
    assert parts == [("user", "text", "one"), ("user", "text", "two")]


async def test_pool_switches_when_the_url_is_not_the_vendor(codec: Codec) -> None:
    async with WireServer(Reply([b"<html>Sign in</html>"], 200, {"content-type": "text/html"})) as server:
        wrong, right = codec.model(server.url), ScriptedModel(["Good morning."], name="other")
        pool = Pool([wrong, Member(right, role="failover")])
        async with Runtime([Agent("host", model=pool)]) as runtime:
            result = await runtime.run("host", "Hello")
        assert (result.text, len(server.requests)) == ("Good morning.", 1)
