"""Authentication, limits, versions, and the errors of refused requests."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    InternalError,
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a_serving import BINDINGS, Gate, answer_of, connect, get, said, send, serve, serve_app, state, stream
from starlette.applications import Starlette
from starlette.routing import Mount

from wakeful import Agent, ConfigurationError, Runtime, ScriptedModel, ToolContext, call, tool
from wakeful.identity import Tokens
from wakeful.server import ServerLimits, app, lifespan

AUTH = Tokens(tokens={"alices-token": "alice", "bobs-token": "bob"}, api_keys={"carols-key": "carol"})
ALICE = {"Authorization": "Bearer alices-token"}
BOB = {"Authorization": "Bearer bobs-token"}
CAROL = {"X-API-Key": "carols-key"}
JSON = {"content-type": "application/json"}


def assistant(*turns: Any, **fields: Any) -> Runtime:
    return Runtime([Agent("assistant", model=ScriptedModel(turns or ["ok"] * 9), **fields)])


# -- authentication ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize("headers", [ALICE, CAROL])
async def test_auth_admits_token_and_api_key(binding: str, headers: dict[str, str]) -> None:
    seen: list[Any] = []

    @tool
    def who(ctx: ToolContext) -> str:
        seen.append(ctx.principal)
        return "you"

    runtime = assistant(call("who"), "Hello.", tools=[who])
    async with serve(runtime, auth=AUTH) as url, connect(url, binding, streaming=False, headers=headers) as client:
        assert answer_of(await send(client, "Hi")) == "Hello."
    assert [principal.id for principal in seen] == ["alice" if headers is ALICE else "carol"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic alices-token"},
        {"X-API-Key": "alices-token"},
        {"Authorization": "Bearer carols-key"},
    ],
)
async def test_auth_refuses_unknown_caller(headers: dict[str, str]) -> None:
    async with serve(assistant(), auth=AUTH) as url, httpx.AsyncClient(headers=headers) as http:
        for request in ("POST /", "POST /message:send", "GET /tasks", "GET /extendedAgentCard"):
            method, path = request.split()
            answer = await http.request(method, f"{url}{path}")
            assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert "Authorization: Bearer" in answer.json()["detail"]
            assert "token" not in answer.text.replace("its token or key", "").replace("<token>", "")
        assert (await http.get(f"{url}/.well-known/agent-card.json")).status_code == 200


async def test_card_declares_security_schemes() -> None:
    async with serve(assistant(), auth=AUTH) as url, httpx.AsyncClient() as http:
        card = (await http.get(f"{url}/.well-known/agent-card.json")).json()
    assert card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"] == "Bearer"
    assert card["securitySchemes"]["apiKey"]["apiKeySecurityScheme"]["name"] == "X-API-Key"
    assert [list(requirement["schemes"]) for requirement in card["securityRequirements"]] == [
        ["bearer"],
        ["apiKey"],
    ]
    assert card["capabilities"]["extendedAgentCard"]


CARD = "/.well-known/agent-card.json"


@pytest.mark.parametrize(
    ("options", "host", "address"),
    [
        ({}, "evil.example", None),
        ({}, "[", None),
        ({}, "localhost:80", "http://localhost:80"),
        ({"hosts": ["agents.test"]}, "agents.test", "http://agents.test"),
        ({"hosts": ["agents.test"]}, "evil.example", None),
        ({"hosts": ["*"]}, "agents.test", "http://agents.test"),
        ({"public_url": "https://agents.test/a"}, "evil.example", "https://agents.test/a"),
    ],
)
async def test_card_has_an_address_of_the_server(options: Any, host: str, address: str | None) -> None:
    """A request's `Host` is the caller's word; a card must not send others to a stranger's server."""
    async with serve(assistant(), auth=AUTH, **options) as url, httpx.AsyncClient(headers={"host": host}) as http:
        answer = await http.get(url + CARD)
        extended = await http.get(f"{url}/extendedAgentCard", headers={**ALICE, "A2A-Version": "1.0"})
        tasks = await http.get(f"{url}/tasks", headers={**ALICE, "A2A-Version": "1.0"})
    assert tasks.status_code == 200
    if address is None:
        assert (answer.status_code, answer.json()["code"]) == (403, "not-allowed")
        assert "--public-url" in answer.json()["detail"]
        assert "--public-url" in extended.text
    else:
        for card in (answer.json(), extended.json()):
            assert card["supportedInterfaces"][0]["url"] == address


@pytest.mark.parametrize("binding", BINDINGS)
async def test_task_is_visible_to_its_creator_only(binding: str) -> None:
    async with (
        serve(assistant(), auth=AUTH) as url,
        connect(url, binding, streaming=False, headers=ALICE) as alice,
        connect(url, binding, headers=BOB) as bob,
    ):
        task = await send(alice, said("Hi", context_id="c", message_id="m"))
        assert (await get(alice, task.id)).id == task.id
        for attempt in (
            get(bob, task.id),
            bob.cancel_task(pb.CancelTaskRequest(id=task.id)),
            stream(bob, said("yes", task_id=task.id)),
        ):
            with pytest.raises(TaskNotFoundError, match="no task"):
                await attempt
        with pytest.raises(InvalidParamsError, match="context"):
            await stream(bob, said("Hi", context_id="c"))
        assert not (await bob.list_tasks(pb.ListTasksRequest())).tasks
        assert len((await alice.list_tasks(pb.ListTasksRequest())).tasks) == 1
        own = (await stream(bob, said("Hi", message_id="m")))[0].task
        assert own.id != task.id


async def test_new_context_belongs_to_first_caller(tmp_path: Path) -> None:
    model = ScriptedModel(["ok"])
    runtime = Runtime([Agent("assistant", model=model)], store=tmp_path / "app.db")
    async with (
        serve(runtime, auth=AUTH) as url,
        connect(url, streaming=False, headers=ALICE) as alice,
        connect(url, streaming=False, headers=BOB) as bob,
    ):
        sent = [send(each, said("Hi", context_id="main")) for each in (alice, bob)]
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["InvalidParamsError", "Task"]
    assert len(model.requests) == 1


@pytest.mark.parametrize("binding", BINDINGS)
async def test_extended_card_needs_authentication(binding: str) -> None:
    @tool
    def look_up(word: str) -> str:
        """Looks a word up."""
        return word

    runtime = assistant(tools=[look_up])
    async with serve(runtime, auth=AUTH) as url, connect(url, binding, headers=ALICE) as client:
        card = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
        assert [skill.name for skill in card.skills] == ["assistant", "look_up"]
        assert card.supported_interfaces[0].url == url
    async with serve(assistant()) as url, httpx.AsyncClient(headers={"A2A-Version": "1.0"}) as http:
        assert "has no authentication" in (await http.get(f"{url}/extendedAgentCard")).text


def test_auth_hides_secrets_and_needs_one() -> None:
    assert repr(AUTH) == "Tokens(alice, bob, carol)"
    with pytest.raises(ConfigurationError, match="no caller could enter"):
        Tokens()
    with pytest.raises(ConfigurationError, match="'wakeful'"):
        Tokens(tokens={"t": "wakeful"})


def test_app_refuses_unknown_agent_and_invalid_url() -> None:
    with pytest.raises(ConfigurationError, match=r"no agent 'nobody'.*assistant"):
        app(assistant(), agents=["nobody"])
    with pytest.raises(ConfigurationError, match="public_url"):
        app(assistant(), public_url="agents.example.com")


# -- limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/message:send"])
async def test_body_is_refused_when_too_large(path: str) -> None:
    limits = ServerLimits(body_bytes=1000)
    async with serve(assistant(), limits=limits) as url, httpx.AsyncClient(headers={"A2A-Version": "1.0"}) as http:
        answer = await http.post(f"{url}{path}", content=b"x" * 1001)
        assert answer.status_code == 413
        assert "1,000 bytes" in answer.json()["detail"]

        async def pieces() -> Any:
            for _ in range(20):
                yield b"x" * 100

        assert (await http.post(f"{url}{path}", content=pieces())).status_code == 413


async def test_message_is_refused_with_too_many_parts() -> None:
    async with serve(assistant(), limits=ServerLimits(parts=2)) as url, connect(url) as client:
        message = said("a")
        message.parts.extend([pb.Part(text="b"), pb.Part(text="c")])
        with pytest.raises(InvalidParamsError, match="1 to 2 parts, not 3"):
            await stream(client, message)


async def test_pages_and_histories_are_limited() -> None:
    limits = ServerLimits(page_size=2, history=1)
    async with serve(assistant(), limits=limits) as url, connect(url, streaming=False) as client:
        tasks = [await send(client, "x") for _ in range(3)]
        page = await client.list_tasks(pb.ListTasksRequest(page_size=100))
        assert (len(page.tasks), page.total_size, bool(page.next_page_token)) == (2, 3, True)
        assert len((await get(client, tasks[0].id, history_length=50)).history) == 1


@pytest.mark.parametrize("binding", BINDINGS)
async def test_open_streams_are_limited(binding: str) -> None:
    gate = Gate()
    runtime = assistant(call("slow"), "ok", "ok", tools=[gate.slow])
    limits = ServerLimits(streams=1)
    async with serve(runtime, limits=limits) as url, connect(url, binding) as client:
        first = aiter(client.send_message(pb.SendMessageRequest(message=said("Go"))))
        await anext(first)
        await gate.reached.wait()
        with pytest.raises(UnsupportedOperationError, match="1 streams are open"):
            await stream(client, "Another")
        gate.opened.set()
        assert [event async for event in first]
        assert await stream(client, "Another")


# -- versions and errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.0", "0.1", "old"])
async def test_unknown_protocol_version_is_refused(version: str) -> None:
    async with serve(assistant()) as url, httpx.AsyncClient(headers={"A2A-Version": version}) as http:
        rpc = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
        assert (await http.post(url, json=rpc)).json()["error"]["code"] == -32009
        rest = await http.get(f"{url}/tasks/x")
        assert (rest.status_code, "VERSION_NOT_SUPPORTED" in rest.text) == (400, True)


async def test_malformed_request_is_refused() -> None:
    async with serve(assistant()) as url, httpx.AsyncClient(headers={"A2A-Version": "1.0"}) as http:

        async def code(body: Any) -> int:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            return (await http.post(url, content=content, headers=JSON)).json()["error"]["code"]

        assert await code(b"{") == -32700
        assert await code([]) == -32600
        assert await code({"jsonrpc": "2.0", "id": 1, "method": "Sing"}) == -32601
        assert await code({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": 1}}) == -32602
        assert await code({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {}}) == -32602


@pytest.mark.parametrize("number", ["NaN", "-Infinity"])
async def test_data_is_refused_when_not_json(number: str, caplog: pytest.LogCaptureFixture) -> None:
    body = f'{{"message": {{"messageId": "m", "role": "ROLE_USER", "parts": [{{"data": [{number}]}}]}}}}'
    async with serve(assistant()) as url, httpx.AsyncClient(headers={"A2A-Version": "1.0"}) as http:
        answer = await http.post(f"{url}/message:send", content=body, headers=JSON)
        assert (answer.status_code, "that JSON doesn't allow" in answer.json()["error"]["message"]) == (400, True)
        assert "request failed" not in caplog.text


@pytest.mark.parametrize("path", ["", "/message:send", "/v1/message:send"])
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_body_is_refused_when_not_declared_as_json(path: str, kind: str) -> None:
    runtime = assistant()
    body = b'{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}'
    async with serve(runtime) as url, httpx.AsyncClient() as http:
        answer = await http.post(f"{url}{path}", content=body, headers={"content-type": kind})
        assert (answer.status_code, "application/json" in answer.json()["detail"]) == (415, True)
        assert await runtime.threads.list() == []


@pytest.mark.parametrize("path", ["", "/message:send", "/v1/message:send"])
async def test_body_is_refused_when_not_utf8(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(assistant()) as url, httpx.AsyncClient(headers={"A2A-Version": "1.0"}) as http:
        answer = await http.post(f"{url}{path}", content=b'{"message": "\xff"}', headers=JSON)
        assert (answer.status_code, "isn't UTF-8" in answer.json()["detail"]) == (400, True)
        assert not caplog.records


async def test_internal_error_hides_internals(caplog: pytest.LogCaptureFixture) -> None:
    runtime = assistant()

    async def broken(run_id: str) -> Any:
        raise RuntimeError("password=hunter2")

    runtime.store.run = broken  # type: ignore[method-assign]
    async with serve(runtime) as url, connect(url) as client:
        with pytest.raises(InternalError) as caught:
            await get(client, "x")
    assert "hunter2" not in str(caught.value)
    assert "server's log" in str(caught.value)
    assert "hunter2" in caplog.text


async def test_internal_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    runtime = assistant()

    async def broken(*args: Any, **options: Any) -> Any:
        raise RuntimeError("on fire")

    async with serve(runtime) as url, connect(url) as client:
        runtime.store.load = broken  # type: ignore[method-assign]
        with pytest.raises(InternalError, match="look for"):
            await send(client, said("Hi", context_id="c", message_id="m"))
    assert caplog.text.count("Traceback") == 1


# -- mounting ------------------------------------------------------------------------------------------------


async def test_app_can_be_mounted() -> None:
    agents = app(assistant())
    outer = Starlette(routes=[Mount("/agents", app=agents)], lifespan=lambda _: lifespan(agents))
    async with serve_app(outer) as url, connect(f"{url}/agents", streaming=False) as client:
        assert state(await send(client, "Hi")) == "completed"


async def test_mounted_app_exposes_only_cards_without_auth() -> None:
    agents = app(assistant(), auth=AUTH)
    outer = Starlette(routes=[Mount("/agents", app=agents)], lifespan=lambda _: lifespan(agents))
    async with serve_app(outer) as url, httpx.AsyncClient() as http:
        base = f"{url}/agents"
        assert (await http.get(f"{base}/.well-known/agent-card.json")).status_code == 200
        assert (await http.get(f"{base}/a2a/assistant/.well-known/agent-card.json")).status_code == 200
        for path in ("/tasks", "/tasks/.well-known/agent-card.json", "/a2a/nobody/.well-known/agent-card.json"):
            assert (await http.get(f"{base}{path}")).status_code == 401
        async with connect(base, streaming=False, headers=ALICE) as client:
            assert state(await send(client, "Hi")) == "completed"


async def test_context_is_shared_by_agents_of_one_server() -> None:
    runtime = Runtime([Agent(name, model=ScriptedModel([name])) for name in ("ann", "bob")])
    async with (
        serve(runtime) as url,
        connect(f"{url}/a2a/ann", streaming=False) as ann,
        connect(f"{url}/a2a/bob", streaming=False) as bob,
    ):
        first = await send(ann, said("Hi", context_id="c"))
        assert answer_of(await send(bob, said("Hi", context_id="c"))) == "bob"
        with pytest.raises(TaskNotFoundError):
            await get(bob, first.id)
