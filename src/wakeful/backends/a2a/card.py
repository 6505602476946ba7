"""Discovery of a remote agent by its card, and the choice of an interface."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from urllib.parse import urlsplit

import httpx
from a2a.client import A2ACardResolver, AgentCardResolutionError, ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import AgentCard, AgentInterface
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from msgspec import Struct

from ...errors import RemoteError
from ...outbound import CARD_LIMIT, NotPublic, addresses_of, limited, open_http
from .credentials import Credentials, HttpAuth
from .faults import Unreachable, translate
from .objects import DEDUPE_EXTENSION
from .urls import check_url
from .wire import CALL_TIMEOUT, Wire

__all__ = ["Endpoint", "connect", "discover"]


class Endpoint(Struct, frozen=True):
    """A remote agent's card, reduced to the chosen interface."""

    card: AgentCard
    interface: AgentInterface
    streams: bool
    dedupes: bool


def _bindings() -> tuple[str, ...]:
    return ("JSONRPC", "HTTP+JSON", *(("GRPC",) if find_spec("grpc") else ()))


async def discover(
    url: str, credentials: Credentials, *, allow_private: bool, hosts: Sequence[str] = ()
) -> Endpoint:
    """Fetch the card, from the well-known path of a base URL or from its own URL, and choose an interface.

    With credentials, the interface is on the host of that URL or on one of `hosts`.
    """
    check_url(url, "the agent's address")
    base, path = _split_card_url(url)
    auth = HttpAuth(credentials)
    async with open_http(allow_private=allow_private, timeout=CALL_TIMEOUT, auth=auth) as http:
        try:
            resolver = A2ACardResolver(http, base)
            card = await resolver.get_agent_card(path, http_kwargs={"extensions": limited(CARD_LIMIT)})
        except AgentCardResolutionError as error:
            fault = translate(error)
            if isinstance(fault, Unreachable):
                reason = f"no agent card at {base}{path}: {fault}"
                raise Unreachable(reason, may_have_started=False, retry_after=fault.retry_after) from None
            raise RemoteError(f"no agent card at {base}{path}: {_reason_of(error, fault)}") from None
        except RecursionError:
            raise RemoteError(f"no agent card at {base}{path}: its JSON is nested too deeply") from None
    interface = _choose(card, f"{base}{path}")
    host = await _check_interface(interface, url, allow_private=allow_private)
    if credentials.are_needed and host not in (urlsplit(url).hostname, *hosts):
        raise RemoteError(
            f"the card at {base}{path} names an interface at {host!r}, and credentials go to hosts of the "
            f"configuration only: give the agent `hosts=[{host!r}]` if that host may have them"
        )
    return Endpoint(
        _with_interface(card, interface),
        interface,
        streams=card.capabilities.streaming,
        dedupes=any(extension.uri == DEDUPE_EXTENSION for extension in card.capabilities.extensions),
    )


def _split_card_url(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    if parts.path.endswith(".json"):
        return f"{parts.scheme}://{parts.netloc}", parts.path + (f"?{parts.query}" if parts.query else "")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}", AGENT_CARD_WELL_KNOWN_PATH


def _reason_of(error: AgentCardResolutionError, fault: Exception) -> str:
    status = error.status_code
    if status is not None and 300 <= status < 400:
        return f"HTTP {status}, and redirects aren't followed: give the address that it leads to"
    if status == 404:
        return "HTTP 404: give the address that the agent's own paths begin with, or that of the card itself"
    return str(fault)


def _choose(card: AgentCard, where: str) -> AgentInterface:
    offered = list(card.supported_interfaces)
    known = _bindings()
    for versions in (("1.",), ("0.3",)):
        for interface in offered:
            version = interface.protocol_version or "1.0"
            if interface.protocol_binding in known and version.startswith(versions):
                return interface
    listed = ", ".join(f"{i.protocol_binding or '?'} {i.protocol_version or '?'}" for i in offered) or "none"
    raise RemoteError(
        f"the card at {where} offers no supported interface ({listed}): supported are {', '.join(known)} "
        "in the versions 1.x and 0.3"
    )


async def _check_interface(interface: AgentInterface, url: str, *, allow_private: bool) -> str:
    """Refuse an interface in a private network or, for a card fetched by HTTPS, without encryption; returns its
    host."""
    what = "the interface that its card names"
    if interface.protocol_binding == "GRPC":
        host, port, secure = grpc_target(interface.url)
    else:
        host, port = check_url(interface.url, what)
        secure = interface.url.startswith("https:")
    if url.startswith("https:") and not secure:
        raise RemoteError(f"{what} isn't encrypted, though the card came by HTTPS: {interface.url}")
    try:
        await addresses_of(host, port, allow_private=allow_private)
    except (httpx.ConnectError, NotPublic) as error:
        reason = error.detail if isinstance(error, NotPublic) else error
        raise RemoteError(f"{what} can't be reached: {reason}") from None
    return host


def _with_interface(card: AgentCard, interface: AgentInterface) -> AgentCard:
    """A copy of the card with one interface, which the SDK then has to use."""
    copy = AgentCard()
    copy.CopyFrom(card)
    del copy.supported_interfaces[:]
    copy.supported_interfaces.append(interface)
    return copy


def grpc_target(url: str) -> tuple[str, int, bool]:
    """The host and port of a gRPC interface, and whether it is encrypted; the scheme is optional."""
    if "://" not in url:
        url = f"grpcs://{url}" if not url.startswith(("localhost", "127.", "[::1]")) else f"grpc://{url}"
    host, port = check_url(url, "the interface that its card names", ("https", "grpcs", "http", "grpc"))
    return host, port, url.startswith(("https:", "grpcs:"))


@asynccontextmanager
async def connect(
    endpoint: Endpoint, credentials: Credentials, *, allow_private: bool, timeout: float
) -> AsyncGenerator[Wire, None]:
    """Open a connection to a remote for one exchange."""
    if endpoint.interface.protocol_binding == "GRPC":
        from .grpc_channels import open_channel

        channel = await open_channel(*grpc_target(endpoint.interface.url), allow_private=allow_private)
        config = ClientConfig(supported_protocol_bindings=["GRPC"], grpc_channel_factory=lambda _: channel)
        try:
            yield _wire(endpoint, config, timeout, credentials)
        finally:
            await channel.close()
        return
    auth = HttpAuth(credentials)
    async with open_http(allow_private=allow_private, timeout=CALL_TIMEOUT * 2, auth=auth) as http:
        config = ClientConfig(supported_protocol_bindings=["JSONRPC", "HTTP+JSON"], httpx_client=http)
        yield _wire(endpoint, config, timeout, None)


def _wire(endpoint: Endpoint, config: ClientConfig, timeout: float, sign: Credentials | None) -> Wire:
    # An SDK client either streams or doesn't; the two share the connection.
    streaming, plain = (
        ClientFactory(dataclasses.replace(config, streaming=streaming)).create(endpoint.card)
        for streaming in (True, False)
    )
    return Wire(streaming, plain, timeout=timeout, sign=sign)
