"""Stores: the contract, and the implementations of it."""

from ._memory import MemoryStore as MemoryStore
from ._open import open_store as open_store
from ._protocol import LEASE_MS as LEASE_MS
from ._protocol import MAX_ATTEMPTS as MAX_ATTEMPTS
from ._protocol import About as About
from ._protocol import ChildPolicy as ChildPolicy
from ._protocol import Chunk as Chunk
from ._protocol import Claimed as Claimed
from ._protocol import Claims as Claims
from ._protocol import Commit as Commit
from ._protocol import Committed as Committed
from ._protocol import Dispatch as Dispatch
from ._protocol import Due as Due
from ._protocol import Fence as Fence
from ._protocol import InboxItem as InboxItem
from ._protocol import InputPolicy as InputPolicy
from ._protocol import Lease as Lease
from ._protocol import Pruned as Pruned
from ._protocol import Retention as Retention
from ._protocol import StateWrite as StateWrite
from ._protocol import Store as Store
from ._protocol import ThreadRecord as ThreadRecord
from ._protocol import ThreadView as ThreadView
from ._protocol import number as number
from ._relays import Relay as Relay
from ._relays import RelayStatus as RelayStatus
