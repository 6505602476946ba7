"""Dispatch: who executes which run, and when."""

from ._children import run_child as run_child
from ._local import Dispatcher as Dispatcher
from ._results import NewRun as NewRun
from ._results import RunResult as RunResult
