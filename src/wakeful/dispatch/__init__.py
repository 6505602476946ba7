"""Dispatch: who executes which run, and when."""

from ._answering import answer as answer
from ._answering import cancel as cancel
from ._answering import resume as resume
from ._answering import retry as retry
from ._answering import send as send
from ._background import cancel_task as cancel_task
from ._background import find_task as find_task
from ._background import set_paused as set_paused
from ._background import spawn as spawn
from ._background import tasks_of as tasks_of
from ._beginning import child_of as child_of
from ._children import ChildRuns as ChildRuns
from ._keeper import Keeper as Keeper
from ._local import Dispatcher as Dispatcher
from ._parked import ParkedProblem as ParkedProblem
from ._parked import parked_problems as parked_problems
from ._results import NewRun as NewRun
from ._results import RunResult as RunResult
from ._schedules import put_schedule as put_schedule
from ._schedules import remove_schedule as remove_schedule
from ._schedules import schedules as schedules
from ._tickets import leave_decision as leave_decision
from ._tickets import reassign as reassign
