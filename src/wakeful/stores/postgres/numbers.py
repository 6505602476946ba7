"""Row numbers that this process gives to new threads and runs, reserved in blocks."""

from __future__ import annotations

from typing import Any

from ..sql.schema import NUMBER_BLOCK

__all__ = ["NumberBlock"]


class NumberBlock:
    """A contiguous block of numbers from a sequence; one `nextval` reserves `NUMBER_BLOCK` of them."""

    def __init__(self, sequence: str) -> None:
        self._sequence = sequence
        self._end: int = 0
        self.next: int = 0

    def has(self, count: int) -> bool:
        """Whether there are so many numbers from `next` on."""
        return self._end - self.next >= count

    async def reserve(self, connection: Any, count: int) -> None:
        """Have at least so many numbers from `next` on."""
        while not self.has(count):
            blocks = -(-count // NUMBER_BLOCK)
            sql = "SELECT nextval($1::text::regclass) FROM generate_series(1, $2)"
            for (start,) in await connection.fetch(sql, self._sequence, blocks):
                if start != self._end:  # Other processes have the numbers in between.
                    self.next = start
                self._end = start + NUMBER_BLOCK
