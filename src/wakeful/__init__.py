"""wakeful: agents that survive crashes, wait for people and work together.

The names here are those of the first week; the rest is in the packages: `wakeful.types`, `wakeful.models`,
`wakeful.plugins` and so on. A name is imported on first use, so a module of tools doesn't import the runtime.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # Type checkers know the name; importing typing takes longer than all of this module.
if TYPE_CHECKING:
    from typing import Any

    from .agents import Agent as Agent
    from .agents import Delegate as Delegate
    from .agents import RunContext as RunContext
    from .context import Compaction as Compaction
    from .context import WindowPolicy as WindowPolicy
    from .errors import ConfigurationError as ConfigurationError
    from .errors import ModelError as ModelError
    from .errors import RunFailed as RunFailed
    from .errors import ToolError as ToolError
    from .errors import UsageError as UsageError
    from .errors import WakefulError as WakefulError
    from .models import FunctionModel as FunctionModel
    from .models import Model as Model
    from .models import ModelRequest as ModelRequest
    from .models import Pool as Pool
    from .models import RateLimit as RateLimit
    from .models import RetryPolicy as RetryPolicy
    from .models import ScriptedModel as ScriptedModel
    from .models import Turn as Turn
    from .models import call as call
    from .plugins import Plugin as Plugin
    from .runtime import RunHandle as RunHandle
    from .runtime import RunResult as RunResult
    from .runtime import Runtime as Runtime
    from .runtime import TaskHandle as TaskHandle
    from .state import StateKey as StateKey
    from .stores import MemoryStore as MemoryStore
    from .stores import PostgresStore as PostgresStore
    from .stores import Retention as Retention
    from .stores import SqliteStore as SqliteStore
    from .tasks import TaskContext as TaskContext
    from .tasks import task as task
    from .tools import ClientTool as ClientTool
    from .tools import Tool as Tool
    from .tools import ToolContext as ToolContext
    from .tools import ToolResult as ToolResult
    from .tools import tool as tool
    from .types import Approval as Approval
    from .types import Capacity as Capacity
    from .types import CostBudget as CostBudget
    from .types import Decision as Decision
    from .types import Document as Document
    from .types import Image as Image
    from .types import Limits as Limits
    from .types import MailPolicy as MailPolicy
    from .types import Message as Message
    from .types import ModelSettings as ModelSettings
    from .types import Principal as Principal
    from .types import StopOnTool as StopOnTool
    from .types import Text as Text
    from .types import Ticket as Ticket
    from .types import TokenBudget as TokenBudget
    from .types import Usage as Usage
    from .types import WallTime as WallTime

__version__ = "0.1.0"

_PACKAGES = {
    ".agents": "Agent Delegate RunContext",
    ".context": "Compaction WindowPolicy",
    ".errors": "ConfigurationError ModelError RunFailed ToolError UsageError WakefulError",
    ".models": "FunctionModel Model ModelRequest Pool RateLimit RetryPolicy ScriptedModel Turn call",
    ".plugins": "Plugin",
    ".runtime": "RunHandle RunResult Runtime TaskHandle",
    ".state": "StateKey",
    ".stores": "MemoryStore PostgresStore Retention SqliteStore",
    ".tasks": "TaskContext task",
    ".tools": "ClientTool Tool ToolContext ToolResult tool",
    ".types": "Approval Capacity CostBudget Decision Document Image Limits MailPolicy Message ModelSettings "
    "Principal StopOnTool Text Ticket TokenBudget Usage WallTime",
}
_PACKAGE_OF = {name: package for package, names in _PACKAGES.items() for name in names.split()}
_MODULES = (
    "agents",
    "backends",
    "context",
    "errors",
    "events",
    "messaging",
    "models",
    "plugins",
    "runtime",
    "state",
    "stores",
    "tasks",
    "testing",
    "tools",
    "types",
    "ui",
)


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_PACKAGE_OF)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    package = _PACKAGE_OF.get(name)
    if package is None:
        raise AttributeError(f"module 'wakeful' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(package, __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGE_OF})
