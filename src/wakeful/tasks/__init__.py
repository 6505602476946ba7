"""Tasks: background functions and coroutines, and schedules."""

from .cron import Cron as Cron
from .function import MAX_EVENT_BYTES as MAX_EVENT_BYTES
from .function import MAX_EVENTS as MAX_EVENTS
from .function import FunctionTask as FunctionTask
from .function import TaskContext as TaskContext
from .function import task as task
from .registry import COROUTINE as COROUTINE
from .registry import EVERYWHERE as EVERYWHERE
from .registry import SCHEDULE as SCHEDULE
from .registry import TaskRegistry as TaskRegistry
from .schedule import Schedule as Schedule

# The public names. The others are for the packages above.

# The public names. The others are for the packages above.
__all__ = [
    "Cron",
    "FunctionTask",
    "Schedule",
    "TaskContext",
    "task",
]
