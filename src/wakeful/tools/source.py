"""Tool sources: tools that are only known once a run is activated, such as those of an MCP server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from ..types.base import Data
from ..types.runs import Principal
from .definition import Tool

__all__ = ["Offer", "SourceScope", "ToolSource"]


class SourceScope(Data):
    """A run's request for the tools of a source.

    `snapshot` is that of the run's earlier offer: the source makes the same tools of it, without contacting
    anything. It is None at the run's first activation, and as long as the source was unavailable.
    """

    principal: Principal | None
    snapshot: bytes | None = None


class Offer(Data):
    """The tools of a source for one run.

    `snapshot` describes them for later activations of the run; None asks the source again at the next step. It is
    stored once for all runs that have the same.
    """

    tools: Sequence[Tool]
    snapshot: bytes | None = None


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools, given among the `tools` of an agent or a runtime.

    It is asked when a run is activated, so a runtime starts while it is unavailable. An exception of `tools` is
    noted as an error of the run, which continues without the tools and asks again at its next step; if the source
    is `required`, it ends the run. The names of its tools begin with `prefix`. `untrusted` says that their results
    may be written by strangers.
    """

    name: str
    prefix: str
    required: bool
    untrusted: bool

    def problems(self) -> Sequence[str]:
        """List what is wrong with the source, when the runtime is made."""
        ...

    async def tools(self, scope: SourceScope) -> Offer:
        """The tools for a run."""
        ...

    async def close(self) -> None:
        """Close connections and processes. The source may be asked again afterwards."""
        ...
