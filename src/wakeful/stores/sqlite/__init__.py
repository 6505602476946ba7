"""A store in one SQLite file."""

from .database import Synchronous as Synchronous
from .store import SqliteStore as SqliteStore
