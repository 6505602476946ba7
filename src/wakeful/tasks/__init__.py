"""Tasks: functions and coroutines that work in the background, and what begins them at a time."""

from ._book import COROUTINE as COROUTINE
from ._book import EVERYWHERE as EVERYWHERE
from ._book import SCHEDULE as SCHEDULE
from ._book import TaskBook as TaskBook
from ._cron import Cron as Cron
from ._function import MAX_EVENT_BYTES as MAX_EVENT_BYTES
from ._function import MAX_EVENTS as MAX_EVENTS
from ._function import FunctionTask as FunctionTask
from ._function import TaskContext as TaskContext
from ._function import task as task
from ._schedule import Schedule as Schedule
