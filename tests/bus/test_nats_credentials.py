"""NATS credentials files, as issued by operators of accounts."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from conformance.bus_suite import eventually, processes
from nats_server import NatsServer
from wakeful.bus import NatsBus, Wake

nkeys = pytest.importorskip("nkeys", reason="credentials need nkeys, which wakeful[nats] brings")


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Key:
    """The key of an operator, an account or a user."""

    def __init__(self, kind: int) -> None:
        self.seed: bytes = nkeys.encode_seed(os.urandom(32), kind)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public: str = self._pair.public_key.decode()

    def signed(self, subject: Key, name: str, **claims: Any) -> str:
        """Sign a claim about another key."""
        body = {"iat": 1_700_000_000, "iss": self.public, "name": name, "sub": subject.public}
        body["nats"] = {"version": 2, **claims}
        digest = hashlib.new("sha512_256", json.dumps(body).encode()).digest()
        body["jti"] = base64.b32encode(digest).decode().rstrip("=")
        head = encoded(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
        text = f"{head}.{encoded(json.dumps(body).encode())}"
        return f"{text}.{encoded(self._pair.sign(text.encode()))}"


async def test_nats_credentials_file_is_accepted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    operator, account = Key(nkeys.PREFIX_BYTE_OPERATOR), Key(nkeys.PREFIX_BYTE_ACCOUNT)
    user, stranger = Key(nkeys.PREFIX_BYTE_USER), Key(nkeys.PREFIX_BYTE_USER)
    unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    limits = {**unlimited, "wildcards": True, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    said = operator.signed(account, "account", type="account", limits=limits)
    server = NatsServer(
        f"operator: {operator.signed(operator, 'operator', type='operator')}",
        "resolver: MEMORY",
        f"resolver_preload: {{{account.public}: {said}}}",
        jetstream=False,  # JetStream would need a system account.
    )
    jwt = account.signed(user, "worker", type="user", subs=-1, data=-1, payload=-1)

    def credentials(name: str, seed: bytes) -> Path:
        lines = f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        lines += f"-----BEGIN USER NKEY SEED-----\n{seed.decode()}\n------END USER NKEY SEED------\n"
        (tmp_path / name).write_text(lines)
        return tmp_path / name

    server.start()
    try:
        bus = NatsBus(f"{server.url}?credentials={credentials('worker.creds', user.seed)}")
        async with processes(bus, {}, {"serves": True}) as (sender, taker):
            sender.link.wake(Wake("default", "t1"))
            await eventually(lambda: taker.wakes)
        wrong = NatsBus(server.url, credentials=str(credentials("wrong.creds", stranger.seed)))
        link = wrong.join("one", None)  # type: ignore[arg-type]
        await eventually(lambda: "can't be used" in caplog.text)
        await link.close()
    finally:
        server.close()
    assert stranger.seed.decode() not in caplog.text
