"""NATS settings: credentials, TLS and errors."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.bus_suite import eventually, processes
from nats_server import NatsServer
from wakeful.bus import MemoryBus, NatsBus, PostgresBus, Wake, open_bus
from wakeful.bus.nats_bus import subject_token
from wakeful.errors import ConfigurationError


@contextmanager
def serving(*settings: str) -> Iterator[NatsServer]:
    server = NatsServer(*settings)
    server.start()
    try:
        yield server
    finally:
        server.close()


async def works(bus: Any) -> None:
    async with processes(bus, {}, {}) as (one, other):
        other.runs.add(("default", "t1"))
        async with asyncio.timeout(120):
            while not await one.link.notify_owner(other.id, "default", "t1"):
                pass  # The reply may take more than a second.


async def refused(bus: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    link = bus.join("one", None)
    await eventually(lambda: "can't be used" in caplog.text)
    assert not link.is_healthy
    await link.close()


async def test_nats_user_and_password_are_accepted(caplog: pytest.LogCaptureFixture) -> None:
    with serving('authorization: {user: worker, password: "pa:s/s"}') as server:
        await works(NatsBus(f"nats://127.0.0.1:{server.port}", user="worker", password="pa:s/s"))
        await works(NatsBus(f"nats://127.0.0.1:{server.port}?user=worker&password=pa:s/s"))
        await works(NatsBus(f"nats://worker:pa%3As%2Fs@127.0.0.1:{server.port}"))
        await refused(NatsBus(f"nats://worker:wrong-secret@127.0.0.1:{server.port}"), caplog)
        await refused(NatsBus(server.url), caplog)
    assert "pa:s/s" not in caplog.text
    assert "wrong-secret" not in caplog.text


async def test_nats_user_with_minimal_permissions_suffices(caplog: pytest.LogCaptureFixture) -> None:
    allowed = '["wakeful.>", "_INBOX.>", "$JS.API.>", "$JS.ACK.>"]'
    user = f"{{user: worker, password: pw, permissions: {{publish: {allowed}, subscribe: {allowed}}}}}"
    with serving(f"authorization: {{users: [{user}]}}") as server:
        bus = NatsBus(server.url, user="worker", password="pw")
        await works(bus)
        async with processes(bus, {}, {"serves": True}) as (sender, taker):
            sender.link.wake(Wake("default", "t1"))
            await eventually(lambda: taker.wakes)
    assert "JetStream" not in caplog.text


async def test_nats_token_is_accepted(caplog: pytest.LogCaptureFixture) -> None:
    with serving('authorization: {token: "s3cr3t"}') as server:
        await works(NatsBus(f"nats://s3cr3t@127.0.0.1:{server.port}"))
        await works(NatsBus(server.url, token="s3cr3t"))
        await refused(NatsBus(server.url, token="wr0ng"), caplog)
    assert "wr0ng" not in caplog.text


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    options = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    for name in ("server", "other"):
        files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        subprocess.run([*make, *options, *files], check=True, capture_output=True)
    return folder


async def test_nats_tls_with_client_certificate_connects(
    certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, key, other = certificates / "server.pem", certificates / "server.key", certificates / "other.pem"
    tls = f'tls: {{cert_file: "{ours}", key_file: "{key}", ca_file: "{ours}", verify: true}}'
    with serving(tls) as server:
        await works(NatsBus(f"tls://127.0.0.1:{server.port}?ca={ours}&cert={ours}&key={key}"))
        await refused(NatsBus(server.url, ca=str(other), cert=str(ours), key=str(key)), caplog)
        caplog.clear()
        await refused(NatsBus(server.url, ca=str(ours)), caplog)


async def test_nats_first_server_may_be_down() -> None:
    away = NatsServer()
    with serving() as server:
        await works(NatsBus(f"nats://127.0.0.1:{away.port},127.0.0.1:{server.port}"))
    away.close()


@pytest.mark.parametrize(
    ("url", "settings", "said"),
    [
        ("nats://u:secret@host?what=1", {}, "no setting 'what'"),
        ("nats://u:sec/ret@host", {}, "can't be read"),
        ("nats://host", {"credentials": "/nowhere/x.creds"}, "doesn't exist"),
        ("nats://host?cert=/etc/hosts", {}, "needs both"),
        ("nats://host", {"name": "Not.Good"}, "a bus's name"),
        ("http://u:secret@host", {}, "begins with nats:// or tls://"),
        ("nats://[bad", {}, "begins with nats:// or tls://"),
    ],
)
def test_bus_url_errors_hide_secrets(url: str, settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        NatsBus(url, **settings)
    assert said in str(raised.value)
    assert "sec" not in str(raised.value)


def test_bus_repr_hides_secrets() -> None:
    bus = NatsBus("nats://u:secret@a:1,u:secret@b:2?token=secret", password="secret")
    assert repr(bus) == "NatsBus('nats://a:1,b:2', name='wakeful')"
    assert "secret" not in repr(bus.settings)
    assert repr(PostgresBus("postgres://u:secret@host:5/db")) == "PostgresBus('postgres://host:5', name='wakeful')"


def test_open_bus_accepts_urls_and_objects() -> None:
    assert open_bus(None) is None
    assert open_bus("local") is open_bus("local")
    assert open_bus("local") is not open_bus("local://other")
    assert isinstance(open_bus("postgresql://host/db"), PostgresBus)
    assert isinstance(open_bus("nats://host"), NatsBus)
    own = MemoryBus()
    assert open_bus(own) is own
    for wrong in ("redis://u:secret@host", 7):
        with pytest.raises(ConfigurationError, match="bus") as raised:
            open_bus(wrong)  # type: ignore[arg-type]
        assert "secret" not in str(raised.value)


def test_subject_tokens_do_not_collide() -> None:
    names = ["", "=", "a", "A", "a.b", "a=2Eb", "*", ">", " ", "ü", "x" * 300, "x" * 301]
    tokens = [subject_token(name) for name in names]
    assert len(set(tokens)) == len(names)
    assert all(one and len(one) <= 200 and not set(one) & set(".*> \t") for one in tokens)
    assert subject_token("acme-1_x") == "acme-1_x"
