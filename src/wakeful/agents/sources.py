"""The tool sources of a runtime's agents, and the snapshots that a run pinned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from ..state import StateKey
from ..tools import Tool, ToolSource
from ..types.requests import ToolSpec

__all__ = ["SourceMark", "SourcePins", "SourceTable"]


class SourcePins(StateKey[dict[str, str], tuple[str, str]]):
    """The digests of the snapshots of a run's tool sources, by the source's name."""

    name: ClassVar[str] = "wakeful.sources"
    merge = "commutative"
    default: ClassVar[Any] = {}

    def apply(self, value: dict[str, str], update: tuple[str, str]) -> dict[str, str]:
        """Pin a snapshot. The first one counts until the run ends."""
        source, digest = update
        return value if source in value else {**value, source: digest}


class SourceMark(Tool):
    """Stands for the tools of a source where plugins are shown an agent's tools before any run."""

    on_demand = True

    def __init__(self, source: ToolSource) -> None:
        self.name = source.prefix
        self.untrusted = source.untrusted

    @property
    def spec(self) -> ToolSpec:  # pyright: ignore[reportIncompatibleVariableOverride]
        """A spec without parameters."""
        return ToolSpec(self.name, "", {"type": "object"})


class SourceTable:
    """The tool sources that agents name or bring, checked once each."""

    def __init__(self) -> None:
        self._known: dict[str, ToolSource] = {}
        self._shared: dict[str, ToolSource] = {}
        self.problems: list[str] = []

    def share(self, source: ToolSource, where: str) -> None:
        """Add a source of the runtime, which agents refer to by its name."""
        if self._add(source, where):
            self._shared[source.name] = source

    def of(self, entries: Iterable[Any], where: str) -> list[ToolSource]:
        """The sources among an agent's tools: objects, and patterns of the names of shared ones."""
        found: dict[str, ToolSource] = {}
        for entry in entries:
            if isinstance(entry, str):
                found |= {name: source for name, source in self._shared.items() if fnmatchcase(name, entry)}
            elif isinstance(entry, ToolSource) and self._add(entry, where):
                found[entry.name] = entry
        return list(found.values())

    def _add(self, source: ToolSource, where: str) -> bool:
        known = self._known.get(source.name)
        if known is None:
            self._known[source.name] = source
            self.problems += [f"{where}: {problem}" for problem in source.problems()]
        elif known is not source:
            self.problems.append(
                f"{where}: two tool sources are named {source.name!r}; give one of them another name, or both "
                "agents the same object"
            )
            return False
        return True

    @property
    def names(self) -> Sequence[str]:
        """The names of the sources of the runtime."""
        return list(self._shared)

    async def close(self) -> None:
        """Close all sources."""
        await asyncio.gather(*[source.close() for source in self._known.values()], return_exceptions=True)
