"""No message is sent twice: crashes between any two steps, broken streams, sends in doubt, aborts."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from wakeful.backends import CancelledStatus, Completed, FailedStatus, TimedOut, WaitingInput
from wakeful.backends.a2a.session import FIRST_PAUSE, MAX_PAUSE, pause_after
from wakeful.errors import ExecutionFailed, RemoteError

from .requests import Crash, Thread, thread
from .servers import App, Receive, Remote, Scope, Send, Turn, Wrap, serving


async def answers(turn: Turn) -> None:
    await turn.open()
    await turn.write("Sunny ")
    await turn.write("in Paris.", append=True, last=True)
    await turn.updater.complete()


async def works(turn: Turn) -> None:
    """Never answers."""
    await turn.open()
    await turn.reached("never")


async def crashes(talk: Thread, stage: str, said: str = "Paris") -> None:
    talk.crash_at = stage
    with pytest.raises(Crash):
        await talk.ask(said)


def breaking(path: str, after: int, *, times: int = 1, seen: bool = True) -> Wrap:
    """Break the connection of the first requests to a path after some chunks of the response."""
    left = [times]

    async def wrap(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != path or left[0] == 0:
            return await app(scope, receive, send)
        left[0] -= 1
        chunks = 0

        async def counting(message: Any) -> None:
            nonlocal chunks
            if after:
                await send(message)
            chunks += message["type"] == "http.response.body"
            if chunks >= after:
                raise ConnectionAbortedError

        if seen:
            await app(scope, receive, counting)
        raise ConnectionAbortedError

    return wrap


async def test_saved_task_is_followed_without_resend() -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        again = Thread(thread(remote.url).backend)
        again.state = talk.state
        result = await again.ask("Paris")
    assert result.text == "Sunny in Paris."
    assert "".join(again.shown) == "Sunny in Paris."
    assert len(remote.messages) == 1


class Down:
    """A server that is down for some requests to each path, with or without a Retry-After."""

    def __init__(self, *, wish: str | None = "0", **left: int) -> None:
        self.left: dict[str, int] = left
        self._headers = [] if wish is None else [(b"retry-after", wish.encode())]

    async def __call__(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        if self.left.get(scope["path"], 0) == 0:
            return await app(scope, receive, send)
        self.left[scope["path"]] -= 1
        await send({"type": "http.response.start", "status": 503, "headers": self._headers})
        return await send({"type": "http.response.body", "body": b""})


CARD = "/.well-known/agent-card.json"


async def test_unreachable_remote_with_task_is_waited_for() -> None:
    down = Down()
    with serving(answers, wrap=down) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        again = Thread(thread(remote.url).backend)
        again.state, down.left = talk.state, {CARD: 10, "/rpc": 10}
        assert (await again.ask("Paris")).text == "Sunny in Paris."
        assert down.left == {CARD: 0, "/rpc": 0}
        again = Thread(thread(remote.url, timeout=0.2).backend)
        again.state, down.left = talk.state, {CARD: 1_000_000}
        with pytest.raises(RemoteError, match=r"'analyst': no agent card .* in 0\.2 s, the agent's `timeout`"):
            await again.ask("Paris")
    assert len(remote.messages) == 1


async def test_timeout_reports_last_error_of_remote() -> None:
    down = Down()
    with serving(answers, wrap=down) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        again = Thread(thread(remote.url, timeout=3).backend)
        again.state, down.left = talk.state, {"/rpc": 1_000_000}
        result = await again.ask("Paris")
    assert result.status == TimedOut()
    said = getattr(result.termination, "message", "")
    assert said.startswith(
        "agent 'analyst' wasn't done within 3 s, its `timeout`: the task's status can't be fetched (HTTP 503 from"
    )
    assert "its task could not be cancelled and may still run" in said


async def test_slow_card_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[bool] = []

    async def wrap(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == CARD and slow:
            slow.pop()
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        await app(scope, receive, send)

    with serving(answers, wrap=wrap) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        monkeypatch.setattr("wakeful.backends.a2a.client.CALL_TIMEOUT", 0.2)
        monkeypatch.setattr("wakeful.backends.a2a.session.FIRST_PAUSE", 0.01)
        again = Thread(thread(remote.url).backend)
        again.state, slow[:] = talk.state, [True] * 4
        assert (await again.ask("Paris")).text == "Sunny in Paris."
    assert len(remote.messages) == 1


async def test_unreachable_remote_is_waited_for_with_answer() -> None:
    down = Down()
    with serving(asks, wrap=down) as remote:
        talk = thread(remote.url)
        await talk.ask("Weather?")
        again = Thread(thread(remote.url).backend)
        again.state, down.left = talk.state, {CARD: 10, "/rpc": 10}
        assert (await again.ask("Rome", is_answer=True)).text == "Sunny in Rome."
    assert len(remote.messages) == 2


@pytest.mark.parametrize("path", [CARD, "/rpc"])
async def test_unreachable_remote_is_tried_for_connect_timeout(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.backends.a2a.session.FIRST_PAUSE", 0.001)
    with serving(answers, wrap=Down(wish=None, **{path: 12})) as remote:
        assert (await thread(remote.url, connect_timeout=120).ask("Paris")).text == "Sunny in Paris."
    assert len(remote.messages) == 1


@pytest.mark.parametrize(("path", "tries"), [(CARD, 3), ("/rpc", 6)])
async def test_unsent_message_is_sent_by_retry(path: str, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wakeful.backends.a2a.session.FIRST_PAUSE", 0.001)
    down = Down(wish=None, **{path: 1_000_000})
    with serving(answers, wrap=down, bindings=[("JSONRPC", "0.3")]) as remote:
        talk = thread(remote.url, connect_timeout=0.05)
        with pytest.raises(RemoteError, match="No work was started: check that the agent runs") as failure:
            await talk.ask("Paris")
        assert "it is tried for the agent's `connect_timeout`, 0.05 s" in failure.value.detail
        assert 1_000_000 - down.left.pop(path) >= tries
        # The remote can't list tasks.
        assert (await talk.ask("Paris")).text == "Sunny in Paris."
    assert len(remote.messages) == 1


async def test_arrived_message_is_found_by_context() -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        assert talk.state is not None
        # As if the process had died before it got the task's id.
        talk.state = {**talk.saved[0]}
        result = await talk.ask("Paris")
    assert result.text == "Sunny in Paris."
    assert len(remote.messages) == 1


async def test_message_in_doubt_is_not_resent() -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        await crashes(talk, "intent")
        with pytest.raises(ExecutionFailed, match="outcome unknown") as failure:
            await talk.ask("Paris")
        assert "effect is 'once'" in failure.value.detail
        assert remote.messages == []
        # Another run of the thread sends another message.
        assert (await talk.ask("Paris", run="run-2")).text == "Sunny in Paris."


@pytest.mark.parametrize("settings", [{"effect": "idempotent"}, {"effect": "pure"}, {}])
async def test_message_is_resent_with_same_id_when_allowed(settings: dict[str, Any]) -> None:
    # The effect doesn't allow it, but the remote dedupes.
    with serving(answers, dedupes=not settings) as remote:
        talk = thread(remote.url, **settings)
        await crashes(talk, "intent")
        assert talk.state is not None
        sent = talk.state["message_id"]
        assert (await talk.ask("Paris")).text == "Sunny in Paris."
    assert remote.messages == [sent]


async def test_effect_decides_when_tasks_are_not_listed() -> None:
    with serving(answers, bindings=[("JSONRPC", "0.3")]) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        talk.state = {**talk.saved[0]}
        with pytest.raises(ExecutionFailed, match="outcome unknown"):
            await talk.ask("Paris")
        talk.backend = thread(remote.url, effect="idempotent").backend
        assert (await talk.ask("Paris")).text == "Sunny in Paris."
    assert remote.messages[0] == remote.messages[1]


async def asks(turn: Turn) -> None:
    updater = await turn.open()
    if turn.is_new:
        await updater.requires_input(turn.says("Which city?"))
    else:
        await updater.complete(turn.says(f"Sunny in {turn.text}."))


async def test_arrived_answer_is_not_resent() -> None:
    with serving(asks) as remote:
        talk = thread(remote.url)
        await talk.ask("Weather?")
        await crashes(talk, "sent", "Rome")
        talk.state = {**talk.saved[-2]}
        assert talk.state["stage"] == "intent"
        assert (await talk.ask("Rome")).text == "Sunny in Rome."
    assert len(remote.messages) == 2


async def test_answer_in_doubt_is_not_resent() -> None:
    with serving(asks) as remote:
        talk = thread(remote.url)
        await talk.ask("Weather?")
        await crashes(talk, "intent", "Rome")
        with pytest.raises(ExecutionFailed, match="outcome unknown"):
            await talk.ask("Rome")
        talk.backend = thread(remote.url, effect="idempotent").backend
        assert (await talk.ask("Rome")).text == "Sunny in Rome."
    assert len(remote.messages) == 2


@pytest.mark.parametrize("path", ["/rpc", "/rest/message:stream"])
async def test_broken_stream_is_resubscribed(path: str) -> None:
    async def slow(turn: Turn) -> None:
        await turn.open()
        await turn.write("Sunny ")
        await turn.reached("half")
        await turn.write("in Paris.", append=True)
        await turn.updater.complete()

    binding = "JSONRPC" if path == "/rpc" else "HTTP+JSON"
    with serving(slow, bindings=[(binding, "1.0")], wrap=breaking(path, after=3)) as remote:
        talk = thread(remote.url)
        asking = asyncio.create_task(talk.ask("Paris"))
        await remote.wait("half")
        await remote.called(lambda: again(remote, path))
        remote.gate("half").set()
        result = await asking
    assert result.text == "Sunny in Paris."
    assert "".join(talk.shown) == "Sunny in Paris."
    assert len(remote.messages) == 1


def again(remote: Remote, path: str) -> bool:
    """Whether the client resubscribed after its stream broke."""
    return remote.calls(path) > 1 if path == "/rpc" else any("/tasks/" in seen for _, seen, _ in remote.requests)


async def test_broken_stream_is_polled_without_resubscription() -> None:
    async def slow(turn: Turn) -> None:
        await turn.open()
        await turn.write("Sunny ")
        await turn.reached("half")
        await turn.write("in Paris.", append=True)
        await turn.updater.complete()

    breaks = breaking("/rest/message:stream", after=3)

    async def wrap(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].endswith(":subscribe"):
            remote.gate("half").set()
            await send({"type": "http.response.start", "status": 405, "headers": []})
            return await send({"type": "http.response.body", "body": b""})
        return await breaks(app, scope, receive, send)

    with serving(slow, bindings=[("HTTP+JSON", "1.0")], wrap=wrap) as remote:
        talk = thread(remote.url)
        result = await talk.ask("Paris")
    assert result.text == "Sunny in Paris."
    assert "".join(talk.shown) == "Sunny in Paris."
    assert len(remote.messages) == 1


async def test_task_is_found_when_stream_breaks_before_naming_it() -> None:
    with serving(answers, wrap=breaking("/rpc", after=0)) as remote:
        talk = thread(remote.url)
        result = await talk.ask("Paris")
    assert result.text == "Sunny in Paris."
    assert len(remote.messages) == 1


async def test_send_without_reply_is_in_doubt() -> None:
    with serving(answers, wrap=breaking("/rpc", after=0, seen=False)) as remote:
        talk = thread(remote.url)
        with pytest.raises(ExecutionFailed, match="outcome unknown"):
            await talk.ask("Paris")
    assert remote.messages == []


async def test_server_without_declared_streams_is_polled() -> None:
    async def wrap(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/rest/message:stream":
            await send({"type": "http.response.start", "status": 501, "headers": []})
            return await send({"type": "http.response.body", "body": b""})
        return await app(scope, receive, send)

    with serving(answers, bindings=[("HTTP+JSON", "1.0")], wrap=wrap) as remote:
        assert (await thread(remote.url).ask("Paris")).text == "Sunny in Paris."
    assert len(remote.messages) == 1


def failing(path: str, status: int, times: int) -> Wrap:
    """Answer the first requests to a path with an error."""
    left = [times]

    async def wrap(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith(path) or left[0] == 0:
            return await app(scope, receive, send)
        left[0] -= 1
        headers = [(b"retry-after", b"0")] if status in (429, 503) else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        return await send({"type": "http.response.body", "body": b""})

    return wrap


@pytest.mark.parametrize("status", [429, 503])
async def test_busy_remote_is_retried(status: int) -> None:
    with serving(answers, wrap=failing("/rpc", status, times=2)) as remote:
        assert (await thread(remote.url).ask("Paris")).text == "Sunny in Paris."
    assert len(remote.messages) == 1


async def test_few_failed_polls_are_retried() -> None:
    wrap = failing("/rest/tasks/", 502, times=2)
    with serving(answers, streaming=False, bindings=[("HTTP+JSON", "1.0")], wrap=wrap) as remote:
        talk = thread(remote.url)
        assert (await talk.ask("Paris")).text == "Sunny in Paris."


async def test_lost_remote_is_waited_for_until_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wakeful.backends.a2a.session.FIRST_PAUSE", 0.001)

    wrap = failing("/rest/tasks/", 502, times=1000)
    with serving(works, streaming=False, bindings=[("HTTP+JSON", "1.0")], wrap=wrap) as remote:
        talk = thread(remote.url, timeout=3)
        assert (await talk.ask("Paris")).status == TimedOut()
        assert talk.state is not None  # The handle is kept, so that the task can be fetched later.
        assert talk.state["task_id"]


def test_backoff_grows_to_its_maximum() -> None:
    assert pause_after(0) <= FIRST_PAUSE
    assert MAX_PAUSE / 2 <= pause_after(1_000_000) <= MAX_PAUSE


async def test_refused_message_is_not_in_doubt() -> None:
    with serving(answers, wrap=failing("/rpc", 400, times=1)) as remote:
        talk = thread(remote.url)
        result = await talk.ask("Paris")
        assert isinstance(result.status, FailedStatus)
        assert "HTTP 400" in result.status.message
        assert result.state is not None
        assert result.state["stage"] == "done"


@pytest.mark.parametrize("is_answer", [True, False])
async def test_refused_answer_is_repeated_and_input_supersedes(is_answer: bool) -> None:
    refuse = failing("/rest/message:stream", 400, times=1)

    async def through(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        await (refuse(app, scope, receive, send) if len(remote.messages) == 1 else app(scope, receive, send))

    with serving(asks, bindings=[("HTTP+JSON", "1.0")], wrap=through) as remote:
        talk = thread(remote.url)
        await talk.ask("Weather?")
        first = talk.state or {}
        again = await talk.ask("Rome", is_answer=is_answer)
        assert isinstance(again.status, WaitingInput)
        assert again.state is not None
        assert (again.state["task_id"] == first["task_id"], again.state["stage"]) == (is_answer, "waiting")
        assert again.state["context_id"] == first["context_id"]
        assert ("HTTP 400" in str(again.status), "Which city?" in str(again.status)) == (is_answer, True)
        assert len(remote.cancelled) == (not is_answer)
        assert (await talk.ask("Rome", is_answer=True)).text == "Sunny in Rome."


async def test_unreadable_task_keeps_its_handle() -> None:
    wrap = failing("/rest/tasks/", 403, times=1)
    with serving(answers, streaming=False, bindings=[("HTTP+JSON", "1.0")], wrap=wrap) as remote:
        talk = thread(remote.url)
        refused = await talk.ask("Paris")
        assert "doesn't accept our credentials" in str(refused.status)
        assert (await talk.ask("Paris")).text == "Sunny in Paris."  # The run is retried.
    assert len(remote.messages) == 1


async def test_abort_cancels_task_by_handle() -> None:
    with serving(works) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        await talk.abort()
        assert talk.state is not None
        assert remote.cancelled == [talk.state["task_id"]]
        await talk.abort()  # The task is over, which is no error.
        assert (await talk.ask("Paris")).status == CancelledStatus()


async def test_abort_finds_task_of_intent() -> None:
    with serving(works) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        talk.state = {**talk.saved[0]}
        await talk.abort()
        assert len(remote.cancelled) == 1


async def test_abort_ignores_task_of_another_run() -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        await talk.abort()  # No task was started.
        await crashes(talk, "intent")
        await talk.abort()  # Nothing arrived.
        await talk.ask("Paris", run="run-2")
        before = len(remote.requests)
        await talk.abort("run-2")  # The task is over.
        await talk.abort("run-3")  # The run started nothing.
        assert len(remote.requests) == before
    assert remote.cancelled == []


async def test_abort_of_unknown_task_is_no_error() -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        assert talk.state is not None
        talk.state = {**talk.state, "task_id": "gone"}
        await talk.abort()
        with pytest.raises(ExecutionFailed, match="no longer knows task gone"):
            await talk.ask("Paris")


async def test_cancelled_request_stops_at_once() -> None:
    async def works(turn: Turn) -> None:
        await turn.open()
        await turn.reached("work")

    with serving(works) as remote:
        asking = asyncio.create_task(thread(remote.url).ask("Paris"))
        await remote.wait("work")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"task_id": "t"},
        {"url": "u", "context_id": "c", "run_id": "r", "message_id": "m", "stage": "sent"},
        {"url": "u", "context_id": "", "run_id": "r", "message_id": "m", "stage": "done"},
        {"url": "u", "context_id": "c", "run_id": "r", "message_id": "m", "stage": "lost"},
        {"url": "u", "context_id": "c", "run_id": "r", "message_id": "m", "stage": "done", "version": 2},
    ],
)
async def test_unreadable_state_is_an_error(state: dict[str, Any]) -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        talk.state = state
        await talk.abort()  # An unreadable state has no task to cancel.
        for attempt in (talk.ask("Paris"), talk.backend.refresh("analyst", state)):
            with pytest.raises(ExecutionFailed, match="stored state of remote agent 'analyst' can't be read"):
                await attempt
    assert remote.messages == remote.cancelled == []


async def test_moved_agent_reports_unknown_outcome() -> None:
    with serving(answers) as before, serving(answers) as after:
        talk = thread(before.url)
        await crashes(talk, "sent")
        talk.backend = thread(after.url).backend
        with pytest.raises(ExecutionFailed, match="outcome unknown: the message went to"):
            await talk.ask("Paris")
        await talk.abort()
        assert after.messages == []
        assert (await talk.ask("Paris", run="run-2")).text == "Sunny in Paris."


async def asked(remote: Remote, task_id: str) -> None:
    """Wait until a task waits for an answer, by its subscription."""
    waits = "TASK_STATE_INPUT_REQUIRED"
    async with httpx.AsyncClient(headers={"A2A-Version": "1.0"}) as http:
        call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
        async with asyncio.timeout(120), http.stream("POST", f"{remote.url}/rpc", json=call) as events:
            async for line in events.aiter_lines():
                if waits in line:
                    break


async def test_refresh_does_not_wait() -> None:
    async def works(turn: Turn) -> None:
        updater = await turn.open()
        await turn.reached("work")
        await updater.requires_input(turn.says("Which?"))

    with serving(works) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        assert talk.state is not None
        assert await talk.backend.refresh("analyst", talk.state) is None
        remote.gate("work").set()
        await asked(remote, talk.state["task_id"])
        found = await talk.backend.refresh("analyst", talk.state)
        assert found is not None
        assert found.status == WaitingInput("Which?")
        stopped = await talk.backend.stop("analyst", talk.state)
        assert stopped is not None
        assert stopped.status == CancelledStatus()
        with pytest.raises(RemoteError):
            await talk.backend.refresh("analyst", {**talk.state, "task_id": "gone"})


async def test_refresh_returns_result_of_finished_task() -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        await talk.ask("Paris")
        assert talk.state is not None
        found = await talk.backend.refresh("analyst", talk.state)
    assert found is not None
    assert (found.status, found.text) == (Completed(), "Sunny in Paris.")
