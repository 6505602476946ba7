"""Discovery of a remote agent by its card, and the checks on the way."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from wakeful.agents import Agent
from wakeful.backends import FailedStatus
from wakeful.backends.a2a import A2AFactory, Bearer
from wakeful.backends.a2a.card import _check_interface
from wakeful.backends.a2a.state import RemoteState
from wakeful.errors import BackendError, ConfigurationError, InvalidConfig, RemoteError
from wakeful.runtime import Runtime

from .requests import thread
from .servers import App, Receive, Scope, Send, Turn, card_for, listening, serving


async def answers(turn: Turn) -> None:
    await turn.open()
    await turn.updater.complete(turn.says("Hello."))


@contextmanager
def card_at(answer: Callable[[Request], Response]) -> Iterator[str]:
    """A server with only a card, valid or not."""

    async def endpoint(request: Request) -> Response:
        return answer(request)

    with listening(Starlette(routes=[Route("/.well-known/agent-card.json", endpoint)])) as url:
        yield url


async def refusal(url: str, **settings: Any) -> str:
    with pytest.raises(BackendError) as failure:
        await thread(url, **settings).ask("hi")
    return failure.value.detail


@pytest.mark.parametrize("suffix", ["", "/", "/.well-known/agent-card.json"])
async def test_agent_is_found_by_base_url_and_card_url(suffix: str) -> None:
    with serving(answers) as remote:
        assert (await thread(remote.url + suffix).ask("hi")).text == "Hello."


async def test_card_is_cached() -> None:
    with serving(answers) as remote:
        talk = thread(remote.url)
        for run in ("run-1", "run-2", "run-3"):
            await talk.ask("hi", run=run)
    assert remote.calls("/.well-known/agent-card.json") == 1


async def test_version_1_and_order_of_server_are_preferred() -> None:
    bindings = [("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("JSONRPC", "1.0")]
    with serving(answers, bindings=bindings) as remote:
        await thread(remote.url).ask("hi")
    assert remote.calls("/rest/message:stream") == 1


async def test_card_is_refused_when_too_large() -> None:
    async def endless() -> Any:
        yield b'{"name": "'
        for _ in range(100):
            yield b"x" * 65536

    with card_at(lambda _: StreamingResponse(endless(), media_type="application/json")) as url:
        assert "answers with more than 262,144 bytes" in await refusal(url)


async def test_redirected_card_is_refused() -> None:
    with card_at(lambda _: RedirectResponse("https://example.com/card.json")) as url:
        assert "redirects aren't followed: give the address that it leads to" in await refusal(url)


async def test_invalid_card_is_refused() -> None:
    for body in (b"<html>", b"[1]", b"[" * 200_000, b'{"capabilities": 7}'):
        with card_at(lambda _, body=body: Response(body, media_type="application/json")) as url:  # type: ignore[misc]
            assert f"no agent card at {url}" in await refusal(url) or "no interface" in await refusal(url)


async def test_missing_card_is_refused_with_its_address() -> None:
    with listening(Starlette()) as url:
        refused = await refusal(url)
        assert f"no agent card at {url}/.well-known/agent-card.json: HTTP 404: give the address" in refused


@pytest.mark.parametrize("interface", [("JSONRPC", "0.2"), ("JSONRPC", "2.0"), ("SOAP", "1.0")])
async def test_card_without_supported_interface_is_a_clear_error(interface: tuple[str, str]) -> None:
    card = MessageToDict(card_for("http://127.0.0.1:9", bindings=[interface]))
    with card_at(lambda _: JSONResponse(card)) as url:
        refused = await refusal(url)
    assert f"offers no supported interface ({' '.join(interface)})" in refused
    assert "JSONRPC, HTTP+JSON" in refused


async def test_private_address_is_refused_by_default() -> None:
    with serving(answers) as remote:
        assert "has no public address" in await refusal(remote.url, allow_private=False)
        assert "has no public address" in await refusal(
            remote.url.replace("127.0.0.1", "localhost"), allow_private=False
        )
        assert remote.requests == []


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3",
        "169.254.169.254",
        "192.168.0.1",
        "0.0.0.0",
        "100.64.0.1",
        "224.0.0.1",
        "2130706433",
        "0x7f.1",
        "[::1]",
        "[fd00::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ],
)
async def test_private_address_is_refused_in_any_spelling(address: str) -> None:
    assert "has no public address" in await refusal(f"http://{address}:1", allow_private=False)


async def test_host_is_refused_with_one_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolves(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (at, 80)) for at in ("93.184.216.34", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", resolves)
    assert "'example.com' has no public address" in await refusal("http://example.com", allow_private=False)


async def test_card_learns_nothing_of_private_names() -> None:
    """An interface at a private name and one at an unknown name give the same error."""
    texts: list[str] = []
    for host in ("localhost", "unknown.invalid"):
        interface = card_for(f"http://{host}:9").supported_interfaces[0]
        with pytest.raises(RemoteError) as caught:
            await _check_interface(interface, "http://example.com", allow_private=False)
        texts.append(str(caught.value).replace(host, "HOST"))
    assert texts[0] == texts[1]


async def test_credentials_go_to_configured_hosts_only() -> None:
    """A card that names an interface on another host gets no secret there, unless `hosts` lists it."""
    with serving(answers) as remote:
        card = MessageToDict(card_for(remote.url))
        with card_at(lambda _: JSONResponse(card)) as url:
            elsewhere = url.replace("127.0.0.1", "localhost")
            assert (await thread(elsewhere).ask("hi")).text == "Hello."
            heard = len(remote.requests)
            refused = await refusal(elsewhere, auth=Bearer("secret"))
            assert (
                "credentials go to hosts of the configuration only: give the agent `hosts=['127.0.0.1']`"
                in refused
            )
            assert len(remote.requests) == heard
            found = await thread(elsewhere, auth=Bearer("secret"), hosts=["127.0.0.1"]).ask("hi")
            assert found.text == "Hello."
            assert remote.requests[-1][2]["authorization"] == "Bearer secret"


async def test_connection_uses_checked_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves differently the next time isn't followed."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def resolves(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host != "agent.test":
            return real(host, port, *rest, **more)
        asked.append(host)
        return real("127.0.0.1", port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolves)
    with serving(answers) as remote:
        url = remote.url.replace("127.0.0.1", "agent.test")
        monkeypatch.setattr(remote, "card", None)
        await thread(url).ask("hi")
        hosts = {headers["host"].partition(":")[0] for _, _, headers in remote.requests}
    # Once for the card; the card's interface has an address, not a name.
    assert asked == ["agent.test"]
    assert hosts == {"agent.test", "127.0.0.1"}


async def test_public_card_with_private_interface_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import wakeful.backends.a2a.card as module

    checked: list[str] = []
    card = MessageToDict(card_for("http://169.254.169.254"))
    with card_at(lambda _: JSONResponse(card)) as url:
        real = module.addresses_of

        async def addresses(host: str, port: int, *, allow_private: bool) -> list[str]:
            checked.append(host)
            return await real(host, port, allow_private=False)

        # The card is on loopback here, which only the transport may reach.
        monkeypatch.setattr(module, "addresses_of", addresses)
        assert "'169.254.169.254' has no public address" in await refusal(url)
    assert checked == ["169.254.169.254"]


async def test_redirected_call_is_refused() -> None:
    async def wrap(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/rpc":
            return await app(scope, receive, send)
        headers = [(b"location", b"http://169.254.169.254/")]
        await send({"type": "http.response.start", "status": 307, "headers": headers})
        return await send({"type": "http.response.body", "body": b""})

    with serving(answers, wrap=wrap) as remote:
        result = await thread(remote.url).ask("hi")
    assert "redirects aren't followed" in str(result.status)


def replaced(path: str, kind: bytes, *chunks: bytes, encoding: bytes | None = None) -> Any:
    """Answer a path with these bytes."""

    async def wrap(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != path:
            return await app(scope, receive, send)
        await receive()
        headers = [(b"content-type", kind)] + ([(b"content-encoding", encoding)] if encoding else [])
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        return await send({"type": "http.response.body", "body": b""})

    return wrap


async def test_bodies_and_streams_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    import wakeful.outbound as guard

    monkeypatch.setattr(guard, "BODY_LIMIT", 100_000)
    monkeypatch.setattr(guard, "LINE_LIMIT", 100_000)
    flood = [b"x" * 50_000] * 3
    for streaming, kind in ((False, b"application/json"), (True, b"text/event-stream")):
        with serving(answers, streaming=streaming, wrap=replaced("/rpc", kind, *flood)) as remote:
            assert "answers with more than 100,000 bytes" in await refusal(remote.url)


async def test_compressed_response_is_refused() -> None:
    wrap = replaced("/rpc", b"application/json", b"x", encoding=b"gzip")
    with serving(answers, wrap=wrap) as remote:
        assert "sent a compressed response" in await refusal(remote.url)


def event(**update: Any) -> bytes:
    body = {"jsonrpc": "2.0", "id": "1", "result": update}
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\r\n\r\n"


async def test_stream_lines_end_only_at_newlines() -> None:
    text = "Zürich, 東京\u2028next\x85line \u2029🌍"
    task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    update = {"taskId": "t", "contextId": "c"}
    stream = event(task=task) + event(artifactUpdate={**update, "artifact": artifact})
    stream += event(statusUpdate={**update, "status": {"state": "TASK_STATE_COMPLETED"}})
    chunks = [stream[at : at + 1] for at in range(len(stream))]
    with serving(answers, wrap=replaced("/rpc", b"text/event-stream", *chunks)) as remote:
        talk = thread(remote.url)
        result = await talk.ask("hi")
    assert result.text == text
    assert "".join(talk.shown) == text


async def test_events_of_another_task_are_ignored() -> None:
    def told(task_id: str, text: str) -> bytes:
        of, artifact = {"taskId": task_id, "contextId": "c"}, {"artifactId": "a", "parts": [{"text": text}]}
        done = {**of, "status": {"state": "TASK_STATE_COMPLETED"}}
        return event(artifactUpdate={**of, "artifact": artifact}) + event(statusUpdate=done)

    begun = event(task={"id": "mine", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}})
    chunks = [begun, told("another", "Rain."), told("mine", "Sun.")]
    with serving(answers, wrap=replaced("/rpc", b"text/event-stream", *chunks)) as remote:
        talk = thread(remote.url)
        assert (await talk.ask("hi")).text == "Sun."
    assert talk.shown == ["Sun."]


async def test_response_with_another_task_is_an_error() -> None:
    task = {"id": "another", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
    body = json.dumps({"jsonrpc": "2.0", "id": "1", "result": task}).encode()
    with serving(answers, wrap=replaced("/rpc", b"application/json", body)) as remote:
        kept = RemoteState(remote.url, "c", "run-1", "m", "sent", "mine").dump()
        with pytest.raises(RemoteError, match="asked for task mine, it answered with 'another'"):
            await thread(remote.url).backend.refresh("analyst", kept)


async def test_response_that_is_not_a2a_is_a_clear_error() -> None:
    for body in (b"hello", b"[]", b'{"jsonrpc": "2.0", "result": {"task": 7}}', b'{"jsonrpc": "2.0"}'):
        with serving(answers, streaming=False, wrap=replaced("/rpc", b"application/json", body)) as remote:
            refused = await refusal(remote.url)
        assert "doesn't answer as A2A does" in refused or "given up" in refused


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ({}, "the agent's address isn't an https or http URL: ''"),
        ({"url": "ftp://example.com"}, "the agent's address isn't an https or http URL"),
        ({"url": "https://me:secret@example.com"}, "carries a password"),
        ({"url": "https://example.com:port"}, "isn't a URL"),
        ({"url": "https://example.com/agent\n"}, "the agent's address has a line break"),
        ({"url": " https://example.com/agent"}, "the agent's address has a line break, a blank"),
        (
            {"url": "https://example.com", "effect": "reconcile"},
            "effect='reconcile' can't be kept",
        ),
        ({"url": "https://example.com", "timeout": 0}, "timeout=0 is no time"),
        ({"url": "https://example.com", "retries": 3}, "unknown setting 'retries'"),
        ({"url": "https://example.com", "auth": "token"}, "auth must be a Bearer"),
        ({"url": "https://example.com", "auth": {"type": "basic"}}, "auth needs a type"),
        ({"url": "https://example.com", "auth": {"type": "bearer"}}, "auth of type Bearer"),
    ],
)
def test_invalid_endpoint_is_refused_at_construction(endpoint: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConfig) as failure:
        A2AFactory().build(endpoint)
    assert problem in str(failure.value)
    assert "me:secret" not in str(failure.value)


def test_agent_remote_is_checked_at_construction() -> None:
    with pytest.raises(ConfigurationError, match="agent 'analyst': backend 'a2a': the agent's address"):
        Runtime([Agent.remote("analyst", a2a="nowhere")])


async def test_plain_http_interface_of_https_card_is_refused() -> None:
    card = card_for("http://93.184.216.34")
    with pytest.raises(RemoteError, match="isn't encrypted, though the card came by HTTPS"):
        await _check_interface(card.supported_interfaces[0], "https://example.com", allow_private=True)


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
async def test_v03_card_leads_to_agent(transport: str) -> None:
    with serving(answers, bindings=[(transport, "0.3")]) as remote:
        card = {
            "name": "old",
            "description": "An agent of 0.3",
            "version": "1",
            "protocolVersion": "0.3.0",
            "url": remote.card.supported_interfaces[0].url,
            "preferredTransport": transport,
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [],
        }
        with card_at(lambda _: JSONResponse(card)) as url:
            assert (await thread(url).ask("hi")).text == "Hello."


@pytest.mark.parametrize("status", [404, 503])
async def test_moved_interface_is_found_by_next_run(status: int) -> None:
    async def gone(app: App, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/rpc":
            return await app(scope, receive, send)
        await send({"type": "http.response.start", "status": status, "headers": [(b"retry-after", b"0")]})
        return await send({"type": "http.response.body", "body": b""})

    with serving(answers, wrap=gone) as old, serving(answers) as new:
        talk = thread(old.url)
        with suppress(RemoteError):
            assert isinstance((await talk.ask("hi")).status, FailedStatus)
        old.card.supported_interfaces[0].url = f"{new.url}/rpc"
        assert (await talk.ask("hi", run="run-2")).text == "Hello."
    assert len(new.messages) == 1
