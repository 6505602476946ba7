"""Tools of real MCP servers: over stdio and HTTP, killed and started again, and the processes they leave."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from wakeful import ConfigurationError, Runtime, ScriptedModel, Turn, call
from wakeful.events import ErrorRaised, ToolProgress
from wakeful.extensions.mcp import MCP
from wakeful.extensions.permissions import Taint
from wakeful.extensions.skills import Skills
from wakeful.testing import Recorder
from wakeful.types.content import Image, text_of

from .servers import HttpServer, agent, command, demo, one_call, reply

PROTOCOLS = ["2025-11-25", "2026-07-28"]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_tool_runs_over_stdio(protocol: Any) -> None:
    model = ScriptedModel(
        [
            Turn(calls=[call("mcp__demo__add", a=2, b=3), call("mcp__demo__fail"), call("mcp__demo__picture")]),
            "done",
        ]
    )
    async with Runtime([agent(model, demo(protocol=protocol))]) as runtime:
        assert (await runtime.run("helper", "go")).text == "done"
    found = [message.reply for message in model.requests[-1].messages[-3:] if message.reply is not None]
    replies = {reply.name: reply for reply in found}
    added, failed, drawn = [replies[f"mcp__demo__{name}"] for name in ("add", "fail", "picture")]
    assert (text_of(added.content), bytes(added.data)) == ('{\n  "total": 5\n}', b'{"total":5}')  # type: ignore[arg-type]
    assert failed.error == "failed"
    assert "Error executing tool fail" in text_of(failed.content)
    assert [type(part).__name__ for part in drawn.content] == ["Text", "Image"]
    assert isinstance(drawn.content[1], Image)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_tool_runs_over_http(protocol: Any) -> None:
    with HttpServer() as server:
        model = one_call("mcp__demo__add", a=2, b=3)
        source = MCP("demo", url=server.url, protocol=protocol, connect_timeout=60)
        async with Runtime([agent(model, source)]) as runtime:
            await runtime.run("helper", "go")
        assert text_of(reply(model).content) == '{\n  "total": 5\n}'


async def test_source_of_the_runtime_is_named_by_agents() -> None:
    model = one_call("mcp__demo__add", a=2, b=3)
    async with Runtime([agent(model, "demo")], tools=[demo()]) as runtime:
        await runtime.run("helper", "go")
    assert text_of(reply(model).content) == '{\n  "total": 5\n}'


async def test_runtime_starts_and_runs_while_its_server_is_down(tmp_path: Path) -> None:
    """The tools are absent, one error says so, and a later run has them."""
    model = ScriptedModel(["alone", call("mcp__demo__add", a=2, b=3), "done"])
    server = HttpServer()
    source = MCP("demo", url=server.url, connect_timeout=60)
    async with Runtime([agent(model, source)]) as runtime:
        recorder = await Recorder().record(runtime.stream("helper", "go"))
        error = recorder.one(ErrorRaised)
        assert error.source == "tool source demo"
        assert server.url in error.message
        assert model.requests[0].tools == ()
        with server:
            result = None
            while result is None or "done" not in result.text:  # The next attempt to connect has a backoff.
                model = model if result is None else one_call("mcp__demo__add", a=2, b=3)
                result = await _retried(runtime, source)
    assert text_of(reply(model).content) == '{\n  "total": 5\n}'


async def _retried(runtime: Runtime, source: MCP) -> Any:
    await source.close()  # Forgets the failure, and its backoff with it.
    return await runtime.run("helper", "again")


async def test_required_source_fails_the_run_while_it_is_down() -> None:
    source = MCP("demo", url=HttpServer().url, required=True)
    async with Runtime([agent(ScriptedModel(["never"]), source)]) as runtime:
        with pytest.raises(Exception, match="MCP server 'demo'"):
            await runtime.run("helper", "go")


async def test_killed_http_server_is_reconnected() -> None:
    with HttpServer() as server:
        source = MCP("demo", url=server.url, protocol="2025-11-25", connect_timeout=60)
        model = ScriptedModel([call("mcp__demo__add", a=1, b=1), "one", call("mcp__demo__add", a=2, b=2), "two"])
        async with Runtime([agent(model, source)]) as runtime:
            await runtime.run("helper", "go")
            server.kill()
            server.start()
            await runtime.run("helper", "go")
        assert text_of(reply(model).content) == '{\n  "total": 4\n}'


async def test_server_that_dies_in_a_call_leaves_a_once_call_unknown(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    model = ScriptedModel([call("mcp__demo__die"), call("mcp__demo__add", a=1, b=1), "done"])
    async with Runtime([agent(model, demo("--journal", str(journal)))]) as runtime:
        result = await runtime.run("helper", "go")
        first, second = await runtime.runs.calls(result.run_id)
    assert (first.outcome, second.outcome) == ("unknown", "ok")
    assert journal.read_text().splitlines() == ["die", "add 1 1"]


async def test_server_that_dies_in_a_pure_call_is_asked_three_times(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    model = ScriptedModel([call("mcp__demo__die"), "done"])
    async with Runtime([agent(model, demo("--journal", str(journal), effects={"die": "pure"}))]) as runtime:
        await runtime.run("helper", "go")
    assert "given up after 3 attempts" in text_of(reply(model).content)
    assert journal.read_text().splitlines() == ["die"] * 3


async def test_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    model = one_call("mcp__demo__slow")
    async with Runtime([agent(model, demo("--journal", str(journal)))]) as runtime:
        seen: list[ToolProgress] = []
        async for event in runtime.stream("helper", "go"):
            if isinstance(event, ToolProgress):
                seen.append(event)
                await runtime.cancel(event.run.run_id)
    assert (seen[0].fraction, seen[0].message) == (0.25, "a quarter")
    assert journal.read_text().splitlines() == ["slow began", "slow cancelled"]


async def test_no_process_is_left_when_the_runtime_is_closed() -> None:
    """Not even one that the server started and that outlives it."""
    script = "import subprocess, sys; subprocess.Popen(['sleep', '600']); import runpy; sys.argv = sys.argv[1:]; "
    script += "runpy.run_path(sys.argv[0], run_name='__main__')"
    source = MCP("demo", command=[command()[0], "-c", script, *command()[1:]], connect_timeout=60)
    model = one_call("mcp__demo__pid")
    async with Runtime([agent(model, source)]) as runtime:
        await runtime.run("helper", "go")
    pid = int(text_of(reply(model).content))
    assert not is_alive(pid)
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


CLIENT = """
import asyncio, sys
from wakeful import Agent, Runtime, ScriptedModel, call
from wakeful.extensions.mcp import MCP

async def main():
    demo = MCP("demo", command=sys.argv[1:], connect_timeout=60)
    model = ScriptedModel([call("mcp__demo__pid"), "done"])
    async with Runtime([Agent("helper", model=model, tools=[demo])]) as runtime:
        await runtime.run("helper", "go", thread="t")
        print(next(m.reply.content[0].text for m in await runtime.threads.messages("t") if m.reply), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waiting for another's process takes Linux")
def test_no_process_is_left_when_the_client_is_killed() -> None:
    """A killed client can end nothing: its server exits as its stdin ends."""
    with subprocess.Popen([sys.executable, "-c", CLIENT, *command()], stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        server = os.pidfd_open(int(client.stdout.readline()))
        client.kill()
    try:
        ended, _, _ = select.select([server], [], [], 60)
        assert ended
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(server, signal.SIGKILL)
        os.close(server)


async def test_prompts_of_a_server_are_skills() -> None:
    """The model sees them in the catalogue, and loads one by its name."""
    source = demo()
    model = ScriptedModel([call("skill", name="demo:review", arguments={"topic": "leases"}), "done"])
    async with Runtime([agent(model, source, plugins=[Skills(source.skills())])]) as runtime:
        await runtime.run("helper", "go", thread="t")
        state = await runtime.threads.state("t")
    assert "<name>demo:review</name><description>Review a topic. Arguments: topic.</description>" in str(
        model.requests[0].system
    )
    assert text_of(reply(model).content).startswith("Review leases with care.")
    assert state[Taint.name] == ("demo:review",)


async def test_runs_share_one_process(tmp_path: Path) -> None:
    """Runs that start together connect once."""
    models = [one_call("mcp__demo__pid") for _ in range(3)]
    source = demo()
    agents = [agent(model, source) for model in models]
    agents = [type(one)(f"helper{i}", model=one.model, tools=one.tools) for i, one in enumerate(agents)]
    async with Runtime(agents) as runtime:
        await asyncio.gather(*[runtime.run(one.id, "go") for one in agents])
    assert len({text_of(reply(model).content) for model in models}) == 1


async def test_server_gets_a_scrubbed_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    model = one_call("mcp__demo__environment")
    async with Runtime([agent(model, demo(env={"GIVEN": "1"}))]) as runtime:
        await runtime.run("helper", "go")
    names = text_of(reply(model).content)
    assert "GIVEN" in names
    assert "PATH" in names
    assert "SECRET_TOKEN" not in names


@pytest.mark.parametrize(
    ("settings", "effects"),
    [
        ({}, {"add": "once", "pid": "once"}),
        ({"trust": "hints"}, {"add": "once", "pid": "pure"}),
        ({"trust": "hints", "effects": {"p*": "once", "add": "idempotent"}}, {"add": "idempotent", "pid": "once"}),
    ],
)
async def test_effects_are_once_unless_hints_are_trusted(settings: Any, effects: dict[str, str]) -> None:
    model = ScriptedModel([Turn(calls=[call("mcp__demo__add", a=1, b=1), call("mcp__demo__pid")]), "done"])
    async with Runtime([agent(model, demo(**settings))]) as runtime:
        result = await runtime.run("helper", "go")
        calls = await runtime.runs.calls(result.run_id)
    assert {c.name.removeprefix("mcp__demo__"): c.effect for c in calls} == effects


async def test_tools_are_chosen_by_patterns_of_the_servers_names() -> None:
    model = ScriptedModel(["done"])
    async with Runtime([agent(model, demo(tools=["a*", "p*"], exclude=["picture"]))]) as runtime:
        await runtime.run("helper", "go")
    assert [spec.name for spec in model.requests[0].tools] == ["mcp__demo__add", "mcp__demo__pid"]


async def test_call_waits_for_the_approval_of_its_pattern() -> None:
    model = one_call("mcp__demo__add", a=2, b=3)
    async with Runtime([agent(model, demo(approval={"add": True}))]) as runtime:
        result = await runtime.run("helper", "go")
        (ticket,) = result.tickets
        assert (ticket.tool, ticket.asked_by) == ("mcp__demo__add", "approval")
        assert (await runtime.resume(result.run_id, ticket.approve())).text == "done"


def test_wrong_settings_are_refused_all_at_once() -> None:
    bad: Any = "bad__name"
    sources: list[Any] = [
        MCP(bad, url="ftp://x", timeout=-1, trust="all"),  # type: ignore[arg-type]
        MCP("both", url="http://a", command=["b"], effects={"x": "reconcile"}),  # type: ignore[dict-item]
        MCP("login", url="http://user:secret@host/mcp", headers={"bad header": "x"}),
        MCP("login", command=[]),
    ]
    with pytest.raises(ConfigurationError) as caught:
        Runtime([agent(ScriptedModel([]), *sources)])
    text = str(caught.value)
    for part in (
        "its name has 1 to 32",
        "url begins with",
        "timeout is a positive number",
        "trust is 'none' or 'hints'",
        "give one of url=",
        "effects: 'x' is 'pure'",
        "url has a login in it",
        "a name that HTTP doesn't allow",
        "two tool sources are named 'login'",
    ):
        assert part in text
    assert "secret" not in text
