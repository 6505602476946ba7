"""State: typed keys, frozen snapshots, and commands, which are the only way to write."""

from .keys import MAX_VALUE_BYTES as MAX_VALUE_BYTES
from .keys import RESERVED_PREFIXES as RESERVED_PREFIXES
from .keys import AnyKey as AnyKey
from .keys import KeyRegistry as KeyRegistry
from .keys import StateKey as StateKey
from .keys import json_problem as json_problem
from .snapshot import Command as Command
from .snapshot import ScheduledAction as ScheduledAction
from .snapshot import SentNotice as SentNotice
from .snapshot import Snapshot as Snapshot
from .snapshot import State as State
from .snapshot import conflicts as conflicts

# The public names. The others are for the packages above.

# The public names. The others are for the packages above.
__all__ = [
    "AnyKey",
    "Snapshot",
    "StateKey",
]
