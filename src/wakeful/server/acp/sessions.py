"""Sessions: threads that a client opened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from msgspec import Struct
from pydantic import ValidationError

from ...errors import UsageError
from ...stores import ThreadRecord

__all__ = ["METADATA", "Session", "directory", "faults", "info", "warn_of_servers"]

# The field of a thread's metadata that makes it a session.
METADATA = "acp"

_log = logging.getLogger("wakeful.server")


class Session(Struct):
    """A session that is open in this process."""

    id: str
    cwd: str
    agent: str
    turn: asyncio.Task[str] | None = None
    run_id: str = ""
    is_prompting: bool = False
    is_cancelled: bool = False
    sent: set[str] = set()


def faults(error: ValidationError) -> str:
    """The faults of a request's parameters."""
    found = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:5]]
    return "the parameters are invalid: " + "; ".join(found)


def directory(cwd: str) -> str:
    """A session's directory; raises `UsageError` unless it is absolute."""
    if not PurePath(cwd).is_absolute():
        raise UsageError(f"cwd is an absolute path, not {cwd!r:.200}")
    return cwd


def warn_of_servers(servers: Sequence[Any] | None) -> None:
    """Log that a client's MCP servers aren't used."""
    if servers:
        names = ", ".join([str(server.name) for server in servers])
        _log.warning("the client's MCP servers aren't used: %.200s; give them to the agent", names)


def info(record: ThreadRecord) -> dict[str, Any]:
    """A session as an entry of a list."""
    at = datetime.fromtimestamp(record.updated_at / 1000, UTC).isoformat()
    about = {"sessionId": record.id, "cwd": record.metadata[METADATA].get("cwd", "/"), "updatedAt": at}
    return {**about, **({"title": record.title} if record.title else {})}
