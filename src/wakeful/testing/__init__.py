"""What tests of agents need: scripted models, a clock that a test moves, a recorder of events, crashes, checks for
backends, fixtures.

The fixtures come with the pytest plugin, which is active wherever wakeful is installed: `scripted`,
`fake_clock`, `no_leaks` and `no_live_models`.
"""

from ..models import FunctionModel as FunctionModel
from ..models import ScriptedModel as ScriptedModel
from ..models import Turn as Turn
from ..models import call as call
from ..models import forbid_live_models as forbid_live_models
from ._backends import BackendCheck as BackendCheck
from ._backends import backend_checks as backend_checks
from ._clock import FakeClock as FakeClock
from ._crash import CrashFailed as CrashFailed
from ._crash import CrashReport as CrashReport
from ._crash import CrashRow as CrashRow
from ._crash import CrashSite as CrashSite
from ._crash import crash_matrix as crash_matrix
from ._leaks import LeakError as LeakError
from ._leaks import Leaks as Leaks
from ._recorder import Recorder as Recorder
