"""The estimate of the server's clock."""

from __future__ import annotations

import pytest

from wakeful.stores.postgres.clock import ServerClock


def test_server_clock_ignores_late_replies_but_follows_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 100.0
    monkeypatch.setattr("wakeful.stores.postgres.clock.monotonic", lambda: seconds)
    clock = ServerClock()
    clock.set(5_000_000)
    assert clock.now() == 5_000_000
    seconds = 101.0
    assert clock.now() == 5_001_000
    clock.set(5_000_700)  # A reply that took 300 ms.
    assert clock.now() == 5_001_000
    clock.set(5_001_200)  # The first reply had taken longer.
    assert clock.now() == 5_001_200
    clock.set(4_000_000)  # The server's clock was set back.
    assert clock.now() == 4_000_000
