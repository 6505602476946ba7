"""Redaction: hooks shape every request that leaves the process, so a secret they mask is in none of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest
from wire_anthropic import Anthropic
from wire_openai import Chat
from wire_script import Calls, Codec, Says, Script
from wire_server import Reply, WireRequest, WireServer

from backends.a2a.servers import Turn, serving
from wakeful import Agent, Compaction, Message, Plugin, RetryPolicy, Runtime, WindowPolicy, tool
from wakeful.backends import (
    BackendOutput,
    BackendResult,
    Capabilities,
    ExecutionBackend,
    RootRequest,
    WaitingInput,
)
from wakeful.models import ModelFacts, ModelRequest, forbid_live_models
from wakeful.plugins import BeforeInference

SECRET = "sk-4711-very-secret"
PATTERN = re.compile(r"sk-[\w-]+")


@pytest.fixture(autouse=True)
def _live_allowed(no_live_models: None) -> Iterator[None]:
    before = forbid_live_models(False)
    yield
    forbid_live_models(before)


def mask(message: Message) -> Message:
    text = msgspec.json.encode(message).decode()
    return msgspec.json.decode(PATTERN.sub("[masked]", text), type=Message)


class Redact(Plugin):
    """As docs/state-and-plugins.md shows it; it also notes what the requests are for."""

    def __init__(self) -> None:
        self.purposes: list[str] = []

    async def before_inference(self, ctx: BeforeInference) -> None:
        self.purposes.append(ctx.plan.purpose)
        ctx.plan.instructions = PATTERN.sub("[masked]", ctx.plan.instructions)
        ctx.plan.replace_messages([mask(message) for message in ctx.messages])


class Counting:
    """A vendor's model with a token counter on the same server."""

    live = True

    def __init__(self, model: Any, url: str) -> None:
        self._model, self._url = model, url
        self.name = model.name
        self.stream = model.stream
        self.close = model.close

    async def count_tokens(self, request: ModelRequest) -> int:
        async with httpx.AsyncClient() as client:
            reply = await client.post(f"{self._url}/count", content=msgspec.json.encode(request))
        return int(reply.content)


class Service:
    """The vendor: counts a token for four bytes, repeats the secret in summaries, and answers by script."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.replies: list[Reply] = []

    def says(self, *pieces: str, **options: Any) -> Reply:
        return self._codec.answer(Script([Says(pieces)], **options))

    def answer(self, request: WireRequest) -> Reply:
        if request.path == "/count":
            return Reply([str(len(request.raw) // 4).encode()])
        if b"<conversation>" in request.raw:
            return self.says(f"The user's key is {SECRET}.")
        return self.replies.pop(0) if self.replies else self.says(f"I know {SECRET}. ", "Fine. " * 20)


class Typed(msgspec.Struct):
    city: str


class Custom(ExecutionBackend):
    """A backend of an application, which is sent the whole conversation, and asks when it is told to."""

    capabilities = Capabilities.full()

    def __init__(self) -> None:
        self.requests: list[RootRequest] = []

    async def execute_root(self, request: RootRequest) -> BackendResult:
        self.requests.append(request)
        if request.new_messages[-1].text.startswith("Ask"):
            return BackendResult(request.agent_id, WaitingInput(f"What of {SECRET}?"))
        return BackendResult(request.agent_id, output=BackendOutput(f"You said {SECRET}."))


@tool(effect="pure")
async def read_keys(of: str) -> str:
    """Read the keys of somebody."""
    return f"{SECRET} of {of}\n" * 400


@pytest.mark.parametrize("codec", [Chat(), Anthropic()], ids=lambda codec: codec.name)
async def test_secret_is_in_no_request_of_any_purpose(codec: Codec) -> None:
    redact, service, custom = Redact(), Service(codec), Custom()
    heard: list[bytes] = []

    async def record(app: Any, scope: Any, receive: Any, send: Any) -> None:
        async def listen() -> Any:
            message = await receive()
            heard.append(message.get("body", b""))
            return message

        await app(scope, listen, send)

    async def asks(turn: Turn) -> None:
        updater = await turn.open()
        if turn.is_new:
            await updater.requires_input(turn.says(f"Is it {SECRET}?"))
        else:
            await updater.complete(turn.says("Thanks."))

    with serving(asks, wrap=record) as remote:
        async with WireServer(answer=service.answer) as server:
            model = Counting(codec.model(server.url), server.url)
            window = WindowPolicy(compaction=Compaction(keep=2))
            common: dict[str, Any] = {"model": model, "window": window, "instructions": f"Never say {SECRET}."}
            agents = [
                Agent("chat", tools=[read_keys], retry=RetryPolicy(backoff=0), **common),
                Agent("typed", output=Typed, **common),
                Agent.remote("far", a2a=remote.url, allow_private=True, timeout=30),
                Agent("custom", backend=custom),
            ]
            facts = {model.name: ModelFacts(context_window=4_000, max_output=1_000)}
            async with Runtime(agents, plugins=[redact], facts=facts) as runtime:
                whole = service.says(f"It is {SECRET}", *[f" and {n}" for n in range(40)])
                service.replies += [
                    codec.answer(Script([Calls("read_keys", [f'{{"of": "{SECRET}"}}'])], stop="tool_use")),
                    replace(whole, ends="cut", cut_at=whole.size // 2),
                    service.says(f" or {SECRET}", stop="max_tokens"),
                    service.says(" at last."),
                ]
                result = await runtime.run("chat", f"My key is {SECRET}.", thread="t")
                assert result.text.endswith(" at last.")
                service.replies += [service.says(f'{{"town": "{SECRET}"}}'), service.says('{"city": "Rome"}')]
                assert (await runtime.run("typed", f"Near {SECRET}?")).output == Typed("Rome")
                for turn in range(10):
                    await runtime.run("chat", f"{turn}: {SECRET} " * 300, thread="t")
                asked = await runtime.run("far", f"Take {SECRET}.")
                (ticket,) = asked.tickets
                assert (await runtime.resume(asked.run_id, ticket.result(f"Yes, {SECRET}."))).text == "Thanks."
                await runtime.run("custom", f"Take {SECRET}.", thread="c")
                await runtime.run("custom", "And again.", thread="c")
                for answer in ("result", "deny"):
                    asked = await runtime.run("custom", f"Ask about {SECRET}.", thread=answer)
                    (ticket,) = asked.tickets
                    given = ticket.deny(SECRET) if answer == "deny" else ticket.result([SECRET], reason=SECRET)
                    await runtime.resume(asked.run_id, given)
                stored = await runtime.threads.messages("t")
    assert set(redact.purposes) == {"answer", "continuation", "repair", "summary", "remote"}
    assert any(message.covers is not None and SECRET in message.text for message in stored)
    sent = [request.raw for request in server.requests]
    assert sum(request.path == "/count" for request in server.requests)
    assert not [body for body in sent if SECRET.encode() in body]
    assert [body for body in sent if b"It is [masked] and 0" in body], "no request had the begun answer"
    assert b"Take [masked]." in b"".join(heard)
    assert b"Yes, [masked]." in b"".join(heard)
    assert SECRET.encode() not in b"".join(heard)
    assert [len(request.messages) for request in custom.requests] == [1, 3, 1, 3, 1, 3]
    assert [len(request.new_messages) for request in custom.requests] == [1] * 6
    given = [(d.verdict, d.value, d.reason) for request in custom.requests for d in request.decisions]
    assert given == [("approve", ["[masked]"], "[masked]"), ("deny", None, "[masked]")]
    assert not [request for request in custom.requests if SECRET in repr(request)]
