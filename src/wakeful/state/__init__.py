"""State: typed keys, frozen snapshots, and commands as the only way to write."""

from ._keys import MAX_VALUE_BYTES as MAX_VALUE_BYTES
from ._keys import OWN_NAMES as OWN_NAMES
from ._keys import AnyKey as AnyKey
from ._keys import KeyRegistry as KeyRegistry
from ._keys import StateKey as StateKey
from ._keys import unkept as unkept
from ._snapshot import Command as Command
from ._snapshot import ScheduledAction as ScheduledAction
from ._snapshot import SentNotice as SentNotice
from ._snapshot import Snapshot as Snapshot
from ._snapshot import State as State
from ._snapshot import conflicts as conflicts
