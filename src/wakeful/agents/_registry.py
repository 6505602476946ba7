"""From agents as they are written to agents as they run, with every problem found at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from fnmatch import fnmatchcase
from math import isnan
from typing import Any, cast

from ..clock import Clock
from ..context import Folded, ReadResult, problems_of
from ..errors import ConfigurationError, UnknownAgent, UnknownModel, WakefulError
from ..models import Model, ModelFacts, ModelRegistry, Patience, Pool, RateLimit, VendorFactory
from ..plugins import (
    PHASES,
    ActionQueue,
    Catalog,
    ContextBook,
    Plugin,
    config_problems,
    part_problems,
    plugin_problems,
)
from ..state import AnyKey
from ..tools import Shape, Tool, valid_name
from ..tools import tool as as_tool
from ..types.limits import ContentMatch, LoopDetection, StopOnTool
from ..types.tickets import ASKERS
from ._agent import Agent, BackendConfig, Delegate, Toolish
from ._backend import (
    LOCAL_PHASES,
    Backend,
    BackendHandles,
    BackendOutputs,
    handoff_refusal,
    remote_problems,
)
from ._handoff import HandoffTool
from ._input import input_shape
from ._resolved import Hook, ResolvedAgent

__all__ = ["Registry"]

_READ_RESULT = ReadResult()

_ID = re.compile(r"[A-Za-z0-9_-]{1,48}\Z")


def _bare(agent: Agent) -> ResolvedAgent:
    """An agent that no tool or plugin has to do with."""
    none: dict[str, tuple[Hook, ...]] = dict.fromkeys((*PHASES, "activate", "deactivate"), ())
    return ResolvedAgent(agent, (), none, {}, backend=agent.backend)


class Registry:
    """All that a runtime runs with, checked as a whole when it is made."""

    def __init__(
        self,
        agents: Iterable[Agent],
        *,
        tools: Sequence[Toolish] = (),
        plugins: Sequence[Plugin] = (),
        models: Mapping[str, Model | Pool | VendorFactory] | None = None,
        facts: Mapping[str, ModelFacts] | None = None,
        rate_limits: Mapping[str, RateLimit] | None = None,
        clock: Clock | None = None,
        keys: Sequence[AnyKey] = (),
        delegation: Callable[[Sequence[tuple[Agent, Delegate]]], list[Tool]],
        build_backend: Callable[[BackendConfig], Backend],
        check_backend: Callable[[Backend], list[str]],
        inside_tasks: Sequence[Tool] = (),
        messaging: Callable[[Agent], tuple[list[Tool], list[str]]] = lambda agent: ([], []),
        internal: Sequence[Agent] = (),
        problems: Sequence[str] = (),
    ) -> None:
        self._problems: list[str] = list(problems)
        # Plugins that were looked at, by identity, and whether what they bring can be gathered.
        self._sound: dict[int, bool] = {}
        self._internal = {agent.id: agent for agent in internal}
        self._delegation = delegation
        self._messaging = messaging
        self._build_backend = build_backend
        self._check_backend = check_backend
        self.inside_tasks = inside_tasks
        self._agents = self._unique(list(agents))
        self._backends = {a.id: self._backend_of(a) for a in self._agents.values() if a.backend is not None}
        self.models = ModelRegistry(models, facts=facts, rate_limits=rate_limits, clock=clock)
        self._problems += self.models.problems()
        plugins = self._plugins(plugins, "Runtime(plugins=...)")
        self._own = {a.id: self._plugins(a.plugins, f"agent {a.id!r}") for a in self._agents.values()}
        self.catalog = self._catalog(keys, plugins)
        self._keys = [getattr(key, "name", "") for key in keys]
        self._shared = self._named(tools, "Runtime(tools=...)")
        # The agents whose output is their answer as it is.
        self.texts = {agent.id for agent in self._agents.values() if agent.output is str}
        self._resolved: dict[str, ResolvedAgent] = {}
        for agent in self._agents.values():
            if (resolved := self._resolve(agent, plugins)) is not None:
                self._resolved[agent.id] = resolved
        if not self._agents:
            self._problems.append("a runtime needs at least one agent")
        if self._problems:
            raise ConfigurationError(self._problems)

    async def close(self) -> None:
        """Close what the models hold open, also those that agents were given as objects."""
        await self.models.close([a.model for a in self._agents.values() if not isinstance(a.model, str)])

    def resolve(self, agent_id: str) -> ResolvedAgent:
        """The agent of that id, ready to run."""
        try:
            found = self._resolved.get(agent_id)
        except TypeError:  # What can't be a key is no agent's id.
            raise self._unknown(agent_id) from None
        if found is None and agent_id in self._internal:
            found = self._resolved[agent_id] = _bare(self._internal[agent_id])
        if found is None:
            raise self._unknown(agent_id)
        return found

    def without(self, agent_id: str) -> Registry:
        """The same with nothing but a name in the place of an agent that is gone: enough to end its run."""
        other = copy(self)
        other._resolved = {**self._resolved, agent_id: _bare(Agent(agent_id))}
        return other

    def _unknown(self, agent_id: object) -> UnknownAgent:
        known = ", ".join(sorted(self._agents))
        return UnknownAgent(f"unknown agent {agent_id!r} (known: {known})")

    def _near(self, agent_id: str) -> str:
        from difflib import get_close_matches  # Only an error needs it, and it is slow to import.

        close = get_close_matches(agent_id, self._agents, n=1)
        return f"; did you mean {close[0]!r}?" if close else f" (known: {', '.join(sorted(self._agents))})"

    def knows(self, agent_id: str) -> bool:
        """Whether this process can run an agent: one of the application's, or of the runtime's own."""
        return agent_id in self._agents or agent_id in self._internal

    def is_internal(self, agent_id: str) -> bool:
        """Whether an agent is one of the runtime's own, which nobody is shown."""
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
            elif id(plugin) not in self._sound:
                parts = part_problems(plugin)
                self._sound[id(plugin)] = not parts
                found = [*parts, *plugin_problems(plugin)]
                self._problems += [f"{where}, plugin {plugin.label!r}: {problem}" for problem in found]
        return [plugin for plugin in plugins if isinstance(plugin, Plugin)]

    def _catalog(self, keys: Sequence[AnyKey], plugins: Sequence[Plugin]) -> Catalog:
        catalog = Catalog((ActionQueue, ContextBook, BackendHandles, BackendOutputs, Folded), self._agents)
        seen: set[int] = set()
        everywhere = [*plugins, *[plugin for own in self._own.values() for plugin in own]]
        everywhere = [plugin for plugin in everywhere if self._sound[id(plugin)]]
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

    def _named(self, tools: Sequence[Toolish], where: str) -> dict[str, Tool]:
        found: dict[str, Tool] = {}
        for entry in tools:
            if isinstance(entry, str):
                self._problems.append(f"{where}: {entry!r} is a name; give the tool itself here")
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
                self._problems.append(f"{where}: {entry!r:.80} is not a tool; {_tool_hint(entry)}")
                return None
            entry = as_tool(entry)
        problems = entry.problems()
        self._problems.extend(f"{where}: {problem}" for problem in problems)
        return None if problems else entry

    def _resolve(self, agent: Agent, shared: Sequence[Plugin]) -> ResolvedAgent | None:
        where, before = f"agent {agent.id!r}", len(self._problems)
        plugins = [*shared, *[p for p in self._own[agent.id] if all(p is not s for s in shared)]]
        configs = self._configs_of(agent, plugins, where)
        hooks = self._hooks_of(plugins, configs)
        if agent.backend is None:
            tools = self._tools_of(agent, plugins, where)
            self._check_model(agent, where)
            self._check_context(agent, where)
        else:
            tools: dict[str, Tool] = {}
            own = {plugin.label: plugin for plugin in self._own[agent.id]}
            self._problems += [f"{where}: {problem}" for problem in remote_problems(agent, own)]
            hooks = {phase: () if phase in LOCAL_PHASES else found for phase, found in hooks.items()}
        self._check_numbers(agent, where)
        self._try(lambda: input_shape(agent), f"{where}: input: ")
        if len(self._problems) > before:
            if agent.output is not None:
                self._try(lambda: Shape(agent.output), f"{where}: output: ")
            return None
        sound = [plugin for plugin in plugins if self._sound[id(plugin)]]
        keys = frozenset([*self._keys, *[getattr(key, "name", "") for plugin in sound for key in plugin.keys]])
        made = list(tools.values())
        backend = self._backends.get(agent.id)
        return self._try(lambda: ResolvedAgent(agent, made, hooks, configs, keys, backend), f"{where}: output: ")

    def _backend_of(self, agent: Agent) -> Backend | None:
        where, backend = f"agent {agent.id!r}", agent.backend
        if isinstance(backend, BackendConfig):
            config = backend
            backend = self._try(lambda: self._build_backend(config), f"{where}: backend {config.name!r}: ")
        elif isinstance(backend, type) or not hasattr(backend, "execute_root"):
            self._problems.append(f"{where}: {backend!r:.80} is no backend; give an ExecutionBackend object")
            return None
        if backend is not None:
            self._problems += [f"{where}: {problem}" for problem in self._check_backend(backend)]
        return backend

    def _check_model(self, agent: Agent, where: str) -> None:
        if agent.model == "":
            self._problems.append(f"{where}: it has neither a model nor a backend; give it one of them")
            return
        try:
            self.models.check(agent.model)
        except UnknownModel as error:
            self._problems.append(f"{where}: {error}")
        except ConfigurationError as error:
            self._problems += [f"{where}: {problem}" for problem in error.problems]

    def _tools_of(self, agent: Agent, plugins: Sequence[Plugin], where: str) -> dict[str, Tool]:
        found: dict[str, Tool] = {}
        for entry in agent.tools or ():
            for tool in self._shared_tools(entry, where) if isinstance(entry, str) else [entry]:
                if (made := self._as_tool(tool, where)) is not None:
                    self._add(found, made, where)
        for plugin in plugins:
            for tool in plugin.tools() if self._sound[id(plugin)] else ():
                if (made := self._as_tool(tool, f"{where}, plugin {plugin.label!r}")) is not None:
                    self._add(found, made, where)
        for tool in self._delegation(self._delegates_of(agent, where)) if agent.delegates else ():
            self._add(found, tool, where)
        mail, problems = self._messaging(agent)
        self._problems += [f"{where}: {problem}" for problem in problems]
        for tool in mail:
            found.setdefault(tool.name, tool)
        if agent.context is not None:
            found.setdefault(_READ_RESULT.name, _READ_RESULT)
        for target in agent.handoffs:
            if (other := self._agents.get(target)) is None:
                self._problems.append(
                    f"{where}: handoff {target!r} is not an agent of this runtime{self._near(target)}"
                )
            else:
                refusal = handoff_refusal(other.id, self._backends.get(other.id))
                self._add(found, HandoffTool(other.id, other.description, refusal), where)
        return found

    def _delegates_of(self, agent: Agent, where: str) -> list[tuple[Agent, Delegate]]:
        found: list[tuple[Agent, Delegate]] = []
        for entry in agent.delegates:
            how = Delegate(entry) if isinstance(entry, str) else entry
            if (other := self._agents.get(how.agent)) is None:
                self._problems.append(
                    f"{where}: delegate {how.agent!r} is not an agent of this runtime{self._near(how.agent)}"
                )
            else:
                with suppress(ConfigurationError):  # Which is said of the agent whose input it is.
                    input_shape(other)
                    found.append((other, how))
        return found

    def _shared_tools(self, pattern: str, where: str) -> list[Tool]:
        names = [name for name in self._shared if fnmatchcase(name, pattern)]
        if not names:
            known = ", ".join(sorted(self._shared)) or "none"
            self._problems.append(
                f"{where}: no tool named {pattern!r} was given to Runtime(tools=...) (there: {known})"
            )
        return [self._shared[name] for name in names]

    def _configs_of(self, agent: Agent, plugins: Sequence[Plugin], where: str) -> dict[str, Any]:
        labels = [plugin.label for plugin in plugins]
        for label in sorted({label for label in labels if labels.count(label) > 1}):
            self._problems.append(f"{where}: two plugins are named {label!r}; give one another `name`")
        for section in agent.config:
            if not any(p.label == section and p.config is not None for p in plugins):
                self._problems.append(f"{where}: config section {section!r} belongs to none of its plugins")
        for plugin in plugins:
            if plugin.label in ASKERS:
                self._problems.append(
                    f"{where}: a plugin can't be named {plugin.label!r}, as others who ask are; give it another "
                    "`name`"
                )
        return {plugin.label: self._config(agent, plugin, where) for plugin in plugins}

    def _hooks_of(self, plugins: Sequence[Plugin], configs: Mapping[str, Any]) -> dict[str, tuple[Hook, ...]]:
        return {
            phase: tuple(
                Hook(plugin.label, getattr(plugin, phase), configs[plugin.label])
                for plugin in plugins
                if getattr(type(plugin), phase) is not getattr(Plugin, phase)
            )
            for phase in (*PHASES, "activate", "deactivate")
        }

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

    def _check_context(self, agent: Agent, where: str) -> None:
        problems = problems_of(agent.context)
        self._problems += [f"{where}: {problem}" for problem in problems]
        compaction = None if problems or agent.context is None else agent.context.compaction
        if compaction is not None and compaction.model is not None:
            writer = compaction.model
            self._try(lambda: self.models.check(writer), f"{where}: compaction.model: ")

    def _check_numbers(self, agent: Agent, where: str) -> None:
        if not isinstance(cast(Any, agent.patience), Patience | None):
            self._problems.append(f"{where}: patience is a Patience, not {agent.patience!r:.80}")
        for name in agent.limits.__struct_fields__:
            lowest = 0 if name in ("repairs", "continuations", "handoffs") else 1
            value = getattr(agent.limits, name)
            if value is not None and value < lowest:
                self._problems.append(f"{where}: limits.{name} must be at least {lowest}")
        for policy in agent.stop:
            kind = str(policy.__struct_config__.tag)
            if isinstance(policy, ContentMatch):
                try:
                    re.compile(policy.pattern)
                except re.error as error:
                    self._problems.append(f"{where}: stop policy {kind}: bad pattern: {error}")
            # What the agent doesn't have a client may still bring, as long as a tool can have the name.
            if isinstance(policy, StopOnTool) and not valid_name(policy.tool):
                self._problems.append(
                    f"{where}: stop policy {kind}: no tool can be named {policy.tool!r:.80}: a name has 1 to 64 "
                    "letters, digits, '_' or '-'"
                )
            lowest = 2 if isinstance(policy, LoopDetection) else 0
            first = getattr(policy, policy.__struct_fields__[0])
            if isinstance(first, int | float) and not (first > 0 and first >= lowest):
                wrong = "is no number" if isnan(first) else "is too small"
                self._problems.append(f"{where}: stop policy {kind}: {first!r} {wrong}")


def _tool_hint(entry: Any) -> str:
    """What to give in place of something that is no tool."""
    if isinstance(entry, type) and issubclass(entry, Tool):
        return f"give an instance of it: {entry.__name__}(...)"
    if isinstance(entry, Agent):
        return f"an agent that others call is named in delegates: [{entry.id!r}]"
    return "give a function, a Tool or a name"
