"""The server's clock, as this process knows it."""

from __future__ import annotations

from time import monotonic

__all__ = ["ServerClock"]

# A report that is later than this behind the known time says that the server's clock was set back.
_MAX_LAG_MS = 5_000


class ServerClock:
    """Milliseconds by the server's clock. Leases and due times are compared by it alone."""

    def __init__(self) -> None:
        self._offset: float | None = None

    def now(self) -> int:
        """The time at the server."""
        return int(monotonic() * 1000 + (self._offset or 0))

    def set(self, server_ms: int) -> None:
        """Note the time that the server reported. A reply that was long on its way is not news."""
        offset = server_ms - monotonic() * 1000
        if self._offset is None or offset > self._offset or offset < self._offset - _MAX_LAG_MS:
            self._offset = offset
