"""A message is sent exactly once, with the commit of its call."""

from __future__ import annotations

from wakeful.testing import crash_matrix

from .post import correspondence, each_was_read_once


def test_messaging_survives_kill_at_every_commit() -> None:
    report = crash_matrix(correspondence, check=each_was_read_once)
    assert report.rows
