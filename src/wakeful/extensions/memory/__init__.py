"""Long-term memory: notes about a user, an agent or a thread, which outlive their runs."""

from ...types.records import MemoryNote as MemoryNote
from .plugin import Memory as Memory
