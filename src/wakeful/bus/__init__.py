"""The bus: hints and live events between those who run and those who watch."""

from ._local import Channel as Channel
from ._local import LocalBus as LocalBus
from ._local import Subscription as Subscription
