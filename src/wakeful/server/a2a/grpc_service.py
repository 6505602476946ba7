"""The gRPC binding: admits callers, and passes their calls on to the agents' methods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import grpc
import grpc.aio
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.grpc_handler import DefaultGrpcServerCallContextBuilder, GrpcHandler
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from a2a.utils.constants import PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import VersionNotSupportedError
from msgspec import Struct
from starlette.datastructures import Headers

from ...errors import ConfigurationError, NotAuthenticated, Overloaded, UsageError, WakefulError, explain, report
from ...identity import Caller
from ...types.ids import new_id
from ..access import caller_of, check_right
from ..grpc import Grpc
from ..problems import problem_of_error
from ..rates import TOO_FAST
from ..serving import Serving
from ..sse import BEAT_SECONDS, STUCK_SECONDS
from .handler import Handler
from .streams import STREAMS

__all__ = ["Service", "listen"]

# Seconds for open calls to end when the server stops.
GRACE_SECONDS = 5.0
# A connection on which nothing arrives is probed, and closed if the other side is gone.
PROBE_MS = 60_000
ANSWER_MS = 20_000

_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}

_log = logging.getLogger("wakeful.server")


@asynccontextmanager
async def listen(serving: Serving, options: Grpc, handlers: Mapping[str, Handler]) -> AsyncGenerator[None]:
    """Serve the agents' methods over gRPC; on exit, let open calls end for some seconds."""
    limits = serving.limits
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", limits.body_bytes),
            ("grpc.max_metadata_size", limits.header_bytes),
            ("grpc.keepalive_time_ms", PROBE_MS),
            ("grpc.keepalive_timeout_ms", ANSWER_MS),
            ("grpc.so_reuseport", 0),  # A second server on the port would take calls of the first.
        ],
        maximum_concurrent_rpcs=limits.connections,
    )
    register: Any = vars(a2a_pb2_grpc)["add_A2AServiceServicer_to_server"]  # It has no types.
    register(Service(serving, handlers), server)
    address = options.address(options.port)
    try:
        port = _bind(server, address, options)
    except RuntimeError as error:
        raise ConfigurationError(f"can't listen for gRPC on {address}; give another address") from error
    await server.start()
    serving.grpc_port = port
    try:
        yield
    finally:
        serving.grpc_port = None
        await server.stop(GRACE_SECONDS)


def _bind(server: Any, address: str, options: Grpc) -> int:
    if options.certificate is None:
        return server.add_insecure_port(address)
    certificate = options.certificate.read_bytes()
    key = certificate if options.key is None else options.key.read_bytes()
    authority = None if options.client_ca is None else options.client_ca.read_bytes()
    credentials = grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=authority, require_client_auth=authority is not None
    )
    return server.add_secure_port(address, credentials)


class _Incoming(Struct, frozen=True):
    """The metadata of a call, as authenticators read it."""

    headers: Headers


class _Admitted(Struct, frozen=True):
    handler: GrpcHandler
    incoming: _Incoming
    caller: Caller


class Service:
    """The methods of the A2A service, for all agents of a server.

    A call is for the agent that its `tenant` names, as the agent's card says; a single agent needs no name.
    """

    def __init__(self, serving: Serving, handlers: Mapping[str, Handler]) -> None:
        self._serving = serving
        self._handlers = handlers
        for method in pb.DESCRIPTOR.services_by_name["A2AService"].methods:
            call = self._stream if method.server_streaming else self._answer
            setattr(self, method.name, partial(call, method.name))

    async def _answer(self, name: str, request: Any, context: Any) -> Any:
        async with self._admit(request, context) as admitted:
            return await getattr(admitted.handler, name)(request, context)

    async def _stream(self, name: str, request: Any, context: Any) -> None:
        """Write the events of a method until it ends, the caller leaves, or its credential is no longer valid."""
        async with self._admit(request, context) as admitted:
            validity = asyncio.timeout(None)
            try:
                async with validity:
                    checking = asyncio.create_task(self._check(admitted, validity))
                    try:
                        async with aclosing(getattr(admitted.handler, name)(request, context)) as events:
                            async for event in events:
                                await _write(context, event)
                    finally:
                        checking.cancel()
            except TimeoutError:
                if not validity.expired():
                    raise Overloaded(f"nothing was read for {STUCK_SECONDS:.0f} s; subscribe again") from None
                raise NotAuthenticated("the credential is no longer valid; get a new one") from None

    @asynccontextmanager
    async def _admit(self, request: Any, context: Any) -> AsyncGenerator[_Admitted]:
        """Check the caller, its rights and limits; errors end the call with their status."""
        streams: list[AsyncGenerator[Any]] = []
        serving, incoming = self._serving, _incoming(context)
        try:
            caller = await caller_of(serving, incoming)
            agent = self._agent(request.tenant)
            check_right(serving, caller, "runs:create", agent)
            if serving.quotas.take(caller):
                raise Overloaded(TOO_FAST)
            builder = _ContextBuilder(caller, incoming.headers, streams, self._url(agent))
            with serving.quotas.one(caller):
                yield _Admitted(GrpcHandler(self._handlers[agent], builder), incoming, caller)
        except WakefulError as error:
            problem = problem_of_error(error)
            unknown = grpc.StatusCode.INTERNAL if problem.status >= 500 else grpc.StatusCode.INVALID_ARGUMENT
            await context.abort(_CODES.get(problem.status, unknown), problem.detail)
        except (grpc.aio.AbortError, grpc.aio.BaseError):
            raise
        except Exception as error:
            error_id = new_id()
            report(_log, error, "request failed (%s)", error_id)
            await context.abort(grpc.StatusCode.INTERNAL, f"the server failed; its log has more under {error_id}")
        finally:
            for stream in streams:
                await stream.aclose()

    def _agent(self, tenant: str) -> str:
        if not tenant and len(self._handlers) == 1:
            return next(iter(self._handlers))
        if tenant not in self._handlers:
            known = ", ".join(self._handlers)
            raise UsageError(f"there is no agent {tenant!r:.80} here; set the request's tenant to one of: {known}")
        return tenant

    def _url(self, agent: str) -> Callable[[], str | None]:
        """The agent's address over HTTP, for its card; None if only a request over HTTP would tell it."""
        public = self._serving.public_url
        prefix = f"/a2a/{agent}" if len(self._handlers) > 1 else ""
        return lambda: None if public is None else f"{public}{prefix}"

    async def _check(self, admitted: _Admitted, validity: asyncio.Timeout) -> None:
        """Let the time of a stream end once its credential has expired or was revoked."""
        while admitted.caller.principal is not None:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                if (await caller_of(self._serving, admitted.incoming)).id == admitted.caller.id:
                    continue
            except NotAuthenticated:
                pass
            except Exception as error:  # The store is away: the next check decides.
                _log.debug("the credential of a stream can't be checked: %s", explain(error))
                continue
            validity.reschedule(asyncio.get_running_loop().time())
            return


class _ContextBuilder(DefaultGrpcServerCallContextBuilder):
    """Adds the caller to the context of a method."""

    def __init__(
        self,
        caller: Caller,
        headers: Headers,
        streams: list[AsyncGenerator[Any]],
        url: Callable[[], str | None],
    ) -> None:
        self._caller = caller
        self._headers = headers
        self._streams = streams
        self._url = url

    def build(self, context: Any) -> ServerCallContext:
        version = self._headers.get(VERSION_HEADER) or PROTOCOL_VERSION_1_0
        if version.partition(".")[0] != "1":
            raise VersionNotSupportedError(f"version {version!r:.20} isn't served over gRPC; use 1.0")
        built: ServerCallContext = super().build(context)  # pyright: ignore[reportUnknownMemberType]
        built.state["headers"] = {VERSION_HEADER.lower(): version}
        built.state[STREAMS] = self._streams
        built.state["caller"] = self._caller
        built.state["url"] = self._url
        return built


def _incoming(context: Any) -> _Incoming:
    """The metadata of a call; binary entries are left out."""
    entries = [(name, value) for name, value in context.invocation_metadata() or () if isinstance(value, str)]
    return _Incoming(
        Headers(raw=[(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in entries])
    )


async def _write(context: Any, event: Any) -> None:
    async with asyncio.timeout(STUCK_SECONDS):
        await context.write(event)
