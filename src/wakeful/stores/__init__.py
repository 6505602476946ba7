"""Stores: the contract, and the implementations of it."""

from ._memory import MemoryStore as MemoryStore
from ._protocol import Commit as Commit
from ._protocol import Committed as Committed
from ._protocol import Fence as Fence
from ._protocol import InboxItem as InboxItem
from ._protocol import InputPolicy as InputPolicy
from ._protocol import StateWrite as StateWrite
from ._protocol import Store as Store
from ._protocol import ThreadRecord as ThreadRecord
from ._protocol import ThreadView as ThreadView
from ._protocol import number as number
