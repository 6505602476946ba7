"""Dispatch: who executes which run, and when."""

from ._local import Dispatcher as Dispatcher
from ._local import NewRun as NewRun
from ._local import RunResult as RunResult
