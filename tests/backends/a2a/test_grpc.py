"""The gRPC binding, if grpcio is installed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import a2a_pb2_grpc
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from wakeful.backends import CancelledStatus, WaitingInput
from wakeful.backends.a2a import Bearer
from wakeful.errors import RemoteError

from .requests import Crash, thread
from .servers import Executor, Gate, Remote, Turn, card_for, listening

grpc = pytest.importorskip("grpc")


@pytest.fixture(autouse=True, scope="module")
def polling() -> Iterator[None]:
    """Keep gRPC's own thread alive, so that it isn't reported as a leak."""

    async def call(step: Callable[[], None]) -> None:
        step()

    with asyncio.Runner() as loop:  # A loop is needed in either case.
        loop.run(call(grpc.aio.init_grpc_aio))
        yield
        loop.run(call(grpc.aio.shutdown_grpc_aio))


async def answers(turn: Turn) -> None:
    updater = await turn.open()
    if turn.text == "Ask":
        await updater.requires_input(turn.says("Which city?"))
    elif turn.text == "Dawdle":
        await turn.reached("never")
    else:
        await turn.write("Sunny ")
        await turn.write(f"in {turn.text}.", append=True, last=True)
        await updater.complete()


class Calls(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Records the metadata of calls."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, str]] = []

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        self.metadata.append(dict(details.invocation_metadata))
        return await continuation(details)


@contextmanager
def serving() -> Iterator[tuple[Remote, Calls]]:
    """Serve a remote agent over gRPC, with its card on HTTP."""
    remote, calls = Remote(answers, None), Calls()
    up, down = threading.Event(), Gate()

    async def serve() -> None:
        server = grpc.aio.server(interceptors=[calls])
        port = server.add_insecure_port("127.0.0.1:0")
        remote.card = card_for(f"127.0.0.1:{port}", bindings=[("GRPC", "1.0")])
        handler = DefaultRequestHandler(Executor(remote), InMemoryTaskStore(), remote.card)
        a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
        await server.start()
        up.set()
        await down.wait()
        await server.stop(None)

    async def card(_: Request) -> JSONResponse:
        return JSONResponse(MessageToDict(remote.card))

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert up.wait(120)
    try:
        with listening(Starlette(routes=[Route("/.well-known/agent-card.json", card)])) as url:
            remote.url = url
            yield remote, calls
    finally:
        down.set()
        thread.join(20)


async def test_grpc_run() -> None:
    with serving() as (remote, calls):
        talk = thread(remote.url, auth=Bearer("s3cr3t"))
        result = await talk.ask("Paris")
        assert result.text == "Sunny in Paris."
        assert "".join(talk.shown) == "Sunny in Paris."
        assert {each["authorization"] for each in calls.metadata} == {"Bearer s3cr3t"}
        assert (await talk.ask("Ask", run="run-2")).status == WaitingInput("Which city?")
        assert (await talk.ask("Rome", run="run-2")).text == "Sunny in Rome."


async def test_grpc_crash_and_abort() -> None:
    with serving() as (remote, _):
        talk = thread(remote.url)
        talk.crash_at = "sent"
        with pytest.raises(Crash):
            await talk.ask("Dawdle")
        talk.state = {**talk.saved[0]}
        await talk.abort()
        assert (await talk.ask("Dawdle")).status == CancelledStatus()
    assert len(remote.messages) == 1


async def test_grpc_refuses_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    from wakeful.backends.a2a.card import grpc_target
    from wakeful.backends.a2a.grpc_channels import open_channel

    with pytest.raises(RemoteError, match="has no public address"):
        await open_channel(*grpc_target("10.0.0.1:50051"), allow_private=False)
    assert grpc_target("agents.example.com:50051") == ("agents.example.com", 50051, True)
    assert grpc_target("http://agents.example.com") == ("agents.example.com", 80, False)
    assert grpc_target("grpcs://agents.example.com") == ("agents.example.com", 443, True)
