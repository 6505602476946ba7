"""The runtime: construction, lifetime, the everyday verbs, and one namespace for each noun."""

from ..dispatch import ParkedProblem as ParkedProblem
from ..dispatch import RunResult as RunResult
from .handles import RunHandle as RunHandle
from .handles import TaskHandle as TaskHandle
from .runs import Ledger as Ledger
from .runs import RunTree as RunTree
from .runtime import Runtime as Runtime
from .tenant import TenantRuntime as TenantRuntime

__all__ = [
    "Ledger",
    "ParkedProblem",
    "RunHandle",
    "RunResult",
    "RunTree",
    "Runtime",
    "TaskHandle",
    "TenantRuntime",
]
