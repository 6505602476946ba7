"""Outages of the server: hints may be lost, callers don't wait, nothing leaks."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from conformance.bus_suite import eventually, fresh_name, processes
from nats_server import NatsServer
from postgres_server import PostgresServer
from wakeful.bus import Bus, LogAdvanced, NatsBus, PostgresBus, Wake, link, nats_bus


class Outage:
    """A server that a test stops and starts, with a bus on it."""

    def __init__(self, bus: Bus, start: Callable[[], None], stop: Callable[[], None]) -> None:
        self.bus, self.start, self.stop = bus, start, stop


@asynccontextmanager
async def _nats() -> AsyncIterator[Outage]:
    server = NatsServer()
    try:
        yield Outage(NatsBus(server.url, name=fresh_name()), server.start, server.kill)
    finally:
        server.close()


@asynccontextmanager
async def _postgres() -> AsyncIterator[Outage]:
    server = PostgresServer()
    try:
        bus = PostgresBus(server.url(), name=fresh_name())
        yield Outage(bus, server.start, lambda: server.stop(signal.SIGQUIT))
    finally:
        server.close()


@pytest.mark.parametrize("outage", [_nats, _postgres])
async def test_link_reconnects_when_the_server_returns(
    outage: Callable[[], AsyncIterator[Outage]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "REPLY_SECONDS", 20)  # Replies may be slow on a busy machine.
    async with outage() as server:  # type: ignore[attr-defined]
        early = processes(server.bus, {}, {"serves": True})
        joining = asyncio.create_task(early.__aenter__())
        await eventually(lambda: "can't be used" in caplog.text)
        await asyncio.to_thread(server.start)
        one, other = await joining
        try:
            other.link.watch("default", "t1")
            await eventually(lambda: ("default", "t1") in one.interest)
            server.stop()
            await eventually(lambda: not one.link.is_healthy and not other.link.is_healthy)
            for number in range(10_000):
                one.link.wake(Wake("default", f"t{number}"))
                one.link.publish("default", "t1", [LogAdvanced("t1", number, number + 1)])
            telling = asyncio.create_task(one.link.notify_owner(other.id, "default", "t1"))
            await asyncio.sleep(0)
            assert not telling.result()  # Without waiting.
            one.interest.clear()
            await asyncio.to_thread(server.start)
            await eventually(lambda: one.link.is_healthy and other.link.is_healthy)
            # Watches are renewed automatically.
            await eventually(lambda: ("default", "t1") in one.interest)
            await eventually(lambda: other.wakes or one.link.wake(Wake("default", "t1")))
            other.runs.add(("default", "t1"))
            assert await one.link.notify_owner(other.id, "default", "t1")
            one.link.publish("default", "t1", [LogAdvanced("t1", 7, 8)])
            await eventually(lambda: LogAdvanced("t1", 7, 8) in other.updates)
        finally:
            await early.__aexit__(None, None, None)
    said = [record for record in caplog.records if record.name == "wakeful" and record.levelno >= logging.WARNING]
    assert len([record for record in said if "can't be used" in record.getMessage()]) <= 4


async def test_close_does_not_wait_for_an_absent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((link, "MIN_BACKOFF"), (link, "CONNECT_SECONDS"), (nats_bus, "CONNECT_SECONDS")):
        monkeypatch.setattr(module, name, 1000)
    server = NatsServer()
    try:
        for bus in (NatsBus(server.url), PostgresBus(f"postgres://nobody@127.0.0.1:{server.port}/nothing")):
            async with asyncio.timeout(60):
                one = bus.join("one", None)  # type: ignore[arg-type]
                one.wake(Wake("default", "t1"))
                assert not await one.notify_owner("other", "default", "t1")
                await one.close()
    finally:
        server.close()


async def test_nats_close_finishes_when_socket_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled `Client.close` leaves its socket and tasks behind, which fails whatever test runs next."""
    monkeypatch.setattr(link, "REPLY_SECONDS", 0.001)
    monkeypatch.setattr(nats_bus, "_CLOSE_SECONDS", 0.01)
    server = NatsServer()
    server.start()
    try:
        one: Any = NatsBus(server.url).join("one", None)  # type: ignore[arg-type]
        await eventually(lambda: one.is_healthy)
        writer = one._client._transport._io_writer
        monkeypatch.setattr(writer, "close", lambda: None)  # As if buffered data couldn't be sent.
        await one.close()
        assert writer.transport.is_closing()
    finally:
        server.close()


async def test_nats_without_jetstream_wakes_connected_members(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = NatsServer(jetstream=False)
    server.start()
    try:
        async with processes(NatsBus(server.url), {}, {"serves": True}, {"serves": True}) as (sender, *others):
            await eventually(lambda: caplog.text.count("has no JetStream") == 2)
            for number in range(10):
                sender.link.wake(Wake("default", f"t{number}"))
            await eventually(lambda: sum(len(one.wakes) for one in others) == 10)
    finally:
        server.close()
    assert "enable it on the server" in caplog.text
