"""Plugins: phase hooks and their contexts, inference plans, actions and notices."""

from .catalog import PHASES as PHASES
from .catalog import ActionQueue as ActionQueue
from .catalog import Catalog as Catalog
from .catalog import Handler as Handler
from .catalog import action as action
from .catalog import notice as notice
from .contexts import AfterInference as AfterInference
from .contexts import AfterTool as AfterTool
from .contexts import BeforeInference as BeforeInference
from .contexts import BeforeTool as BeforeTool
from .contexts import Block as Block
from .contexts import GateAnswer as GateAnswer
from .contexts import GateTool as GateTool
from .contexts import HookContext as HookContext
from .contexts import RunEnd as RunEnd
from .contexts import Step as Step
from .contexts import Supply as Supply
from .contexts import Suspend as Suspend
from .guardrail import Guardrail as Guardrail
from .guardrail import HeldKey as HeldKey
from .guardrail import HeldMessage as HeldMessage
from .guardrail import JudgedInput as JudgedInput
from .guardrail import Rewrite as Rewrite
from .guardrail import Verdict as Verdict
from .plan import ContextMessage as ContextMessage
from .plan import InferencePlan as InferencePlan
from .plan import PendingContext as PendingContext
from .plan import PendingContextKey as PendingContextKey
from .plan import PlanEdits as PlanEdits
from .plan import Purpose as Purpose
from .plan import select_context as select_context
from .plugin import Plugin as Plugin
from .problems import config_problems as config_problems
from .problems import part_problems as part_problems
from .problems import plugin_problems as plugin_problems

# The public names. The others are for the packages above.
__all__ = [
    "AfterInference",
    "AfterTool",
    "BeforeInference",
    "BeforeTool",
    "Block",
    "ContextMessage",
    "GateAnswer",
    "GateTool",
    "Guardrail",
    "HookContext",
    "InferencePlan",
    "PlanEdits",
    "Plugin",
    "Purpose",
    "Rewrite",
    "RunEnd",
    "Step",
    "Supply",
    "Suspend",
    "action",
    "notice",
]
