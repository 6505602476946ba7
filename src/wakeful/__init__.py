"""wakeful: agents that survive crashes, wait for people and work together.

A name is loaded when it is first used, so that a module of tools doesn't load the runtime.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # As checkers take it; typing itself takes longer to load than all of this.
if TYPE_CHECKING:
    from typing import Any

    from ._reading import Ledger as Ledger
    from ._working import TaskHandle as TaskHandle
    from .agents import Agent as Agent
    from .agents import Delegate as Delegate
    from .clock import Clock as Clock
    from .context import Compaction as Compaction
    from .context import Context as Context
    from .delegation import task_tools as task_tools
    from .dispatch import RunResult as RunResult
    from .errors import ConfigurationError as ConfigurationError
    from .errors import InvalidArguments as InvalidArguments
    from .errors import ModelError as ModelError
    from .errors import Overloaded as Overloaded
    from .errors import RunFailed as RunFailed
    from .errors import StoreError as StoreError
    from .errors import ToolDenied as ToolDenied
    from .errors import ToolError as ToolError
    from .errors import UsageError as UsageError
    from .errors import WakefulError as WakefulError
    from .messaging import PendingInput as PendingInput
    from .messaging import Retry as Retry
    from .messaging import Transport as Transport
    from .models import FunctionModel as FunctionModel
    from .models import Member as Member
    from .models import Model as Model
    from .models import ModelFacts as ModelFacts
    from .models import ModelRequest as ModelRequest
    from .models import Patience as Patience
    from .models import Pool as Pool
    from .models import RateLimit as RateLimit
    from .models import ScriptedModel as ScriptedModel
    from .models import Turn as Turn
    from .models import call as call
    from .plugins import AfterInference as AfterInference
    from .plugins import AfterTool as AfterTool
    from .plugins import BeforeInference as BeforeInference
    from .plugins import BeforeTool as BeforeTool
    from .plugins import ContextMessage as ContextMessage
    from .plugins import GateAnswer as GateAnswer
    from .plugins import GateTool as GateTool
    from .plugins import HookContext as HookContext
    from .plugins import Plugin as Plugin
    from .plugins import RunEnd as RunEnd
    from .plugins import Step as Step
    from .plugins import action as action
    from .plugins import notice as notice
    from .runtime import RunHandle as RunHandle
    from .runtime import Runtime as Runtime
    from .state import Snapshot as Snapshot
    from .state import StateKey as StateKey
    from .stores import Dispatch as Dispatch
    from .stores import MemoryStore as MemoryStore
    from .stores import Retention as Retention
    from .stores import Store as Store
    from .stores import ThreadRecord as ThreadRecord
    from .stores._packing import Codec as Codec
    from .stores._postgres import PostgresStore as PostgresStore
    from .stores._sqlite import SqliteStore as SqliteStore
    from .tasks import FunctionTask as FunctionTask
    from .tasks import Schedule as Schedule
    from .tasks import TaskContext as TaskContext
    from .tasks import task as task
    from .tools import ClientTool as ClientTool
    from .tools import Done as Done
    from .tools import NotDone as NotDone
    from .tools import Tool as Tool
    from .tools import ToolContext as ToolContext
    from .tools import ToolResult as ToolResult
    from .tools import UnknownOutcome as UnknownOutcome
    from .tools import tool as tool
    from .types.content import Artifact as Artifact
    from .types.content import Audio as Audio
    from .types.content import Base64 as Base64
    from .types.content import Document as Document
    from .types.content import Image as Image
    from .types.content import Text as Text
    from .types.content import Url as Url
    from .types.content import Video as Video
    from .types.limits import Capacity as Capacity
    from .types.limits import ConsecutiveErrors as ConsecutiveErrors
    from .types.limits import ContentMatch as ContentMatch
    from .types.limits import CostBudget as CostBudget
    from .types.limits import Limits as Limits
    from .types.limits import LoopDetection as LoopDetection
    from .types.limits import StopOnTool as StopOnTool
    from .types.limits import TokenBudget as TokenBudget
    from .types.limits import WallTime as WallTime
    from .types.mail import DeadLetter as DeadLetter
    from .types.mail import Messages as Messages
    from .types.mail import OutboundMessage as OutboundMessage
    from .types.mail import Receipt as Receipt
    from .types.mail import Recipient as Recipient
    from .types.messages import Message as Message
    from .types.requests import ModelSettings as ModelSettings
    from .types.runs import BehaviourRequested as BehaviourRequested
    from .types.runs import Blocked as Blocked
    from .types.runs import Cancelled as Cancelled
    from .types.runs import Failed as Failed
    from .types.runs import Identity as Identity
    from .types.runs import NaturalEnd as NaturalEnd
    from .types.runs import Principal as Principal
    from .types.runs import RunRecord as RunRecord
    from .types.runs import Stopped as Stopped
    from .types.runs import TaskRecord as TaskRecord
    from .types.runs import Usage as Usage
    from .types.tickets import Answer as Answer
    from .types.tickets import Decision as Decision
    from .types.tickets import Escalation as Escalation
    from .types.tickets import Ticket as Ticket

__version__ = "0.1.0"

_HOMES = {
    "._reading": "Ledger",
    "._working": "TaskHandle",
    ".agents": "Agent Delegate",
    ".clock": "Clock",
    ".context": "Compaction Context",
    ".delegation": "task_tools",
    ".dispatch": "RunResult",
    ".errors": "ConfigurationError InvalidArguments ModelError Overloaded RunFailed StoreError ToolDenied "
    "ToolError UsageError WakefulError",
    ".messaging": "PendingInput Retry Transport",
    ".models": "FunctionModel Member Model ModelFacts ModelRequest Patience Pool RateLimit ScriptedModel Turn "
    "call",
    ".plugins": "AfterInference AfterTool BeforeInference BeforeTool ContextMessage GateAnswer GateTool "
    "HookContext Plugin RunEnd Step action notice",
    ".runtime": "RunHandle Runtime",
    ".state": "Snapshot StateKey",
    ".stores": "Dispatch MemoryStore Retention Store ThreadRecord",
    ".stores._postgres": "PostgresStore",
    ".stores._packing": "Codec",
    ".stores._sqlite": "SqliteStore",
    ".tasks": "FunctionTask Schedule TaskContext task",
    ".tools": "ClientTool Done NotDone Tool ToolContext ToolResult UnknownOutcome tool",
    ".types.content": "Artifact Audio Base64 Document Image Text Url Video",
    ".types.limits": "Capacity ConsecutiveErrors ContentMatch CostBudget Limits LoopDetection StopOnTool "
    "TokenBudget WallTime",
    ".types.mail": "DeadLetter Messages OutboundMessage Receipt Recipient",
    ".types.messages": "Message",
    ".types.requests": "ModelSettings",
    ".types.runs": "BehaviourRequested Blocked Cancelled Failed Identity NaturalEnd Principal RunRecord Stopped "
    "TaskRecord Usage",
    ".types.tickets": "Answer Decision Escalation Ticket",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
_MODULES = ("backends", "errors", "events", "models", "plugins", "stores", "tasks", "testing", "tools", "types")


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if name == "__all__":
        return sorted(_HOME)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if home is None:
        raise AttributeError(f"module 'wakeful' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home, __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
