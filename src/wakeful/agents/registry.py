"""The registry of a runtime: agents, tools, plugins and models, validated together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from fnmatch import fnmatchcase
from typing import Any

from ..clock import Clock
from ..context import ReadResult, SummaryKey
from ..errors import ConfigurationError, UnknownAgent, WakefulError
from ..models import Model, ModelFacts, ModelRegistry, Pool, RateLimit, VendorFactory
from ..plugins import (
    ActionQueue,
    Catalog,
    HeldKey,
    JudgedInput,
    PendingContextKey,
    Plugin,
    config_problems,
    part_problems,
    plugin_problems,
)
from ..state import AnyKey
from ..tools import (
    Dependencies,
    McpApproval,
    Shape,
    Tool,
    ToolSource,
    asks_before_mcp,
    declared_deps,
    deps_problem,
)
from ..tools import tool as as_tool
from .agent import Agent, BackendConfig, Delegate, ToolLike
from .backend import (
    LOCAL_PHASES,
    Backend,
    BackendAttempts,
    BackendBuilder,
    BackendHandles,
    BackendInput,
    BackendOutputs,
    backend_problems,
    handoff_refusal,
)
from .checks import (
    compaction_problems,
    deps_needs,
    model_problems,
    policy_problems,
    section_problems,
    tool_hint,
)
from .handoff import HandoffTool
from .input import input_shape
from .resolved import ResolvedAgent, hooks_of, resolve_bare
from .sources import SourceMark, SourcePins, SourceTable

__all__ = ["Registry"]

_READ_RESULT = ReadResult()
_MCP_APPROVAL = McpApproval()

_ID = re.compile(r"[A-Za-z0-9_-]{1,48}\Z")


class Registry:
    """The agents, tools, plugins and models of a runtime. The constructor reports all problems at once."""

    def __init__(
        self,
        agents: Iterable[Agent],
        *,
        tools: Sequence[ToolLike] = (),
        plugins: Sequence[Plugin] = (),
        models: Mapping[str, Model | Pool | VendorFactory] | None = None,
        facts: Mapping[str, ModelFacts] | None = None,
        rate_limits: Mapping[str, RateLimit] | None = None,
        clock: Clock | None = None,
        keys: Sequence[AnyKey] = (),
        delegation: Callable[[Sequence[tuple[Agent, Delegate]]], list[Tool]],
        backends: BackendBuilder,
        inside_tasks: Sequence[Tool] = (),
        messaging: Callable[[Agent], tuple[list[Tool], list[str]]] = lambda agent: ([], []),
        internal: Sequence[Agent] = (),
        problems: Sequence[str] = (),
        deps: Dependencies | None = None,
    ) -> None:
        self._problems: list[str] = list(problems)
        # Checked plugins by identity, and whether their keys and tools are usable.
        self._usable: dict[int, bool] = {}
        self._internal = {agent.id: agent for agent in internal}
        self._delegation = delegation
        self._messaging = messaging
        self._builder = backends
        self.inside_tasks = inside_tasks
        self._agents = self._unique(list(agents))
        built = {a.id: self._backend_of(a) for a in self._agents.values() if a.backend is not None}
        self._backends = {i: b for i, b in built.items() if b is None or not self._builder.is_local(b)}
        self.models = ModelRegistry(models, facts=facts, rate_limits=rate_limits, clock=clock)
        self._problems += self.models.problems()
        plugins = self._plugins(plugins, "Runtime(plugins=...)")
        self._own = {a.id: self._plugins(a.plugins, f"agent {a.id!r}") for a in self._agents.values()}
        self.catalog = self._catalog(keys, plugins)
        self._keys = [getattr(key, "name", "") for key in keys]
        self._sources = SourceTable()
        self._shared = self._named(tools, "Runtime(tools=...)")
        # The output types that agents declare.
        self.outputs = {agent.id: agent.output for agent in self._agents.values() if agent.output is not None}
        self._resolved: dict[str, ResolvedAgent] = {}
        # The agents of each plugin, by the plugin's identity: their tools and sections.
        self._users: dict[int, tuple[Plugin, dict[str, dict[str, Tool]], dict[str, Any]]] = {}
        for agent in self._agents.values():
            if (resolved := self._resolve(agent, plugins)) is not None:
                self._resolved[agent.id] = resolved
        self._problems += self._sources.problems
        for plugin, with_tools, configs in self._users.values():
            found = plugin.problems(with_tools, configs)
            self._problems += [f"plugin {plugin.label!r}: {problem}" for problem in found]
        if not self._agents:
            self._problems.append("a runtime needs at least one agent")
        if deps is not None:  # This process executes runs.
            self._problems += self.deps_problems(deps.value)
        if self._problems:
            raise ConfigurationError(self._problems)

    async def close(self) -> None:
        """Close all tool sources, and all models, including model objects of agents."""
        await self._sources.close()
        await self.models.close([a.model for a in self._agents.values() if not isinstance(a.model, str)])

    def resolve(self, agent_id: str) -> ResolvedAgent:
        """Resolve an agent; raises `UnknownAgent`."""
        try:
            found = self._resolved.get(agent_id)
        except TypeError:  # An unhashable id.
            raise self._unknown(agent_id) from None
        if found is None and agent_id in self._internal:
            found = self._resolved[agent_id] = resolve_bare(self._internal[agent_id])
        if found is None:
            raise self._unknown(agent_id)
        return found

    def plugins_of(self, agent_id: str) -> list[Plugin]:
        """The plugins of an agent: the runtime's, and its own."""
        return [plugin for plugin, with_tools, _ in self._users.values() if agent_id in with_tools]

    def deps_problems(self, value: Any) -> list[str]:
        """List the tools, hooks and other functions that need other dependencies than these."""
        needs = [need for agent in self._resolved.values() for need in deps_needs(agent)]
        actions = self.catalog.actions.values()
        needs += [(f"plugin {h.plugin!r}: action {h.name!r}", declared_deps(h.function)) for h in actions]
        found = [(where, deps_problem(needed, value)) for where, needed in needs]
        return [f"{where}: {problem}" for where, problem in found if problem is not None]

    def with_placeholder(self, agent_id: str) -> Registry:
        """Copy the registry with an empty agent for an id that is gone, so that its run can end."""
        other = copy(self)
        other._resolved = {**self._resolved, agent_id: resolve_bare(Agent(agent_id))}
        return other

    def _unknown(self, agent_id: object) -> UnknownAgent:
        known = ", ".join(sorted(self._agents))
        return UnknownAgent(f"unknown agent {agent_id!r} (known: {known})")

    def _suggest(self, agent_id: str) -> str:
        from difflib import get_close_matches  # Slow to import, and needed for errors only.

        close = get_close_matches(agent_id, self._agents, n=1)
        return f"; did you mean {close[0]!r}?" if close else f" (known: {', '.join(sorted(self._agents))})"

    def knows(self, agent_id: str) -> bool:
        """Whether this process can run the agent, the runtime's internal ones included."""
        return agent_id in self._agents or agent_id in self._internal

    def is_internal(self, agent_id: str) -> bool:
        """Whether the agent is internal to the runtime and hidden from users."""
        return agent_id in self._internal

    @property
    def agents(self) -> Mapping[str, Agent]:
        """The agents by id."""
        return self._agents

    def _unique(self, agents: list[Agent]) -> dict[str, Agent]:
        found: dict[str, Agent] = {}
        for agent in agents:
            if agent.id in found:
                self._problems.append(f"agent {agent.id!r} is defined twice; ids must be unique")
            if not _ID.match(agent.id):
                self._problems.append(f"agent {agent.id!r}: an id has 1 to 48 letters, digits, '_' or '-'")
            found.setdefault(agent.id, agent)
        return found

    def _plugins(self, plugins: Sequence[Any], where: str) -> list[Plugin]:
        for plugin in plugins:
            if not isinstance(plugin, Plugin):
                self._problems.append(f"{where}: {plugin!r} is not a plugin; give an instance of a Plugin class")
            elif id(plugin) not in self._usable:
                parts = part_problems(plugin)
                self._usable[id(plugin)] = not parts
                found = [*parts, *plugin_problems(plugin)]
                self._problems += [f"{where}, plugin {plugin.label!r}: {problem}" for problem in found]
        return [plugin for plugin in plugins if isinstance(plugin, Plugin)]

    def _catalog(self, keys: Sequence[AnyKey], plugins: Sequence[Plugin]) -> Catalog:
        catalog = Catalog(
            (
                ActionQueue,
                PendingContextKey,
                BackendHandles,
                BackendAttempts,
                BackendInput,
                BackendOutputs,
                SummaryKey,
                JudgedInput,
                HeldKey,
                SourcePins,
            ),
            self._agents,
        )
        seen: set[int] = set()
        everywhere = [*plugins, *[plugin for own in self._own.values() for plugin in own]]
        everywhere = [plugin for plugin in everywhere if self._usable[id(plugin)]]
        for key in [*keys, *[key for plugin in everywhere for key in plugin.keys]]:
            self._try(lambda key=key: catalog.keys.add(key))
        for plugin in everywhere:
            if id(plugin) not in seen:
                seen.add(id(plugin))
                self._try(lambda plugin=plugin: catalog.add_handlers(plugin, plugin.label))
        return catalog

    def _try(self, check: Callable[[], Any], prefix: str = "") -> Any:
        try:
            return check()
        except WakefulError as error:
            self._problems.append(f"{prefix}{error}")
            return None

    def _named(self, tools: Sequence[ToolLike], where: str) -> dict[str, Tool]:
        found: dict[str, Tool] = {}
        for entry in tools:
            if isinstance(entry, str):
                self._problems.append(f"{where}: {entry!r} is a name; give the tool itself here")
            elif isinstance(entry, ToolSource):
                self._sources.share(entry, where)
            elif (tool := self._as_tool(entry, where)) is not None:
                self._add(found, tool, where)
        return found

    def _add(self, tools: dict[str, Tool], tool: Tool, where: str) -> None:
        name = tool.spec.name
        if name in tools and tools[name] is not tool:
            self._problems.append(f"{where}: two tools are named {name!r}; names must be unique")
        tools.setdefault(name, tool)

    def _as_tool(self, entry: Any, where: str) -> Tool | None:
        if not isinstance(entry, Tool):
            if not callable(entry) or isinstance(entry, type):
                self._problems.append(f"{where}: {entry!r:.80} is not a tool; {tool_hint(entry)}")
                return None
            entry = as_tool(entry)
        problems = entry.problems()
        self._problems.extend(f"{where}: {problem}" for problem in problems)
        return None if problems else entry

    def _resolve(self, agent: Agent, shared: Sequence[Plugin]) -> ResolvedAgent | None:
        where, before = f"agent {agent.id!r}", len(self._problems)
        plugins = [*shared, *[p for p in self._own[agent.id] if all(p is not s for s in shared)]]
        configs = self._configs_of(agent, plugins, where)
        hooks = hooks_of(plugins, configs)
        sources: list[ToolSource] = []
        if agent.id not in self._backends:
            tools = self._tools_of(agent, plugins, where)
            sources = self._sources.of(agent.tools or (), where)
            found = [*model_problems(agent, self.models), *compaction_problems(agent, self.models)]
            self._problems += [f"{where}: {problem}" for problem in found]
        else:
            tools: dict[str, Tool] = {}
            own = {plugin.label: plugin for plugin in self._own[agent.id]}
            self._problems += [f"{where}: {problem}" for problem in backend_problems(agent, own)]
            hooks = {phase: () if phase in LOCAL_PHASES else found for phase, found in hooks.items()}
        marks = {source.prefix: SourceMark(source) for source in sources}
        for plugin in plugins:
            _, with_tools, sections = self._users.setdefault(id(plugin), (plugin, {}, {}))
            with_tools[agent.id], sections[agent.id] = {**tools, **marks}, configs[plugin.label]
        self._problems += [f"{where}: {problem}" for problem in policy_problems(agent)]
        self._try(lambda: input_shape(agent), f"{where}: input: ")
        if len(self._problems) > before:
            if agent.output is not None:
                self._try(lambda: Shape(agent.output), f"{where}: output: ")
            return None
        usable = [plugin for plugin in plugins if self._usable[id(plugin)]]
        keys = frozenset([*self._keys, *[getattr(key, "name", "") for plugin in usable for key in plugin.keys]])
        made = list(tools.values())
        backend = self._backends.get(agent.id)
        return self._try(
            lambda: ResolvedAgent(agent, made, hooks, configs, keys, backend, sources), f"{where}: output: "
        )

    def _backend_of(self, agent: Agent) -> Backend | None:
        where, backend = f"agent {agent.id!r}", agent.backend
        if isinstance(backend, BackendConfig):
            config = backend
            backend = self._try(lambda: self._builder.build(config), f"{where}: backend {config.name!r}: ")
        elif isinstance(backend, type) or not hasattr(backend, "execute_root"):
            self._problems.append(f"{where}: {backend!r:.80} is no backend; give an ExecutionBackend object")
            return None
        if backend is not None:
            self._problems += [f"{where}: {problem}" for problem in self._builder.problems(backend)]
        return backend

    def _tools_of(self, agent: Agent, plugins: Sequence[Plugin], where: str) -> dict[str, Tool]:
        found: dict[str, Tool] = {}
        for entry in agent.tools or ():
            if isinstance(entry, ToolSource):
                continue
            for tool in self._shared_tools(entry, where) if isinstance(entry, str) else [entry]:
                if (made := self._as_tool(tool, where)) is not None:
                    self._add(found, made, where)
        for plugin in plugins:
            for tool in plugin.tools() if self._usable[id(plugin)] else ():
                if (made := self._as_tool(tool, f"{where}, plugin {plugin.label!r}")) is not None:
                    self._add(found, made, where)
        for tool in self._delegation(self._delegates_of(agent, where)) if agent.delegates else ():
            self._add(found, tool, where)
        mail, problems = self._messaging(agent)
        self._problems += [f"{where}: {problem}" for problem in problems]
        for tool in mail:
            found.setdefault(tool.name, tool)
        if agent.window is not None:
            found.setdefault(_READ_RESULT.name, _READ_RESULT)
        if asks_before_mcp(agent.settings):
            found.setdefault(_MCP_APPROVAL.name, _MCP_APPROVAL)
        for tool in self._handoffs_of(agent, where):
            self._add(found, tool, where)
        return found

    def _handoffs_of(self, agent: Agent, where: str) -> list[Tool]:
        found: list[Tool] = []
        for target in agent.handoffs:
            if (other := self._agents.get(target)) is None:
                self._problems.append(
                    f"{where}: handoff {target!r} is not an agent of this runtime{self._suggest(target)}"
                )
            else:
                refusal = handoff_refusal(other.id, self._backends.get(other.id))
                found.append(HandoffTool(other.id, other.description, refusal))
        return found

    def _delegates_of(self, agent: Agent, where: str) -> list[tuple[Agent, Delegate]]:
        found: list[tuple[Agent, Delegate]] = []
        for entry in agent.delegates:
            how = Delegate(entry) if isinstance(entry, str) else entry
            if (other := self._agents.get(how.agent)) is None:
                self._problems.append(
                    f"{where}: delegate {how.agent!r} is not an agent of this runtime{self._suggest(how.agent)}"
                )
            else:
                if (backend := self._backends.get(other.id)) is not None:
                    found_in = self._builder.delegate_problems(backend, how)
                    self._problems += [f"{where}: delegate {other.id!r}: {problem}" for problem in found_in]
                with suppress(ConfigurationError):  # Reported for the agent that declares the input.
                    input_shape(other)
                    found.append((other, how))
        return found

    def _shared_tools(self, pattern: str, where: str) -> list[Tool]:
        names = [name for name in self._shared if fnmatchcase(name, pattern)]
        if not names and not any(fnmatchcase(source, pattern) for source in self._sources.names):
            known = ", ".join(sorted([*self._shared, *self._sources.names])) or "none"
            self._problems.append(
                f"{where}: no tool named {pattern!r} was given to Runtime(tools=...) (there: {known})"
            )
        return [self._shared[name] for name in names]

    def _configs_of(self, agent: Agent, plugins: Sequence[Plugin], where: str) -> dict[str, Any]:
        self._problems += [f"{where}: {problem}" for problem in section_problems(agent, plugins)]
        return {plugin.label: self._config(agent, plugin, where) for plugin in plugins}

    def _config(self, agent: Agent, plugin: Plugin, where: str) -> Any:
        if plugin.config is None:
            return None
        section = agent.config.get(plugin.label)
        if section is not None and isinstance(section, plugin.config):
            return section
        prefix = f"{where}: config of plugin {plugin.label!r}: "
        made = self._try(lambda: Shape(plugin.config).convert(section or {}), prefix)
        if made is not None:
            self._problems += [f"{prefix}{problem}" for problem in config_problems(plugin.config, section)]
        return made
