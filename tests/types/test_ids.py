"""Ids: UUIDv7, ordered and unique."""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator

import pytest

from wakeful.types import ids
from wakeful.types.ids import new_id, now_ms


@pytest.fixture
def hurried_threads() -> Iterator[None]:
    """Make the interpreter switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class StillClock:
    """A clock that a test sets; it starts at the current time."""

    def __init__(self) -> None:
        self.ns = time.time_ns() + 60_000_000_000

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> StillClock:
    clock = StillClock()
    monkeypatch.setattr(ids, "time_ns", clock)
    monkeypatch.setattr(ids, "_ms", 0)
    monkeypatch.setattr(ids, "_ms_end", 0)
    return clock


def test_id_is_a_uuid7_with_the_current_time() -> None:
    before, made, after = now_ms(), uuid.UUID(new_id()), now_ms()
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before - 1000 <= made.int >> 80 <= after + 1000


def test_ids_are_lowercase_uuids() -> None:
    made = new_id()
    assert str(uuid.UUID(made)) == made
    assert len(made) == 36


def test_ids_are_monotonic() -> None:
    made = [new_id() for _ in range(20_000)]
    assert made == sorted(set(made))


def test_ids_of_one_millisecond_are_ordered(still_clock: StillClock) -> None:
    made = [new_id() for _ in range(5000)]
    assert made == sorted(set(made))


def test_ids_are_ordered_when_the_clock_goes_back(still_clock: StillClock) -> None:
    first = new_id()
    still_clock.ns -= 3_600_000_000_000
    assert first < new_id() < new_id()


def test_ids_stay_well_formed_when_a_millisecond_overflows(still_clock: StillClock) -> None:
    made = [new_id() for _ in range(50_000)]
    assert made == sorted(set(made))
    assert all(len(one) == 36 for one in made)
    assert all(str(found) == one and found.version == 7 for one in made[::50] if (found := uuid.UUID(one)))


def test_ids_are_unique_across_threads(hurried_threads: None) -> None:
    made: list[list[str]] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        made.append([new_id() for _ in range(10_000)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for own in made for one in own}) == 40_000
    assert all(own == sorted(own) for own in made)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Other tests' threads run during the fork.
def test_ids_differ_in_a_forked_process(still_clock: StillClock) -> None:
    new_id()
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writer, "".join(new_id() for _ in range(100)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    own = {new_id() for _ in range(100)}
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    theirs = {text[at : at + 36] for at in range(0, len(text), 36)}
    assert len(theirs) == 100
    assert not theirs & own
