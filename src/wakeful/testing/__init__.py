"""Tools for testing agents: scripted models, a fake clock, an event recorder, crash tests, backend checks.

The pytest plugin is active wherever wakeful is installed. Its fixtures are `scripted`, `fake_clock`, `no_leaks`
and `no_live_models`.
"""

from ..models import FunctionModel as FunctionModel
from ..models import ScriptedModel as ScriptedModel
from ..models import Turn as Turn
from ..models import call as call
from ..models import forbid_live_models as forbid_live_models
from .backends import BackendCheck as BackendCheck
from .backends import backend_checks as backend_checks
from .clock import FakeClock as FakeClock
from .crash import CrashFailed as CrashFailed
from .crash import CrashReport as CrashReport
from .crash import CrashRow as CrashRow
from .crash import CrashSite as CrashSite
from .crash import crash_matrix as crash_matrix
from .leaks import LeakError as LeakError
from .leaks import Leaks as Leaks
from .recorded import Recorded as Recorded
from .recorded import RecordedTool as RecordedTool
from .recorder import Recorder as Recorder
from .runs import write_test as write_test
