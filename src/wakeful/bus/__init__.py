"""The bus: hints and live events between those who run and those who watch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._local import Channel as Channel
from ._local import LocalBus as LocalBus
from ._local import Reader as Reader
from ._local import Subscription as Subscription
from ._open import open_bus as open_bus
from ._protocol import INTEREST_SECONDS as INTEREST_SECONDS
from ._protocol import Bus as Bus
from ._protocol import Grown as Grown
from ._protocol import Link as Link
from ._protocol import Listener as Listener
from ._protocol import Moved as Moved
from ._protocol import News as News
from ._protocol import Shown as Shown
from ._protocol import Wake as Wake

if TYPE_CHECKING:
    from ._memory import MemoryBus as MemoryBus
    from ._nats import NatsBus as NatsBus
    from ._postgres import PostgresBus as PostgresBus

_LATER = {"MemoryBus": "._memory", "NatsBus": "._nats", "PostgresBus": "._postgres"}


def __getattr__(name: str) -> Any:
    """Load a kind of bus when it is first used."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name], __name__), name)
