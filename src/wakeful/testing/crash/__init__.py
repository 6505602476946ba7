"""Crash tests: kill a scenario's process at every commit, resume it in another, and check the store."""

from .invariants import find_violations as find_violations
from .invariants import list_all_runs as list_all_runs
from .journal import JournalEntry as JournalEntry
from .journal import KillPoint as KillPoint
from .journal import ModelRequested as ModelRequested
from .journal import ProcessStarted as ProcessStarted
from .journal import read_journal as read_journal
from .matrix import CrashFailed as CrashFailed
from .matrix import CrashReport as CrashReport
from .matrix import CrashRow as CrashRow
from .matrix import crash_matrix as crash_matrix
from .matrix import verify_site as verify_site
from .processes import Child as Child
from .processes import Kill as Kill
from .processes import Launchers as Launchers
from .sites import CrashSite as CrashSite
from .sites import Sites as Sites
from .sites import open_sites as open_sites
