"""gRPC channels to checked addresses."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import httpx

from ...outbound import BODY_LIMIT, addresses_of
from .faults import Unreachable

__all__ = ["open_channel"]


async def open_channel(host: str, port: int, secure: bool, *, allow_private: bool) -> Any:
    """Open a channel to a host's checked addresses, with the certificate of its name.

    Connecting by address keeps a DNS change after the check from redirecting the channel.
    """
    try:
        addresses = await addresses_of(host, port, allow_private=allow_private)
    except httpx.ConnectError as error:
        raise Unreachable(str(error), may_have_started=False) from None
    # A gRPC target has one address family.
    family = "ipv6" if ":" in addresses[0] else "ipv4"
    same = [a for a in addresses if (":" in a) == (family == "ipv6")]
    target = f"{family}:" + ",".join(f"[{a}]:{port}" if family == "ipv6" else f"{a}:{port}" for a in same)
    options = [
        ("grpc.default_authority", f"{host}:{port}"),
        ("grpc.max_receive_message_length", BODY_LIMIT),
        ("grpc.enable_http_proxy", 0),
    ]
    if not secure:
        return grpc.aio.insecure_channel(target, options=options)
    options.append(("grpc.ssl_target_name_override", host))
    return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(), options=options)
