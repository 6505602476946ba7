"""What the checks of chaos make of who wrote which answer."""

from __future__ import annotations

from .checks import Answered, authors


def said(process: str, owner: str | None, *earlier: str) -> Answered:
    return Answered(owner, frozenset(earlier), process)


def test_each_owner_is_one_process() -> None:
    assert authors([said("p1", "o1"), said("p2", "o2"), said("p2", "o2")]) == []


def test_an_answer_that_broke_off_may_be_written_by_the_next_owner() -> None:
    assert authors([said("p1", "o1"), said("p1", "o2", "o1"), said("p2", "o2")]) == []


def test_a_process_may_have_left_nothing_but_what_broke_off() -> None:
    assert authors([said("p1", "o2", "o1"), said("p2", "o2"), said("p2", "o2")]) == []


def test_an_owner_that_stands_for_two_processes_is_found() -> None:
    assert len(authors([said("p1", "o1"), said("p1", "o1"), said("p2", "o1")])) == 1


def test_an_owner_before_that_is_another_process_excuses_nobody() -> None:
    given = [said("p1", "o1"), said("p1", "o1"), said("p2", "o2"), said("p2", "o2"), said("p3", "o2", "o1")]
    assert len(authors(given)) == 1


def test_a_write_to_a_thread_that_nobody_owned_is_found() -> None:
    assert authors([said("p1", None)])
    assert authors([])
