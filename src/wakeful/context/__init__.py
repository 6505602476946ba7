"""Context: token counts, previews of long results, truncation, and summaries of what is older."""

from ..types.messages import newest_turn as newest_turn
from ._fold import fold as fold
from ._fold import mended as mended
from ._policy import Compaction as Compaction
from ._policy import Context as Context
from ._policy import Room as Room
from ._policy import problems_of as problems_of
from ._policy import room_of as room_of
from ._read_result import ReadResult as ReadResult
from ._summary import Folded as Folded
from ._summary import Mark as Mark
from ._summary import Part as Part
from ._summary import part_to_summarise as part_to_summarise
from ._summary import summary_of as summary_of
from ._summary import summary_request as summary_request
from ._tally import Tally as Tally
from ._tokens import Gauge as Gauge
from ._tokens import Gauges as Gauges
from ._tokens import count_tokens as count_tokens
from ._view import READ_RESULT as READ_RESULT
from ._view import Fit as Fit
from ._view import preview as preview
from ._view import truncate as truncate
