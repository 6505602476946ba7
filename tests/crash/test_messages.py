"""A process that dies before the commit of a call has sent nothing; after it, exactly once."""

from __future__ import annotations

from wakeful.testing import crash_matrix

from .post import correspondence, each_was_read_once


def test_a_correspondence_killed_at_every_commit() -> None:
    report = crash_matrix(correspondence, check=each_was_read_once)
    assert report.rows
