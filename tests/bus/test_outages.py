"""Servers that aren't there, go away and come back: hints may be lost, nobody waits for them, nothing is left."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from conformance.bus_suite import eventually, fresh_name, processes
from nats_server import NatsServer
from postgres_server import PostgresServer
from wakeful.bus import Bus, Moved, NatsBus, PostgresBus, Wake
from wakeful.bus import _link as link


class Outage:
    """A server that a test stops and starts, and a bus on it."""

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
async def test_a_server_that_comes_goes_and_comes_back(
    outage: Callable[[], AsyncIterator[Outage]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "ANSWER_SECONDS", 20)  # Whoever is told may take its time to say that it heard.
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
            await eventually(lambda: not one.link.healthy and not other.link.healthy)
            for number in range(10_000):
                one.link.wake(Wake("default", f"t{number}"))
                one.link.show("default", "t1", [Moved("t1", number, number + 1)])
            telling = asyncio.create_task(one.link.tell(other.id, "default", "t1"))
            await asyncio.sleep(0)
            assert not telling.result()  # It was known at once.
            one.interest.clear()
            await asyncio.to_thread(server.start)
            await eventually(lambda: one.link.healthy and other.link.healthy)
            # What was watched is watched again, without being asked.
            await eventually(lambda: ("default", "t1") in one.interest)
            await eventually(lambda: other.wakes or one.link.wake(Wake("default", "t1")))
            other.runs.add(("default", "t1"))
            assert await one.link.tell(other.id, "default", "t1")
            one.link.show("default", "t1", [Moved("t1", 7, 8)])
            await eventually(lambda: Moved("t1", 7, 8) in other.news)
        finally:
            await early.__aexit__(None, None, None)
    said = [record for record in caplog.records if record.name == "wakeful" and record.levelno >= logging.WARNING]
    assert len([record for record in said if "can't be used" in record.getMessage()]) <= 4


async def test_closing_while_there_is_no_server_does_not_wait_for_one() -> None:
    server = NatsServer()
    try:
        for bus in (NatsBus(server.url), PostgresBus(f"postgres://nobody@127.0.0.1:{server.port}/nothing")):
            async with asyncio.timeout(8):
                one = bus.join("one", None)  # type: ignore[arg-type]
                one.wake(Wake("default", "t1"))
                assert not await one.tell("other", "default", "t1")
                await one.close()
    finally:
        server.close()


async def test_a_server_without_jetstream_still_wakes_those_who_are_there(
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
