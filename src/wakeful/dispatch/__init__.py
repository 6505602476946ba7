"""Dispatch: who executes which run, and when."""

from ._answering import answer as answer
from ._answering import cancel as cancel
from ._answering import resume as resume
from ._answering import retry as retry
from ._answering import send as send
from ._children import ChildRuns as ChildRuns
from ._draining import drain as drain
from ._keeper import Keeper as Keeper
from ._local import Dispatcher as Dispatcher
from ._metrics import INSTRUMENTS as INSTRUMENTS
from ._metrics import Metrics as Metrics
from ._metrics import read_backlog as read_backlog
from ._parked import ParkedProblem as ParkedProblem
from ._parked import parked_problems as parked_problems
from ._results import NewRun as NewRun
from ._results import RunResult as RunResult
from ._results import item_of as item_of
from ._signals import Signals as Signals
from ._tickets import leave_decision as leave_decision
from ._tickets import reassign as reassign
