"""Nothing is sent twice: crashes between any two steps, broken streams, doubtful sends, aborts."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from wakeful.backends import CancelledStatus, Completed, FailedStatus, TimedOut, WaitingInput
from wakeful.backends.a2a._session import FIRST_PAUSE, LONGEST_PAUSE, pause_after
from wakeful.errors import ExecutionFailed, RemoteError

from .requests import Crash, Thread, thread
from .servers import App, Receive, Remote, Scope, Send, Turn, Wrap, serving


async def answers(turn: Turn) -> None:
    await turn.open()
    await turn.write("Sunny ")
    await turn.write("in Paris.", append=True, last=True)
    await turn.updater.complete()


async def works(turn: Turn) -> None:
    """Takes forever."""
    await turn.open()
    await turn.reached("never")


async def crashes(talk: Thread, stage: str, said: str = "Paris") -> None:
    talk.crash_at = stage
    with pytest.raises(Crash):
        await talk.ask(said)


def breaking(path: str, after: int, *, times: int = 1, seen: bool = True) -> Wrap:
    """Break the connection of the first requests to a path after so many chunks of the answer."""
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


async def test_with_a_handle_the_task_is_followed_and_nothing_sent() -> None:
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
    """A server that is down for so many requests to each path; it says when to come back, or nothing."""

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


async def test_a_remote_that_is_down_as_well_is_waited_for() -> None:
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
        with pytest.raises(RemoteError, match="though it may be at work on a message of ours: retry the run"):
            await again.ask("Paris")
    assert len(remote.messages) == 1


async def test_who_waited_in_vain_for_a_remote_to_come_back_is_told_what_it_said() -> None:
    down = Down()
    with serving(answers, wrap=down) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        again = Thread(thread(remote.url, timeout=3).backend)
        again.state, down.left = talk.state, {"/rpc": 1_000_000}
        result = await again.ask("Paris")
    assert result.status == TimedOut()
    said = getattr(result.termination, "message", "")
    assert said.startswith("polling timeout exceeded: the remote doesn't say how the task stands (HTTP 503 from")


async def test_a_remote_that_is_slow_to_show_its_card_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
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
        monkeypatch.setattr("wakeful.backends.a2a._client.CALL_TIMEOUT", 0.2)
        monkeypatch.setattr("wakeful.backends.a2a._session.FIRST_PAUSE", 0.01)
        again = Thread(thread(remote.url).backend)
        again.state, slow[:] = talk.state, [True] * 4
        assert (await again.ask("Paris")).text == "Sunny in Paris."
    assert len(remote.messages) == 1


async def test_a_remote_that_is_down_when_its_question_is_answered_is_waited_for() -> None:
    down = Down()
    with serving(asks, wrap=down) as remote:
        talk = thread(remote.url)
        await talk.ask("Weather?")
        again = Thread(thread(remote.url).backend)
        again.state, down.left = talk.state, {CARD: 10, "/rpc": 10}
        assert (await again.ask("Rome", is_answer=True)).text == "Sunny in Rome."
    assert len(remote.messages) == 2


@pytest.mark.parametrize("path", [CARD, "/rpc"])
async def test_a_remote_that_is_not_there_yet_is_tried_for_as_long_as_there_is_patience(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.backends.a2a._session.FIRST_PAUSE", 0.001)
    with serving(answers, wrap=Down(wish=None, **{path: 12})) as remote:
        assert (await thread(remote.url, patience=10).ask("Paris")).text == "Sunny in Paris."
    assert len(remote.messages) == 1


@pytest.mark.parametrize(("path", "tries"), [(CARD, 3), ("/rpc", 6)])
async def test_a_remote_that_stays_away_is_told_and_what_was_never_sent_is_sent_by_a_retry(
    path: str, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wakeful.backends.a2a._session.FIRST_PAUSE", 0.001)
    down = Down(wish=None, **{path: 1_000_000})
    with serving(answers, wrap=down, bindings=[("JSONRPC", "0.3")]) as remote:
        talk = thread(remote.url, patience=0.05)
        with pytest.raises(RemoteError, match="Nothing was begun there: see that it runs") as failure:
            await talk.ask("Paris")
        assert "the agent's `patience`, 0.05 s, is how long it is tried" in failure.value.detail
        assert 1_000_000 - down.left.pop(path) >= tries
        # The remote lists no tasks, and couldn't tell.
        assert (await talk.ask("Paris")).text == "Sunny in Paris."
    assert len(remote.messages) == 1


async def test_a_message_that_arrived_is_found_by_its_context() -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        assert talk.state is not None
        # As if the process had died before it saw the task's id.
        talk.state = {**talk.saved[0]}
        result = await talk.ask("Paris")
    assert result.text == "Sunny in Paris."
    assert len(remote.messages) == 1


async def test_a_message_of_unknown_fate_is_not_sent_again() -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        await crashes(talk, "intent")
        with pytest.raises(ExecutionFailed, match="outcome unknown") as failure:
            await talk.ask("Paris")
        assert "effect is 'once'" in failure.value.detail
        assert remote.messages == []
        # Another run on the thread is another message.
        assert (await talk.ask("Paris", run="run-2")).text == "Sunny in Paris."


@pytest.mark.parametrize("settings", [{"effect": "idempotent"}, {"effect": "pure"}, {}])
async def test_it_is_sent_again_with_the_same_id_where_that_does_no_harm(settings: dict[str, Any]) -> None:
    # Without an effect that allows it, the remote's own promise to dedupe does.
    with serving(answers, dedupes=not settings) as remote:
        talk = thread(remote.url, **settings)
        await crashes(talk, "intent")
        assert talk.state is not None
        sent = talk.state["message_id"]
        assert (await talk.ask("Paris")).text == "Sunny in Paris."
    assert remote.messages == [sent]


async def test_where_tasks_are_not_listed_the_effect_decides() -> None:
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


async def test_an_answer_that_arrived_is_not_given_again() -> None:
    with serving(asks) as remote:
        talk = thread(remote.url)
        await talk.ask("Weather?")
        await crashes(talk, "sent", "Rome")
        talk.state = {**talk.saved[-2]}
        assert talk.state["stage"] == "intent"
        assert (await talk.ask("Rome")).text == "Sunny in Rome."
    assert len(remote.messages) == 2


async def test_an_answer_of_unknown_fate_is_not_given_again() -> None:
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
async def test_a_broken_stream_is_taken_up_again(path: str) -> None:
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
    """Whether the client has come back after its stream broke."""
    return remote.calls(path) > 1 if path == "/rpc" else any("/tasks/" in seen for _, seen, _ in remote.requests)


async def test_without_resubscription_a_broken_stream_is_polled() -> None:
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


async def test_a_stream_that_breaks_before_it_names_the_task_leads_to_it_all_the_same() -> None:
    with serving(answers, wrap=breaking("/rpc", after=0)) as remote:
        talk = thread(remote.url)
        result = await talk.ask("Paris")
    assert result.text == "Sunny in Paris."
    assert len(remote.messages) == 1


async def test_a_send_that_may_have_arrived_is_in_doubt() -> None:
    with serving(answers, wrap=breaking("/rpc", after=0, seen=False)) as remote:
        talk = thread(remote.url)
        with pytest.raises(ExecutionFailed, match="outcome unknown"):
            await talk.ask("Paris")
    assert remote.messages == []


async def test_a_server_without_the_streams_that_its_card_promises_is_polled() -> None:
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
async def test_a_busy_remote_is_asked_again(status: int) -> None:
    with serving(answers, wrap=failing("/rpc", status, times=2)) as remote:
        assert (await thread(remote.url).ask("Paris")).text == "Sunny in Paris."
    assert len(remote.messages) == 1


async def test_a_few_failed_polls_do_not_end_a_run() -> None:
    wrap = failing("/rest/tasks/", 502, times=2)
    with serving(answers, streaming=False, bindings=[("HTTP+JSON", "1.0")], wrap=wrap) as remote:
        talk = thread(remote.url)
        assert (await talk.ask("Paris")).text == "Sunny in Paris."


async def test_a_remote_that_began_and_is_gone_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("wakeful.backends.a2a._session.FIRST_PAUSE", 0.001)

    wrap = failing("/rest/tasks/", 502, times=1000)
    with serving(works, streaming=False, bindings=[("HTTP+JSON", "1.0")], wrap=wrap) as remote:
        talk = thread(remote.url, timeout=3)
        assert (await talk.ask("Paris")).status == TimedOut()
        assert talk.state is not None  # The handle stays, so the task can still be looked after.
        assert talk.state["task_id"]


def test_pauses_grow_to_a_limit_however_long_it_takes() -> None:
    assert pause_after(0) <= FIRST_PAUSE
    assert LONGEST_PAUSE / 2 <= pause_after(1_000_000) <= LONGEST_PAUSE


async def test_a_refused_message_leaves_nothing_in_doubt() -> None:
    with serving(answers, wrap=failing("/rpc", 400, times=1)) as remote:
        talk = thread(remote.url)
        result = await talk.ask("Paris")
        assert isinstance(result.status, FailedStatus)
        assert "HTTP 400" in result.status.message
        assert result.state is not None
        assert result.state["stage"] == "done"


@pytest.mark.parametrize("is_answer", [True, False])
async def test_a_refused_answer_is_asked_for_again_and_other_input_takes_the_tasks_place(is_answer: bool) -> None:
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


async def test_a_task_that_may_not_be_looked_at_is_not_forgotten() -> None:
    wrap = failing("/rest/tasks/", 403, times=1)
    with serving(answers, streaming=False, bindings=[("HTTP+JSON", "1.0")], wrap=wrap) as remote:
        talk = thread(remote.url)
        refused = await talk.ask("Paris")
        assert "doesn't accept our credentials" in str(refused.status)
        assert (await talk.ask("Paris")).text == "Sunny in Paris."  # The run is retried.
    assert len(remote.messages) == 1


async def test_abort_cancels_the_task_by_its_handle() -> None:
    with serving(works) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        await talk.abort()
        assert talk.state is not None
        assert remote.cancelled == [talk.state["task_id"]]
        await talk.abort()  # It is over by now, which is no error.
        assert (await talk.ask("Paris")).status == CancelledStatus()


async def test_abort_finds_the_task_of_an_intent() -> None:
    with serving(works) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        talk.state = {**talk.saved[0]}
        await talk.abort()
        assert len(remote.cancelled) == 1


async def test_abort_leaves_alone_what_is_not_the_runs() -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        await talk.abort()  # Nothing was begun.
        await crashes(talk, "intent")
        await talk.abort()  # Nothing arrived.
        await talk.ask("Paris", run="run-2")
        before = len(remote.requests)
        await talk.abort("run-2")  # It is over.
        await talk.abort("run-3")  # It began nothing.
        assert len(remote.requests) == before
    assert remote.cancelled == []


async def test_abort_of_a_task_that_the_remote_forgot_is_no_error() -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        await crashes(talk, "sent")
        assert talk.state is not None
        talk.state = {**talk.state, "task_id": "gone"}
        await talk.abort()
        with pytest.raises(ExecutionFailed, match="no longer knows task gone"):
            await talk.ask("Paris")


async def test_a_cancelled_request_stops_at_once() -> None:
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
async def test_a_state_that_cannot_be_read_is_no_fresh_start(state: dict[str, Any]) -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        talk.state = state
        await talk.abort()  # There is nothing to stop by it.
        for attempt in (talk.ask("Paris"), talk.backend.refresh("analyst", state)):
            with pytest.raises(ExecutionFailed, match="stored state of remote agent 'analyst' can't be read"):
                await attempt
    assert remote.messages == remote.cancelled == []


async def test_an_agent_that_moved_does_not_take_up_what_was_under_way() -> None:
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
    """Return once a task waits for an answer, as whoever subscribed to it is told."""
    waits = "TASK_STATE_INPUT_REQUIRED"
    async with httpx.AsyncClient(headers={"A2A-Version": "1.0"}) as http:
        call = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
        async with asyncio.timeout(20), http.stream("POST", f"{remote.url}/rpc", json=call) as events:
            async for line in events.aiter_lines():
                if waits in line:
                    break


async def test_refresh_tells_how_a_task_stands_without_waiting() -> None:
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


async def test_refresh_tells_what_a_finished_task_came_to() -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        await talk.ask("Paris")
        assert talk.state is not None
        found = await talk.backend.refresh("analyst", talk.state)
    assert found is not None
    assert (found.status, found.text) == (Completed(), "Sunny in Paris.")
