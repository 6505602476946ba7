"""Reminders: text that a model is shown after calls of a pattern."""

from .plugin import Remind as Remind
from .plugin import Reminders as Reminders

# The public names.
__all__ = ["Remind", "Reminders"]
