"""A remote agent in a runtime."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from wakeful import Agent, Runtime, ScriptedModel, call
from wakeful.backends.a2a import A2AFactory, Bearer
from wakeful.stores import Store
from wakeful.testing import CrashSite, backend_checks, crash_matrix
from wakeful.types.events import RunFinish, RunStart, TextDelta
from wakeful.types.runs import Cancelled, Failed, NaturalEnd

from . import scenarios
from .servers import Remote, Turn, serving

Models = Callable[..., ScriptedModel]


async def behaves(turn: Turn) -> None:
    """Answers, asks or never answers, as the text says."""
    updater = await turn.open()
    turn.remote.heard.append(turn.text)
    if not turn.is_new:
        await updater.complete(turn.says(f"You chose {turn.text}."))
    elif turn.text.startswith("Ask"):
        await updater.requires_input(turn.says("Which city?"))
    elif turn.text == "Dawdle":
        await turn.reached("dawdling")
    else:
        await turn.write("You said: ")
        await turn.write(turn.text, append=True, last=True)
        await updater.complete()


@pytest.fixture(scope="module")
def shared() -> Iterator[Remote]:
    with serving(behaves) as remote:
        yield remote


@pytest.fixture
def remote() -> Iterator[Remote]:
    with serving(behaves) as remote:
        yield remote


def far(remote: Remote, **options: Any) -> Agent:
    return Agent.remote("analyst", a2a=remote.url, allow_private=True, timeout=10, **options)


def checks(url: str) -> list[Any]:
    endpoint = {"url": url, "allow_private": True, "timeout": 10.0}
    return backend_checks(lambda: A2AFactory().build(endpoint), slow="Dawdle", asking="Ask", grace=10)


@pytest.mark.parametrize("name", [str(check) for check in checks("http://localhost")])
async def test_a2a_backend_conforms(shared: Remote, name: str) -> None:
    (check,) = [check for check in checks(shared.url) if str(check) == name]
    await check()


async def test_thread_has_remote_conversation(remote: Remote) -> None:
    async with Runtime([far(remote)]) as runtime:
        first = await runtime.run("analyst", "Hello", thread="t")
        second = await runtime.run("analyst", "Bye", thread="t")
        messages = [(message.role, message.text) for message in await runtime.threads.messages("t")]
    assert (first.text, second.text) == ("You said: Hello", "You said: Bye")
    assert messages == [
        ("user", "Hello"),
        ("assistant", "You said: Hello"),
        ("user", "Bye"),
        ("assistant", "You said: Bye"),
    ]
    assert remote.heard == ["Hello", "Bye"]


async def test_run_streams_remote_text(remote: Remote) -> None:
    async with Runtime([far(remote)]) as runtime:
        events = [event async for event in runtime.stream("analyst", "Hello", thread="t")]
    assert "".join(e.delta for e in events if isinstance(e, TextDelta)) == "You said: Hello"
    assert (type(events[0]), type(events[-1])) == (RunStart, RunFinish)


async def test_question_is_a_ticket_for_any_process(remote: Remote, tmp_path: Path) -> None:
    store = str(tmp_path / "app.db")
    async with Runtime([far(remote)], store=store) as runtime:
        asked = await runtime.run("analyst", "Ask me", thread="t")
    assert asked.status == "waiting"
    (ticket,) = asked.tickets
    assert (ticket.message, ticket.asked_by, ticket.tool) == ("Which city?", "remote", "input_required")
    async with Runtime([far(remote)], store=store) as runtime:
        answered = await runtime.resume(asked.run_id, ticket.result("Rome"))
    assert answered.text == "You chose Rome."
    assert remote.heard == ["Ask me", "Rome"]


async def test_text_on_waiting_thread_goes_to_its_task(remote: Remote) -> None:
    async with Runtime([far(remote)]) as runtime:
        await runtime.run("analyst", "Ask me", thread="t")
        result = await runtime.run("analyst", "Rome", thread="t")
    assert result.text == "You chose Rome."
    assert remote.heard == ["Ask me", "Rome"]


async def test_cancellation_cancels_remote_task(remote: Remote) -> None:
    async with Runtime([far(remote)]) as runtime:
        handle = await runtime.start("analyst", "Dawdle", thread="t")
        await remote.wait("dawdling")
        await handle.cancel()
        result = await handle.result()
    assert isinstance(result.termination, Cancelled)
    assert len(remote.cancelled) == 1


async def test_cancellation_of_waiting_run_cancels_its_task(remote: Remote) -> None:
    async with Runtime([far(remote)]) as runtime:
        asked = await runtime.run("analyst", "Ask me", thread="t")
        await runtime.cancel(asked.run_id)
    assert len(remote.cancelled) == 1


async def test_remote_agent_is_a_delegate(remote: Remote, scripted: Models) -> None:
    model = scripted(call("agent_run_analyst", prompt="Hello"), "They said it.")
    lead = Agent("lead", model=model, delegates=["analyst"])
    async with Runtime([lead, far(remote)]) as runtime:
        result = await runtime.run("lead", "Ask the analyst", thread="t")
        replies = [m.reply for m in await runtime.threads.messages("t") if m.reply is not None]
    assert result.text == "They said it."
    assert "You said: Hello" in str(replies)
    assert remote.heard == ["Hello"]


async def test_unreachable_agent_fails_run_with_reason() -> None:
    agent = Agent.remote("analyst", a2a="http://127.0.0.1:9", timeout=5)
    async with Runtime([agent]) as runtime:
        result = await runtime.run("analyst", "Hello", check=False)
    assert isinstance(result.termination, Failed)
    assert "has no public address" in result.termination.message


def bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_secrets_are_in_no_store_or_event(remote: Remote, tmp_path: Path) -> None:
    secret = "s3cr3t-value"
    store = tmp_path / "app.db"
    async with Runtime([far(remote, auth=Bearer(secret))], store=str(store)) as runtime:
        events = [event async for event in runtime.stream("analyst", "Hello", thread="t")]
        asked = await runtime.run("analyst", "Ask me", thread="u")
        written = bytes_in(tmp_path)
    assert asked.status == "waiting"
    assert b"Which city?" in written
    assert secret.encode() not in written
    assert secret not in repr(events)
    assert any(secret in headers.get("authorization", "") for _, _, headers in remote.requests)


async def test_next_process_resumes_after_kill(tmp_path: Path) -> None:
    async def works(turn: Turn) -> None:
        updater = await turn.open()
        await turn.write("Half ")
        await turn.reached("work")
        await turn.write("and half.", append=True)
        await updater.complete()

    store = str(tmp_path / "app.db")
    with serving(works) as remote:
        environment = {**os.environ, "REMOTE_URL": remote.url}
        child = await asyncio.create_subprocess_exec(sys.executable, scenarios.__file__, store, env=environment)
        await remote.wait("work")
        async with asyncio.timeout(120):
            while b'"stage":"sent"' not in bytes_in(tmp_path):
                await asyncio.sleep(0.02)
        child.kill()
        assert await child.wait() == -signal.SIGKILL
        remote.gate("work").set()
        async with Runtime([far(remote)], store=store) as runtime:
            result = await runtime.run("analyst", "work", thread="t", request_id="talk")
    assert result.text == "Half and half."
    assert len(remote.messages) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("scenario", "point", "in_doubt"),
    # Only a message with an intent and no task is in doubt: its process was killed right then.
    [("talk", "after", 1), ("converse", "after", 2), ("converse", "before", 0)],
)
def test_remote_gets_each_message_once_over_kills(
    scenario: str, point: Literal["before", "after"], in_doubt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def confirms(turn: Turn) -> None:
        updater = await turn.open()
        turn.remote.heard.append(turn.text)
        if turn.text.startswith("ask"):
            await updater.requires_input(turn.says("Sure?"))
        else:
            await updater.complete(turn.says("Done."))

    ends: list[str] = []

    async def check(site: CrashSite, store: Store) -> None:
        (run,) = await store.runs()
        assert run.outcome is not None
        match run.outcome.termination:
            case NaturalEnd():
                ends.append("done")
            case Failed(_, message):
                assert message.startswith("outcome unknown: the process stopped while it sent the message")
                ends.append("in doubt")
            case other:
                raise AssertionError(other)

    with serving(confirms) as remote:
        monkeypatch.setenv("REMOTE_URL", remote.url)
        report = crash_matrix(f"backends.a2a.scenarios:{scenario}", points=[point], check=check)
    assert len(remote.heard) == len(set(remote.heard))
    assert ends.count("in doubt") == in_doubt
    assert len(ends) == report.kills + 1
