"""Tools: functions with a schema, the context they run in, and what becomes of their results."""

from ._context import Asked as Asked
from ._context import ChildRequest as ChildRequest
from ._context import ChildResult as ChildResult
from ._context import Parked as Parked
from ._context import Services as Services
from ._context import ToolContext as ToolContext
from ._mail import Mail as Mail
from ._mail import check_text as check_text
from ._results import MAX_RESULT_BYTES as MAX_RESULT_BYTES
from ._results import ToolResult as ToolResult
from ._results import error_reply as error_reply
from ._results import reply_of as reply_of
from ._schema import Shape as Shape
from ._schema import value_fault as value_fault
from ._terms import Terms as Terms
from ._terms import default_decision as default_decision
from ._terms import escalated as escalated
from ._terms import terms_of as terms_of
from ._threads import ToolThreads as ToolThreads
from ._tool import ClientTool as ClientTool
from ._tool import Done as Done
from ._tool import FunctionTool as FunctionTool
from ._tool import NotDone as NotDone
from ._tool import Tool as Tool
from ._tool import UnknownOutcome as UnknownOutcome
from ._tool import tool as tool
