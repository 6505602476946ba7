"""The plugin that defers tools, and the tool that searches them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal, cast

import msgspec

from ...agents import HandoffTool
from ...context import READ_RESULT
from ...errors.arguments import checked
from ...plugins import AfterInference, BeforeInference, Plugin
from ...state import AnyKey, StateKey
from ...tools import Tool, ToolContext, ToolResult
from ...types.requests import FOUND_TOOLS, TOOL_SEARCH, ToolSpec
from .index import ToolIndex

__all__ = ["FoundTools", "ToolSearch"]

MAX_FOUND = 500
CHARACTERS_PER_TOKEN = 4
# The window of a model of unknown facts.
DEFAULT_WINDOW = 128_000

_DESCRIPTION = (
    "Search for more tools. Not all tools are shown: search before you say that something can't be done. Describe "
    "in `query` what you want to do, in a few words, or give the exact `names` of tools. What is found can be "
    "called from the next step on."
)


class FoundTools(StateKey[tuple[str, ...], Sequence[str]]):
    """The deferred tools that a run found, in the order in which it found them."""

    name: ClassVar[str] = "tool_search.found"
    merge = "commutative"
    default: ClassVar[tuple[str, ...]] = ()

    def apply(self, value: tuple[str, ...], update: Sequence[str]) -> tuple[str, ...]:
        """Add tools at the end."""
        return tuple(dict.fromkeys([*value, *update]))[:MAX_FOUND]


class _Catalog:
    """The tools of one agent: those that can be deferred, and their index, which is made on first use."""

    def __init__(self, specs: Sequence[ToolSpec], deferred: Mapping[str, ToolSpec]) -> None:
        self.specs = specs
        self.deferred = deferred
        self.tokens = sum(len(msgspec.json.encode(spec)) for spec in deferred.values()) // CHARACTERS_PER_TOKEN
        self._index: ToolIndex | None = None

    @property
    def index(self) -> ToolIndex:
        if self._index is None:
            self._index = ToolIndex(self.deferred.values())
        return self._index


class ToolSearch(Plugin):
    """Defers tools: the model is shown the eager ones and a tool that searches the others.

    - `when`: with `auto`, tools are deferred once their schemas take more than `share` of the model's window or
      there are more than `most` of them; with `always`, all tools but the eager ones.
    - `eager`: the names of tools that are always shown, `*` is any text. Handoffs and delegates are, too.
    - `results`: the most tools that a search by words finds.
    """

    name: ClassVar[str] = "tool_search"
    keys: ClassVar[Sequence[AnyKey]] = (FoundTools,)

    @checked
    def __init__(
        self,
        *,
        when: Literal["auto", "always"] = "auto",
        eager: Sequence[str] = (),
        share: float = 0.1,
        most: int = 30,
        results: int = 8,
    ) -> None:
        self._when, self._eager = when, eager
        self._share, self._most, self._results = share, most, results
        self._catalogs: dict[str, _Catalog] = {}
        # Tools that an agent's instructions refer to, by agent.
        self._fixed: dict[str, frozenset[str]] = {}

    def tools(self) -> Sequence[Tool]:
        """The tool that searches."""
        return [_SearchTool(self)]

    def problems(self, agents: Mapping[str, Mapping[str, Tool]], configs: Mapping[str, Any]) -> Sequence[str]:
        """List the problems of the options, and eager names that fit no tool."""
        found = _option_problems(self._when, self._eager, self._share, self._most, self._results)
        if found:
            return found
        names = {name for tools in agents.values() for name in tools}
        for pattern in self._eager:
            if not pattern.startswith("mcp__") and not any(fnmatchcase(name, pattern) for name in names):
                known = ", ".join(sorted(names)[:20])
                found.append(f"eager: no tool of its agents is named {pattern!r:.80}; the tools are {known}")
        for agent, tools in agents.items():
            self._fixed[agent] = frozenset([name for name, tool in tools.items() if _is_fixed(tool)])
            self._catalog_of(agent, tuple([tool.spec for tool in tools.values() if not tool.on_demand]))
        return found

    async def before_inference(self, ctx: BeforeInference) -> None:
        """Defer the tools that the run hasn't found."""
        if not ctx.specs:
            return  # A request without tools, such as a summary.
        catalog = self._catalog_of(ctx.run.agent_id, ctx.specs)
        if self._is_deferring(catalog, ctx):
            ctx.plan.defer_tools(*catalog.deferred, found=ctx.state[FoundTools])
        else:
            ctx.plan.exclude_tools(TOOL_SEARCH)

    async def after_inference(self, ctx: AfterInference) -> None:
        """Show a deferred tool that was called without a search from the next step on."""
        catalog = self._catalogs.get(ctx.run.agent_id)
        if catalog is None or ctx.answer is None or not ctx.answer.calls:
            return
        names = [call.name for call in ctx.answer.calls if call.name in catalog.deferred]
        if hidden := [name for name in names if name not in ctx.offered]:
            ctx.update(FoundTools, hidden)

    def find(self, ctx: ToolContext, query: str, names: Sequence[str]) -> ToolResult:
        """Search the deferred tools of the calling agent, and show what was found from the next step on."""
        catalog = self._catalogs.get(ctx.run.agent_id) or _Catalog((), {})
        named = [name for name in names if name in catalog.deferred]
        found = list(dict.fromkeys([*named, *catalog.index.search(query, self._results)]))
        if not found:
            count = len(catalog.deferred)
            return ToolResult(
                message=f"No tool fits. There are {count} more tools: try other words, one task at a time."
            )
        ctx.update(FoundTools, found)
        lines = [f"- {name}: {_first_line(catalog.deferred[name].description)}" for name in found]
        return ToolResult(
            message="You can call these tools from now on:\n" + "\n".join(lines), metadata={FOUND_TOOLS: found}
        )

    def _catalog_of(self, agent: str, specs: Sequence[ToolSpec]) -> _Catalog:
        known = self._catalogs.get(agent)
        if known is None or (known.specs is not specs and known.specs != specs):
            kept = self._fixed.get(agent, frozenset()) | {TOOL_SEARCH, READ_RESULT}
            deferred = {
                spec.name: spec for spec in specs if spec.name not in kept and not self._is_eager(spec.name)
            }
            known = self._catalogs[agent] = _Catalog(specs, deferred)
        return known

    def _is_eager(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._eager)

    def _is_deferring(self, catalog: _Catalog, ctx: BeforeInference) -> bool:
        if not catalog.deferred or self._when == "always" or len(catalog.specs) > self._most:
            return bool(catalog.deferred)
        return catalog.tokens > self._share * (ctx.plan.window or DEFAULT_WINDOW)


class _SearchTool(Tool):
    """The tool that searches the deferred tools of the agent that calls it."""

    name = TOOL_SEARCH
    description = _DESCRIPTION
    effect = "pure"

    def __init__(self, plugin: ToolSearch) -> None:
        self._plugin = plugin

    async def run(self, ctx: ToolContext, query: str = "", names: list[str] = []) -> ToolResult:  # noqa: B006
        """Search."""
        return self._plugin.find(ctx, query, names)

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments; a vendor's own call of a search has them one level deeper."""
        inner = arguments.get("arguments")
        return super().bind(cast(dict[str, Any], inner) if isinstance(inner, dict) else arguments)


def _is_fixed(tool: Tool) -> bool:
    return tool.is_delegation or isinstance(tool, HandoffTool)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:200]


def _option_problems(when: Any, eager: Any, share: Any, most: Any, results: Any) -> list[str]:
    found: list[str] = []
    if when not in ("auto", "always"):
        found.append(f"when is 'auto' or 'always', not {when!r:.80}")
    if (
        isinstance(eager, str)
        or not isinstance(eager, Sequence)
        or not all(isinstance(name, str) and name for name in cast(Sequence[Any], eager))
    ):
        found.append(f"eager is a list of tools' names, not {eager!r:.80}")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        found.append(f"share is a part of the window, above 0 and at most 1, not {share!r:.80}")
    counts = {"most": most, "results": results}
    found += [
        f"{name} is a count, 1 or more, not {v!r:.80}" for name, v in counts.items() if type(v) is not int or v < 1
    ]
    return found
