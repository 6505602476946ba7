"""Writing the ids of requests that no commit brings."""

from __future__ import annotations

from ...types.inbox import Request
from .base import Script

__all__ = ["put_request"]


def put_request(tenant: str, thread: int, request: Request) -> Script[None]:
    """Note a request that the thread's open run took, or that made the thread."""
    yield (
        """INSERT INTO inbox (tenant, id, thread, kind, wake, position, status, digest, taken_by)
           SELECT ?, ?, t.no, 'request', '', 0, 'taken', ?, r.id
           FROM threads t LEFT JOIN runs r ON r.no = t.open_run WHERE t.no = ?""",
        (tenant, request.id, request.digest, thread),
    )
