"""The bus: hints and live events between those who run and those who watch."""

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
