"""Tools: functions with a schema, their call context, their results, and threads for synchronous ones."""

from .call import CallContext as CallContext
from .context import ToolContext as ToolContext
from .definition import ClientTool as ClientTool
from .definition import Tool as Tool
from .definition import valid_name as valid_name
from .deps import Dependencies as Dependencies
from .deps import declared_deps as declared_deps
from .deps import deps_problem as deps_problem
from .deps import require_deps as require_deps
from .functions import FunctionTool as FunctionTool
from .functions import tool as tool
from .mail import Mail as Mail
from .mail import check_text as check_text
from .mcp_approval import McpApproval as McpApproval
from .mcp_approval import asks_before_mcp as asks_before_mcp
from .results import MAX_RESULT_BYTES as MAX_RESULT_BYTES
from .results import Done as Done
from .results import NotDone as NotDone
from .results import ToolResult as ToolResult
from .results import UnknownOutcome as UnknownOutcome
from .results import error_reply as error_reply
from .results import reply_of as reply_of
from .schema import Parameters as Parameters
from .schema import Shape as Shape
from .schema import parameters_of as parameters_of
from .schema import schema_faults as schema_faults
from .schema import value_fault as value_fault
from .services import ChildRequest as ChildRequest
from .services import ChildResult as ChildResult
from .services import Memories as Memories
from .services import Services as Services
from .services import SpawnRequest as SpawnRequest
from .signals import Asked as Asked
from .signals import Parked as Parked
from .source import Offer as Offer
from .source import SourceScope as SourceScope
from .source import ToolSource as ToolSource
from .terms import Terms as Terms
from .terms import default_decision as default_decision
from .terms import escalate_ticket as escalate_ticket
from .terms import terms_of as terms_of
from .terms import terms_problems as terms_problems
from .threads import ToolThreads as ToolThreads

# The public names. The others are for the packages above.
__all__ = [
    "ClientTool",
    "Done",
    "FunctionTool",
    "Mail",
    "NotDone",
    "Offer",
    "SourceScope",
    "Tool",
    "ToolContext",
    "ToolResult",
    "ToolSource",
    "UnknownOutcome",
    "tool",
]
