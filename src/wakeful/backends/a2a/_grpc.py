"""gRPC channels to addresses that were checked."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import httpx

from ..._outside import BODY_LIMIT, addresses_of
from ._faults import Unreachable

__all__ = ["open_channel"]


async def open_channel(host: str, port: int, secure: bool, *, allow_private: bool) -> Any:
    """A channel to a host by the addresses that it had when they were checked; its certificate is its name's."""
    try:
        addresses = await addresses_of(host, port, allow_private=allow_private)
    except httpx.ConnectError as error:
        raise Unreachable(str(error), begun=False) from None
    # gRPC takes one family in a target: the first address's.
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
