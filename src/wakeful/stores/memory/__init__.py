"""The store in memory: the same rules as on a database, for tests and for programs that need no file."""

from .store import MemoryLease, MemoryStore

__all__ = ["MemoryLease", "MemoryStore"]
