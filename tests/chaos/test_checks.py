"""The chaos check of the processes that wrote answers."""

from __future__ import annotations

from .checks import Answered, authors


def said(process: str, owner: str | None, *earlier: str) -> Answered:
    return Answered(owner, frozenset(earlier), process)


def test_check_accepts_one_process_for_each_owner() -> None:
    assert authors([said("p1", "o1"), said("p2", "o2"), said("p2", "o2")]) == []


def test_check_accepts_broken_answer_written_by_next_owner() -> None:
    assert authors([said("p1", "o1"), said("p1", "o2", "o1"), said("p2", "o2")]) == []


def test_check_accepts_process_with_only_broken_answer() -> None:
    assert authors([said("p1", "o2", "o1"), said("p2", "o2"), said("p2", "o2")]) == []


def test_check_finds_owner_of_two_processes() -> None:
    assert len(authors([said("p1", "o1"), said("p1", "o1"), said("p2", "o1")])) == 1


def test_check_finds_write_of_unrelated_earlier_owner() -> None:
    given = [said("p1", "o1"), said("p1", "o1"), said("p2", "o2"), said("p2", "o2"), said("p3", "o2", "o1")]
    assert len(authors(given)) == 1


def test_check_finds_write_to_unowned_thread() -> None:
    assert authors([said("p1", None)])
    assert authors([])
