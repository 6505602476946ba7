"""Plugins: phase hooks, their contexts, and what plugins bring along."""

from ._catalog import PHASES as PHASES
from ._catalog import ActionQueue as ActionQueue
from ._catalog import Catalog as Catalog
from ._catalog import Handler as Handler
from ._catalog import action as action
from ._catalog import notice as notice
from ._contexts import AfterInference as AfterInference
from ._contexts import AfterTool as AfterTool
from ._contexts import BeforeInference as BeforeInference
from ._contexts import BeforeTool as BeforeTool
from ._contexts import Block as Block
from ._contexts import GateAnswer as GateAnswer
from ._contexts import GateTool as GateTool
from ._contexts import HookContext as HookContext
from ._contexts import RunEnd as RunEnd
from ._contexts import Step as Step
from ._contexts import Supply as Supply
from ._contexts import Suspend as Suspend
from ._plan import Book as Book
from ._plan import ContextBook as ContextBook
from ._plan import ContextMessage as ContextMessage
from ._plan import InferencePlan as InferencePlan
from ._plan import PlanEdits as PlanEdits
from ._plan import select_context as select_context
from ._plugin import Plugin as Plugin
