"""A2A over gRPC, called by the official SDK's client on loopback."""

from __future__ import annotations

import asyncio
import datetime
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.client import ClientCallContext
from a2a.client.errors import A2AClientError
from a2a.client.interceptors import AfterArgs, BeforeArgs, ClientCallInterceptor
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a_serving import (
    Gate,
    answer_of,
    get,
    said,
    send,
    serve_app,
    state,
    states,
    stream,
    text_of,
    tickets_in,
    until,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wakeful import Agent, Approval, Principal, Runtime, ScriptedModel, call, tool
from wakeful.errors import ConfigurationError
from wakeful.identity import Caller, Tokens
from wakeful.server import Grpc, ServerLimits, app

USER = frozenset(["runs:create", "runs:read"])
AUTH = Tokens(
    tokens={
        "ann-s": "ann",
        "bob-s": "bob",
        "reader-s": Caller(principal=Principal("rae"), scopes=frozenset(["runs:read"])),
        "other-s": Caller(principal=Principal("oto"), tenant="other", scopes=USER),
        "sales-s": Caller(principal=Principal("sue"), scopes=USER, agents=("sales",)),
    },
    api_keys={"ann-key": "ann"},
)
ANN = {"authorization": "Bearer ann-s"}


@pytest.fixture(autouse=True, scope="module")
def polling() -> Iterator[None]:
    """Keep gRPC's own thread alive, so that it isn't reported as a leak."""

    async def call(step: Callable[[], None]) -> None:
        step()

    with asyncio.Runner() as loop:
        loop.run(call(grpc.aio.init_grpc_aio))
        yield
        loop.run(call(grpc.aio.shutdown_grpc_aio))


class _Metadata(ClientCallInterceptor):
    """Sends metadata with each call."""

    def __init__(self, metadata: dict[str, str]) -> None:
        self._metadata = metadata

    async def before(self, args: BeforeArgs) -> None:
        args.context = args.context or ClientCallContext()
        args.context.service_parameters = {**(args.context.service_parameters or {}), **self._metadata}

    async def after(self, args: AfterArgs) -> None: ...


def support(*turns: Any, name: str = "support", **fields: Any) -> Agent:
    return Agent(name, model=ScriptedModel(turns), **fields)


@asynccontextmanager
async def serve(runtime: Runtime, **options: Any) -> AsyncIterator[str]:
    """Serve over HTTP and gRPC on free loopback ports; yields the URL of HTTP."""
    async with serve_app(app(runtime, **{"grpc": Grpc(port=0), **options})) as url:
        yield url


@asynccontextmanager
async def connect(
    url: str, metadata: dict[str, str] | None = None, *, streaming: bool = False, authority: bytes | None = None
) -> AsyncIterator[Client]:
    """The SDK's client of the gRPC interface in the card."""
    channels: list[Any] = []

    def open_channel(address: str) -> Any:
        if authority is None:
            channels.append(grpc.aio.insecure_channel(address))
        else:
            channels.append(grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority)))
        return channels[-1]

    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    config = ClientConfig(
        streaming=streaming, supported_protocol_bindings=["GRPC"], grpc_channel_factory=open_channel
    )
    try:
        yield ClientFactory(config).create(card, [_Metadata(metadata or {})])
    finally:
        for channel in channels:
            await channel.close()


# -- methods -------------------------------------------------------------------------------------------------


async def test_send_get_and_list() -> None:
    async with serve(Runtime([support("Hello!")])) as url, connect(url) as client:
        task = await send(client, "Hi")
        assert (state(task), answer_of(task)) == ("completed", "Hello!")
        assert (await get(client, task.id)).artifacts == task.artifacts
        listed = await client.list_tasks(pb.ListTasksRequest(context_id=task.context_id))
        assert [each.id for each in listed.tasks] == [task.id]
        with pytest.raises(TaskNotFoundError, match="no task 'nope'"):
            await get(client, "nope")


async def test_stream_yields_states_and_text() -> None:
    async with serve(Runtime([support("Hello there!")])) as url, connect(url, streaming=True) as client:
        events = await stream(client, "Hi")
        assert (states(events)[0], states(events)[-1]) == ("submitted", "completed")
        assert text_of(events) == "Hello there!"


async def test_cancel_ends_task_and_its_subscription() -> None:
    gate = Gate()
    runtime = Runtime([support(call("slow"), tools=[gate.slow])])
    async with serve(runtime) as url, connect(url, streaming=True) as client:
        task = (await anext(client.send_message(pb.SendMessageRequest(message=said("Go"))))).task
        await gate.reached.wait()
        following = client.subscribe(pb.SubscribeToTaskRequest(id=task.id))
        events = [await anext(following)]
        assert state(await client.cancel_task(pb.CancelTaskRequest(id=task.id))) == "canceled"
        events += [event async for event in following]
        assert states(events)[-1] == "canceled"
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(pb.CancelTaskRequest(id=task.id))
        with pytest.raises(UnsupportedOperationError, match="is over"):
            await anext(client.subscribe(pb.SubscribeToTaskRequest(id=task.id)))


async def test_ticket_is_answered_by_its_requester() -> None:
    @tool(approval=Approval(requester=True))
    def refund(order: str) -> str:
        return f"refunded {order}"

    runtime = Runtime([support(call("refund", order="A7"), "It is refunded.", tools=[refund])])
    async with serve(runtime, auth=AUTH) as url, connect(url, ANN) as client:
        task = await send(client, "Refund A7")
        assert state(task) == "input_required"
        (ticket,) = tickets_in(task)
        answer = said(data={"ticketId": ticket["ticketId"], "verdict": "approve"}, task_id=task.id)
        done = await send(client, answer)
        assert (state(done), answer_of(done)) == ("completed", "It is refunded.")


async def test_repeated_message_returns_the_same_task() -> None:
    async with serve(Runtime([support("One.")])) as url, connect(url) as client:
        tasks = [await send(client, said("Hi", message_id="m1")) for _ in range(2)]
        assert tasks[0].id == tasks[1].id
        with pytest.raises(InvalidParamsError, match="m1"):
            await send(client, said("Something else", message_id="m1"))


async def test_push_configuration_is_kept() -> None:
    async with serve(Runtime([support("Done.")])) as url, connect(url) as client:
        task = await send(client, "Hi")
        with pytest.raises(InvalidParamsError, match="https"):
            await client.create_task_push_notification_config(
                pb.TaskPushNotificationConfig(task_id=task.id, url="http://127.0.0.1:9/")
            )
        asked = pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        assert not (await client.list_task_push_notification_configs(asked)).configs


# -- agents and cards ----------------------------------------------------------------------------------------


async def test_card_names_agent_of_a_shared_port() -> None:
    runtime = Runtime([support("I am sales.", name="sales"), support("I am support.")])
    async with serve(runtime) as url:
        for name in ("sales", "support"):
            async with connect(f"{url}/a2a/{name}") as client:
                assert answer_of(await send(client, "Who?")) == f"I am {name}."
        async with connect(f"{url}/a2a/sales") as client:
            with pytest.raises(A2AClientError, match="no agent 'nope' here; set the request's tenant to one of"):
                await client.get_task(pb.GetTaskRequest(id="t", tenant="nope"))


async def test_card_has_the_name_of_the_server() -> None:
    async def address(**options: Any) -> str:
        async with serve(Runtime([support()]), **options) as url, httpx.AsyncClient() as http:
            card = (await http.get(f"{url}/.well-known/agent-card.json")).json()
            return next(i["url"] for i in card["supportedInterfaces"] if i["protocolBinding"] == "GRPC")

    assert (await address()).startswith("127.0.0.1:")
    assert (await address(public_url="https://a.example/x")).startswith("a.example:")
    assert await address(grpc=Grpc(port=0, url="g.example:443")) == "g.example:443"


async def test_extended_card_lists_tools_for_the_authenticated() -> None:
    runtime = Runtime([support(tools=[Gate().slow])])
    async with serve(runtime, auth=AUTH) as url, connect(url, ANN) as client:
        card = await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())
        assert [skill.name for skill in card.skills] == ["support", "slow"]
        assert {each.protocol_binding for each in card.supported_interfaces} == {"GRPC"}


async def test_extended_card_has_all_bindings_of_a_public_url() -> None:
    async with serve(Runtime([support()]), auth=AUTH, public_url="https://a.example") as url:
        card = await extended_card(url, ANN)
        assert [each.url for each in card.supported_interfaces][:2] == ["https://a.example"] * 2
        assert card.supported_interfaces[-1].protocol_binding == "GRPC"


@pytest.mark.parametrize(
    ("metadata", "said"),
    [({}, "no extended card"), ({"a2a-version": "0.3"}, "version '0.3' isn't served over gRPC; use 1.0")],
)
async def test_extended_card_is_refused(metadata: dict[str, str], said: str) -> None:
    async with serve(Runtime([support()])) as url:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await extended_card(url, metadata)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert said in (refused.value.details() or "")


async def extended_card(url: str, metadata: dict[str, str]) -> pb.AgentCard:
    """The extended card, of a server whose card may name another host or none."""
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    port = card.supported_interfaces[-1].url.rpartition(":")[2]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        return await stub.GetExtendedAgentCard(pb.GetExtendedAgentCardRequest(), metadata=tuple(metadata.items()))


# -- rights and limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "status"),
    [
        ({}, "UNAUTHENTICATED"),
        ({"authorization": "Bearer wrong"}, "UNAUTHENTICATED"),
        ({"x-api-key": "wrong"}, "UNAUTHENTICATED"),
        ({"authorization": "Bearer reader-s"}, "PERMISSION_DENIED: this needs the scope 'runs:create'"),
        ({"authorization": "Bearer other-s"}, "PERMISSION_DENIED: this serves another tenant"),
        ({"authorization": "Bearer sales-s"}, "PERMISSION_DENIED: this needs the scope 'runs:create'"),
    ],
)
async def test_caller_without_rights_is_refused(metadata: dict[str, str], status: str) -> None:
    runtime = Runtime([support("Never.")])
    async with serve(runtime, auth=AUTH) as url:
        for streaming in (False, True):
            async with connect(url, metadata, streaming=streaming) as client:
                with pytest.raises(A2AClientError, match=f"gRPC Error {status}"):
                    await stream(client, "Hi")
        assert list(await runtime.runs.list()) == []


async def test_task_is_its_creators_alone() -> None:
    async with serve(Runtime([support("Hello!")]), auth=AUTH) as url:
        async with connect(url, {"x-api-key": "ann-key"}) as ann:
            task = await send(ann, "Hi")
            assert state(task) == "completed"
        async with connect(url, {"authorization": "Bearer bob-s"}) as bob:
            with pytest.raises(TaskNotFoundError):
                await get(bob, task.id)


async def test_messages_and_rates_are_limited() -> None:
    limits = ServerLimits(body_bytes=1000, key_rate=0.001, key_burst=2)
    runtime = Runtime([support("Hello!")])
    async with serve(runtime, auth=AUTH, limits=limits) as url, connect(url, ANN) as client:
        with pytest.raises(A2AClientError, match=r"RESOURCE_EXHAUSTED: .*larger than max"):
            await send(client, "x" * 2000)
        await send(client, "Hi")
        with pytest.raises(TaskNotFoundError):
            await get(client, "nope")
        with pytest.raises(A2AClientError, match="RESOURCE_EXHAUSTED: this credential, or its tenant"):
            await get(client, "nope")


async def test_failing_authenticator_tells_nothing() -> None:
    async def broken(_: Any) -> Caller | None:
        raise RuntimeError("a secret of the store")

    async with serve(Runtime([support()]), auth=broken) as url, connect(url, ANN) as client:
        with pytest.raises(A2AClientError, match="INTERNAL: the server failed; its log has more") as failed:
            await get(client, "nope")
    assert "secret" not in str(failed.value)


async def test_stream_ends_when_its_credential_does(monkeypatch: pytest.MonkeyPatch) -> None:
    is_known = True

    async def keys(_: Any) -> Caller | None:
        return Caller(principal=Principal("ann"), scopes=USER) if is_known else None

    gate = Gate()
    monkeypatch.setattr("wakeful.server.a2a.grpc_service.BEAT_SECONDS", 0.01)
    runtime = Runtime([support(call("slow"), "Done.", tools=[gate.slow])])
    async with serve(runtime, auth=keys) as url, connect(url, ANN, streaming=True) as client:
        events = client.send_message(pb.SendMessageRequest(message=said("Go")))
        await anext(events)
        await gate.reached.wait()
        is_known = False
        with pytest.raises(A2AClientError, match="UNAUTHENTICATED"):
            async for _ in events:
                pass
        gate.opened.set()


# -- the listener --------------------------------------------------------------------------------------------


async def test_client_that_leaves_does_not_stop_the_task() -> None:
    gate = Gate()
    runtime = Runtime([support(call("slow"), "Done.", tools=[gate.slow])])
    async with serve(runtime) as url:
        async with connect(url, streaming=True) as client:
            task = (await anext(client.send_message(pb.SendMessageRequest(message=said("Go"))))).task
            await gate.reached.wait()
        gate.opened.set()
        async with connect(url) as client:
            await until(lambda: _is_done(client, task.id))


async def _is_done(client: Client, task_id: str) -> bool:
    return state(await get(client, task_id)) == "completed"


async def test_stopped_server_refuses_calls() -> None:
    async with serve(Runtime([support("Hello!")])) as url, connect(url) as client:
        assert state(await send(client, "Hi")) == "completed"
        async with httpx.AsyncClient() as http:
            card = await A2ACardResolver(http, url).get_agent_card()
    assert card.supported_interfaces[-1].protocol_binding == "GRPC"
    host, _, port = card.supported_interfaces[-1].url.rpartition(":")
    with pytest.raises(ConnectionError):
        await asyncio.open_connection(host, int(port))


async def test_tls_has_the_certificate_of_its_name(tmp_path: Path) -> None:
    pem, authority = certificate(tmp_path)
    options = Grpc(port=0, certificate=pem, url=None)
    async with serve(Runtime([support("Hello!")]), grpc=options, public_url="https://localhost") as url:
        async with connect(url, authority=authority) as client:
            assert state(await send(client, "Hi")) == "completed"
        async with connect(url) as client:
            with pytest.raises(A2AClientError, match="UNAVAILABLE"):
                await send(client, "Hi")


def certificate(folder: Path) -> tuple[Path, bytes]:
    """A file with a key and a certificate for localhost, and the certificate alone."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM
    private = key.private_bytes(form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / "server.pem"
    path.write_bytes(private + made.public_bytes(form))
    return path, made.public_bytes(form)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grpc": Grpc(host="0.0.0.0")}, "gRPC at 0.0.0.0 can be reached from elsewhere, and there is no auth"),
        ({"grpc": Grpc(), "protocols": ["openai"]}, "gRPC is a binding of A2A, which isn't among the protocols"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        app(Runtime([support()]), **options)


def test_missing_extra_names_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "wakeful.server.a2a.grpc_service", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'wakeful\[grpc\]'"):
        app(Runtime([support()]), grpc=Grpc())
