"""Permissions: rules over tool calls, remembered grants, run taint, and a preview of proposed rules."""

from .calls import CallMatcher as CallMatcher
from .evaluation import CallFacts as CallFacts
from .evaluation import CompiledPolicy as CompiledPolicy
from .evaluation import Verdict as Verdict
from .evaluation import compile_policy as compile_policy
from .evaluation import evaluate as evaluate
from .past_calls import Preview as Preview
from .past_calls import PreviewChange as PreviewChange
from .past_calls import preview_policy as preview_policy
from .patterns import PatternError as PatternError
from .patterns import parse_pattern as parse_pattern
from .plugin import GrantPolicy as GrantPolicy
from .plugin import Permissions as Permissions
from .policy import Policy as Policy
from .policy import Rule as Rule
from .policy import load_policy as load_policy
from .policy import policy_problems as policy_problems
from .state import RunGrants as RunGrants
from .state import Taint as Taint

# The public names. The others are for the packages above.
__all__ = [
    "GrantPolicy",
    "Permissions",
    "Policy",
    "Preview",
    "PreviewChange",
    "Rule",
    "RunGrants",
    "Taint",
    "load_policy",
    "preview_policy",
]
