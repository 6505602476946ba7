"""The usage of an answer of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...types.runs import Usage

__all__ = ["Counts"]

_INPUTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")

_OTHERS = ("compaction", "advisor_message")


class Counts:
    """The counts of one answer. They are cumulative; an event may omit unchanged ones."""

    __slots__ = ("_found", "_others")

    def __init__(self) -> None:
        self._found: dict[str, int] = {}
        # The usage of compactions and advisors, which isn't in the totals.
        self._others: list[Mapping[str, Any]] = []

    def add(self, usage: Mapping[str, Any] | None) -> Usage:
        """Update the counts, and return the total."""
        if usage:
            found = self._found
            for name in (*_INPUTS, "output_tokens"):
                if (value := usage.get(name)) is not None:
                    # Some servers repeat the input as zero.
                    found[name] = value if name == "output_tokens" else max(value, found.get(name, 0))
            if details := usage.get("output_tokens_details"):
                found["thinking_tokens"] = details.get("thinking_tokens") or 0
            if ran := usage.get("server_tool_use"):
                found["searches"] = ran.get("web_search_requests") or 0
            if iterations := usage.get("iterations"):
                self._others = [each for each in iterations if each.get("type") in _OTHERS]
        return self._total()

    def _total(self) -> Usage:
        def count(name: str) -> int:
            return self._found.get(name, 0) + sum(each.get(name) or 0 for each in self._others)

        fresh, read, written = map(count, _INPUTS)
        return Usage(
            input_tokens=fresh + read + written,
            output_tokens=count("output_tokens"),
            cached_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=count("thinking_tokens"),
            searches=self._found.get("searches", 0),
        )
