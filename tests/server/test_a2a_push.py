"""Push notifications: sent at least once, in order, over failures and restarts, to allowed addresses only."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from a2a.compat.v0_3 import types as types_v03
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from a2a_serving import BINDINGS, Gate, connect, said, send, serve, serve_app, state, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from wakeful import Agent, Delegate, Runtime, ScriptedModel, UsageError, call, tool
from wakeful.identity import Tokens
from wakeful.server import ServerLimits, Webhooks
from wakeful.server.webhooks import WebhookFailed, WebhookRefused, check_url, post

OPEN = Webhooks(allow_private=True, backoff=0.02, attempts=3, timeout=5)


class Receiver:
    """A webhook that records posts, and fails a given number of times."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.failures = 0
        self.asked = 0
        self.url = ""

    async def take(self, request: Request) -> Response:
        self.asked += 1
        body = await request.body()
        if self.failures:
            self.failures -= 1
            return Response(status_code=503)
        self.told.append(json.loads(body))
        self.headers.append(dict(request.headers))
        return Response("thanks" * 100_000)

    @property
    def states(self) -> list[str]:
        # A notification of version 0.3 is the task itself.
        found = [each.get("task") or each.get("statusUpdate") or each for each in self.told]
        return [each["status"]["state"].removeprefix("TASK_STATE_").lower() for each in found]

    @property
    def keys(self) -> list[str]:
        return [headers["idempotency-key"] for headers in self.headers]


async def _redirect(request: Request) -> Response:
    return RedirectResponse("/hook", 307)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    routes = [
        Route("/hook", receiver.take, methods=["POST"]),
        Route("/away", _redirect, methods=["POST"]),
    ]
    async with serve_app(Starlette(routes=routes)) as url:
        receiver.url = f"{url}/hook"
        yield receiver


def assistant(*turns: Any, store: Any = None, **fields: Any) -> Runtime:
    return Runtime([Agent("assistant", model=ScriptedModel(turns or ["ok"] * 9), **fields)], store=store)


def config(url: str, **fields: Any) -> pb.TaskPushNotificationConfig:
    return pb.TaskPushNotificationConfig(url=url, **fields)


async def _all_done(runtime: Runtime) -> bool:
    return {relay.status for relay in await runtime.mail.relays()} == {"done"}


# -- notifications -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binding", BINDINGS)
async def test_push_config_of_message_receives_updates(binding: str, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        receiving() as receiver,
        serve(assistant("Sunny."), webhooks=OPEN) as url,
        connect(url, binding, streaming=False) as client,
    ):
        target = config(receiver.url, id="mine", token="let-me-in")
        target.authentication.CopyFrom(pb.AuthenticationInfo(scheme="Bearer", credentials="who-i-am"))
        task = await send(client, "Weather?", task_push_notification_config=target)
        await until(lambda: receiver.states[-1:] == ["completed"])
        assert receiver.states == ["working", "completed"]
        last = receiver.told[-1]["task"]
        assert (last["id"], last["artifacts"][0]["parts"][0]["text"]) == (task.id, "Sunny.")
        for headers in receiver.headers:
            assert headers["x-a2a-notification-token"] == "let-me-in"
            assert headers["authorization"] == "Bearer who-i-am"
            assert headers["a2a-version"] == "1.0"
        assert len(set(receiver.keys)) == 2
        assert all(task.id in key for key in receiver.keys)
    assert "let-me-in" not in caplog.text
    assert "who-i-am" not in caplog.text


@pytest.mark.parametrize("with_message", [True, False])
@pytest.mark.parametrize("binding", BINDINGS)
async def test_v03_push_payload_is_a_v03_task(binding: str, with_message: bool) -> None:
    gate = Gate()
    async with (
        receiving() as receiver,
        serve(assistant(call("slow"), "Sunny.", tools=[gate.slow]), webhooks=OPEN) as url,
        connect(url, binding, version="0.3", streaming=False) as client,
    ):
        target = config(receiver.url, id="mine")
        own = {"task_push_notification_config": target} if with_message else {}
        task = await send(client, "Weather?", return_immediately=True, **own)
        if not with_message:
            target.task_id = task.id
            await client.create_task_push_notification_config(target)
        gate.opened.set()
        await until(lambda: len(receiver.told) == 2)
        tasks = [types_v03.Task.model_validate(told) for told in receiver.told]
        assert [(each.id, each.status.state.value) for each in tasks] == [
            (task.id, "working"),
            (task.id, "completed"),
        ]
        (artifact,) = tasks[-1].artifacts or []
        assert artifact.parts[0].root.text == "Sunny."
        assert [headers["a2a-version"] for headers in receiver.headers] == ["0.3", "0.3"]


async def test_repeated_message_sends_no_update_twice() -> None:
    @tool(approval=True)
    def refund() -> str:
        return "done"

    async with (
        receiving() as receiver,
        serve(assistant(call("refund"), "Done.", tools=[refund]), webhooks=OPEN) as url,
        connect(url, streaming=False) as client,
    ):
        message, target = said("Refund"), config(receiver.url)
        for _ in range(3):
            task = await send(client, message, task_push_notification_config=target)
        request = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        (listed,) = (await client.list_task_push_notification_configs(request)).configs
        await until(lambda: receiver.states[-1:] == ["input_required"])
        await client.delete_task_push_notification_config(
            pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=listed.id)
        )
        # The configuration was deleted, and a late repeat of its message doesn't restore it.
        await send(client, message, task_push_notification_config=target)
        assert not (await client.list_task_push_notification_configs(request)).configs
        assert state(await send(client, said("approve", task_id=task.id))) == "completed"
        assert receiver.states == ["working", "input_required"]


async def test_answer_is_refused_with_too_many_push_configs() -> None:
    @tool(approval=True)
    def refund() -> str:
        return "done"

    async with (
        receiving() as receiver,
        serve(
            assistant(call("refund"), "Done.", tools=[refund]), webhooks=OPEN, limits=ServerLimits(push_configs=1)
        ) as url,
        connect(url, streaming=False) as client,
    ):
        task = await send(client, "Refund", task_push_notification_config=config(receiver.url))
        answer = said("approve", task_id=task.id)
        with pytest.raises(InvalidParamsError, match="at most 1 push configurations"):
            await send(client, answer, task_push_notification_config=config(receiver.url))
        assert state(await client.get_task(pb.GetTaskRequest(id=task.id))) == "input_required"
        assert state(await send(client, answer)) == "completed"


async def test_waiting_task_sends_question_and_outcome() -> None:
    @tool(approval=True)
    def refund() -> str:
        return "refunded"

    runtime = assistant(call("refund"), "Refunded.", tools=[refund])
    async with (
        receiving() as receiver,
        serve(runtime, webhooks=OPEN) as url,
        connect(url, streaming=False) as client,
    ):
        task = await send(client, "Refund", task_push_notification_config=config(receiver.url))
        await until(lambda: receiver.states[-1:] == ["input_required"])
        assert receiver.told[-1]["task"]["status"]["message"]["parts"][1]["data"]["tickets"][0]["tool"] == "refund"
        await send(client, said("approve", task_id=task.id))
        await until(lambda: receiver.states[-1:] == ["completed"])
        assert receiver.states == ["working", "input_required", "working", "completed"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_later_question_of_child_is_sent(kind: str, tmp_path: Path) -> None:
    @tool(approval=True)
    def refund() -> str:
        return "refunded"

    gate = Gate()
    clerk = Agent("clerk", model=ScriptedModel([call("slow"), call("refund"), "ok"]), tools=[gate.slow, refund])
    ask = call("agent_run_clerk", prompt="Refund")
    lead = Agent("lead", model=ScriptedModel([ask, "Refunded."]), delegates=[Delegate("clerk", durable=True)])
    runtime = Runtime([lead, clerk], store=tmp_path / "app.db" if kind == "sqlite" else None)
    async with (
        receiving() as receiver,
        serve(runtime, agents=["lead"], webhooks=OPEN) as url,
        connect(url, streaming=False) as client,
    ):
        target = config(receiver.url)
        task = await send(client, "Refund", return_immediately=True, task_push_notification_config=target)
        await until(lambda: receiver.states == ["working", "working"])  # It waits for the clerk.
        gate.opened.set()
        await until(lambda: receiver.states[2:] == ["input_required"])
        assert receiver.told[-1]["task"]["status"]["message"]["parts"][1]["data"]["tickets"][0]["tool"] == "refund"
        await send(client, said("approve", task_id=task.id))
        await until(lambda: receiver.states[-1:] == ["completed"])
        assert receiver.states == ["working", "working", "input_required", "working", "completed"]
        assert len(set(receiver.keys)) == 5
        await until(lambda: _all_done(runtime))


async def test_cancellation_of_queued_task_is_sent(tmp_path: Path) -> None:
    gate = Gate()
    runtime = assistant(call("slow"), "ok", tools=[gate.slow], store=tmp_path / "app.db")
    async with (
        receiving() as receiver,
        serve(runtime, webhooks=OPEN) as url,
        connect(url, streaming=False) as client,
    ):
        await send(client, said("First", context_id="c"), return_immediately=True)
        await gate.reached.wait()
        second, target = said("Second", context_id="c"), config(receiver.url)
        task = await send(client, second, return_immediately=True, task_push_notification_config=target)
        await client.cancel_task(pb.CancelTaskRequest(id=task.id))
        await until(lambda: receiver.states)
        assert receiver.states == ["canceled"]
        await until(lambda: _all_done(runtime))
        gate.opened.set()


async def test_working_tasks_do_not_block_other_relays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("wakeful.server.relay.BATCH", 2)
    gate = Gate()
    runtime = assistant(*[call("slow")] * 3, *["ok"] * 3, tools=[gate.slow], store=tmp_path / "app.db")
    async with (
        receiving() as receiver,
        serve(runtime, webhooks=OPEN) as url,
        connect(url, streaming=False) as client,
    ):
        for told in (1, 2, 3):
            target = config(receiver.url)
            await send(client, "Go", task_push_notification_config=target, return_immediately=True)
            await until(lambda told=told: receiver.states == ["working"] * told)
        gate.opened.set()
        await until(lambda: receiver.states[3:] == ["completed"] * 3)


async def test_failed_updates_are_retried_in_order() -> None:
    async with (
        receiving() as receiver,
        serve(assistant(), webhooks=OPEN) as url,
        connect(url, streaming=False) as client,
    ):
        receiver.failures = 2
        await send(client, "Go", task_push_notification_config=config(receiver.url))
        await until(lambda: receiver.states[-1:] == ["completed"])
        assert (receiver.states, receiver.asked) == (["working", "completed"], 4)


async def test_dead_relay_can_be_replayed() -> None:
    runtime = assistant()
    async with (
        receiving() as receiver,
        serve(runtime, webhooks=OPEN) as url,
        connect(url, streaming=False) as client,
    ):
        receiver.failures = 3
        task = await send(client, "Go", task_push_notification_config=config(receiver.url, token="secret"))
        (dead,) = await until(lambda: runtime.mail.relays(status="dead"))
        assert (dead.run_id, dead.attempts, dead.last_error) == (
            task.id,
            3,
            "the recipient answered with status 503",
        )
        assert "secret" not in repr(dead)
        await runtime.mail.replay(dead.id)
        await until(lambda: receiver.states[-1:] == ["completed"])
        assert receiver.states == ["working", "completed"]
        await until(lambda: runtime.mail.relays(status="done"))
        with pytest.raises(UsageError, match="it is done"):
            await runtime.mail.replay(dead.id)
        with pytest.raises(UsageError, match="none of that id"):
            await runtime.mail.replay("nope")


async def test_undelivered_updates_are_sent_after_restart(tmp_path: Path) -> None:
    async with receiving() as receiver:
        receiver.failures = 1_000_000
        patient = Webhooks(allow_private=True, backoff=0.05, max_backoff=0.05, attempts=1_000_000)
        async with (
            serve(assistant(store=tmp_path / "a.db"), webhooks=patient) as url,
            connect(url, streaming=False) as client,
        ):
            await send(client, "Go", task_push_notification_config=config(receiver.url))
            await until(lambda: receiver.asked)
        receiver.failures = 0
        assert receiver.told == []
        async with serve(assistant(store=tmp_path / "a.db"), webhooks=patient):
            await until(lambda: receiver.states[-1:] == ["completed"])
        assert receiver.states == ["working", "completed"]


class Holder:
    """A webhook that keeps its callers waiting until it is released."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.released = asyncio.Event()

    async def take(self, request: Request) -> Response:
        self.reached.set()
        await self.released.wait()
        return Response()

    async def was_reached(self) -> None:
        async with asyncio.timeout(120):
            await self.reached.wait()
        self.reached.clear()


# Its lease of a notification is far longer than a test.
SLOW = Webhooks(allow_private=True, timeout=3600)


@asynccontextmanager
async def holding() -> AsyncIterator[tuple[Holder, str]]:
    holder = Holder()
    async with serve_app(Starlette(routes=[Route("/", holder.take, methods=["POST"])])) as url:
        yield holder, f"{url}/"


async def test_closed_server_gives_its_updates_back(tmp_path: Path) -> None:
    async with holding() as (holder, address):
        runtime = assistant(store=tmp_path / "a.db")
        async with serve(runtime, webhooks=SLOW) as url, connect(url, streaming=False) as client:
            await send(client, "Go", task_push_notification_config=config(address))
            await holder.was_reached()
            (relay,) = await runtime.mail.relays()
            assert relay.owner == runtime.workers.id
        async with serve(assistant(store=tmp_path / "a.db"), webhooks=SLOW):
            await holder.was_reached()
            holder.released.set()


SERVER = """
import asyncio, sys
from wakeful import Agent, Runtime, ScriptedModel
from wakeful.server import Webhooks, app

async def main():
    agent = Agent("assistant", model=ScriptedModel([]))
    runtime = Runtime([agent], store=sys.argv[1], execute=sys.argv[2] == "True")
    served = app(runtime, webhooks=Webhooks(allow_private=True, timeout=3600))
    async with served.router.lifespan_context(served):
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("execute", [True, False])
async def test_updates_of_killed_server_are_sent_at_once(tmp_path: Path, execute: bool) -> None:
    path = str(tmp_path / "a.db")
    async with holding() as (holder, address):
        async with serve(assistant(store=path), webhooks=SLOW) as url, connect(url, streaming=False) as client:
            await send(client, "Go", task_push_notification_config=config(address))
            await holder.was_reached()
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, path, str(execute))
        try:
            await holder.was_reached()
        finally:
            child.kill()
            await child.wait()
        async with serve(assistant(store=path), webhooks=SLOW):
            await holder.was_reached()
            holder.released.set()


async def test_two_servers_on_one_store_send_each_update_once(tmp_path: Path) -> None:
    async with (
        receiving() as receiver,
        serve(assistant(store=tmp_path / "a.db"), webhooks=OPEN) as url,
        serve(assistant(store=tmp_path / "a.db"), webhooks=OPEN),
        connect(url, streaming=False) as client,
    ):
        for _ in range(5):
            await send(client, "Go", task_push_notification_config=config(receiver.url))
        await until(lambda: receiver.states.count("completed") == 5)
        assert len(receiver.keys) == len(set(receiver.keys)) == 10


# -- configurations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("binding", "version"), [(binding, version) for binding in BINDINGS for version in ("1.0", "0.3")]
)
async def test_push_configs_can_be_created_read_listed_deleted(binding: str, version: str) -> None:
    gate = Gate()
    async with (
        receiving() as receiver,
        serve(assistant(call("slow"), "ok", tools=[gate.slow]), webhooks=OPEN) as url,
        connect(url, binding, streaming=False) as sender,
        connect(url, binding, version=version, streaming=False) as client,
    ):
        task = await send(sender, "Go", return_immediately=True)
        await gate.reached.wait()
        made = await client.create_task_push_notification_config(
            config(receiver.url, id="a", token="secret", task_id=task.id)
        )
        assert (made.id, made.task_id, made.url) == ("a", task.id, receiver.url)
        await client.create_task_push_notification_config(config(receiver.url, id="b", task_id=task.id))
        one = pb.GetTaskPushNotificationConfigRequest(task_id=task.id, id="a")
        got = await client.get_task_push_notification_config(one)
        assert (got.url, got.token) == (receiver.url, "")
        every = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        # Version 0.3 can't list or delete them over HTTP+JSON.
        able = sender if (binding, version) == ("HTTP+JSON", "0.3") else client
        listed = await able.list_task_push_notification_configs(every)
        assert [each.id for each in listed.configs] == ["a", "b"]
        for config_id in ("a", "a", "never"):  # Deletion is idempotent.
            await able.delete_task_push_notification_config(
                pb.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=config_id)
            )
        with pytest.raises(InvalidParamsError, match="no push configuration 'a'"):
            await sender.get_task_push_notification_config(one)
        gate.opened.set()
        await until(lambda: "completed" in receiver.states)
        over = [key for key, seen in zip(receiver.keys, receiver.states, strict=True) if seen == "completed"]
        assert [key.split(":")[-2] for key in over] == ["b"]


async def test_push_configs_are_private_and_limited() -> None:
    auth = Tokens(tokens={"a": "ann", "b": "bob"})
    limits = ServerLimits(push_configs=1)
    async with (
        receiving() as receiver,
        serve(assistant(), webhooks=OPEN, auth=auth, limits=limits) as url,
        connect(url, streaming=False, headers={"Authorization": "Bearer a"}) as ann,
        connect(url, streaming=False, headers={"Authorization": "Bearer b"}) as bob,
    ):
        task = await send(ann, "Go")
        await ann.create_task_push_notification_config(config(receiver.url, id="x", task_id=task.id))
        with pytest.raises(InvalidParamsError, match="at most 1"):
            await ann.create_task_push_notification_config(config(receiver.url, id="y", task_id=task.id))
        with pytest.raises(TaskNotFoundError):
            await bob.list_task_push_notification_configs(
                pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
            )
        await until(lambda: receiver.states[-1:] == ["completed"])


# -- addresses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/hook",
        "ftp://example.com",
        "https://",
        "https://[::1",
        "https://93.184.216.34/\r\nhook",
        "https://me:pw@93.184.216.34/",
        "https://127.0.0.1/hook",
        "https://localhost/hook",
        "https://10.0.0.1/",
        "https://192.168.1.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://100.64.0.1/",
        "https://0.0.0.0/",
        "https://224.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[2002:0a00:0001::1]/",
        "https://[fe80::1]/",
        "https://[fd00::1]/",
        "https://192.0.0.192/",
        "https://168.63.129.16/",
        "https://169.254.169.254/",
        "https://100.100.100.200/",
        "https://[fec0::1]/",
        "https://[3fff::1]/",
        "https://[fd00:ec2::254]/",
        "https://0x7f000001/",
        "https://2130706433/",
    ],
)
async def test_private_address_is_refused(url: str) -> None:
    with pytest.raises(WebhookRefused):
        await check_url(url, Webhooks())


async def test_private_and_unknown_hosts_give_equal_errors() -> None:
    texts: list[str] = []
    for host in ("localhost", "unknown.invalid"):
        with pytest.raises(WebhookRefused) as caught:
            await check_url(f"https://{host}/", Webhooks())
        texts.append(str(caught.value).replace(host, "HOST"))
    assert texts[0] == texts[1]


async def test_public_address_is_accepted() -> None:
    await check_url("https://93.184.216.34/hook", Webhooks())


async def test_refused_address_starts_no_task() -> None:
    runtime = assistant()
    async with serve(runtime) as url, connect(url, streaming=False) as client:
        with pytest.raises(InvalidParamsError, match="https://"):
            await send(client, "Go", task_push_notification_config=config("http://127.0.0.1:9/hook"))
        assert not (await client.list_tasks(pb.ListTasksRequest())).tasks
        task = await send(client, "Go")
        assert state(task) == "completed"
        with pytest.raises(InvalidParamsError, match="no public address"):
            await client.create_task_push_notification_config(config("https://127.0.0.1/", task_id=task.id))


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "\u00e9"},
        {"id": "a\nb"},
        {"id": "x" * 65},
        {"token": "\u00e9"},
        {"token": " x "},
        {"authentication": pb.AuthenticationInfo(scheme="Bearer", credentials="\u00fc")},
    ],
    ids=str,
)
async def test_config_is_refused_when_headers_cannot_carry_it(fields: dict[str, Any]) -> None:
    runtime = assistant()
    async with serve(runtime, webhooks=OPEN) as url, connect(url, streaming=False) as client:
        target = config("http://127.0.0.1:9/hook", **fields)
        with pytest.raises(InvalidParamsError, match="one line of ASCII each"):
            await send(client, "Go", task_push_notification_config=target)
        assert not (await client.list_tasks(pb.ListTasksRequest())).tasks


async def test_post_ignores_redirects_and_long_responses() -> None:
    async with receiving() as receiver:
        with pytest.raises(WebhookFailed, match="status 307"):
            await post(receiver.url.replace("/hook", "/away"), b"{}", {}, OPEN)
        assert receiver.asked == 0
        await post(receiver.url, b"{}", {}, OPEN)
        assert receiver.asked == 1
        assert receiver.headers[0]["host"] in receiver.url


async def test_post_fails_when_recipient_hangs_or_is_missing() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    with pytest.raises(WebhookFailed, match=r"within 1 seconds"):
        await post(url, b"{}", {}, Webhooks(allow_private=True, timeout=1))
    server.close()
    await server.wait_closed()
    with pytest.raises(WebhookFailed, match="couldn't be reached"):
        await post(url, b"{}", {}, OPEN)
