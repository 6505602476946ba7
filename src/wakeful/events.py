"""All event types, for `from wakeful.events import TextDelta`."""

from .types.events import *  # noqa: F403
from .types.events import __all__ as __all__
