"""Context: token counts, previews of long results, truncation and compaction."""

from ..types.messages import newest_turn as newest_turn
from .fold import fold as fold
from .fold import is_summary as is_summary
from .fold import pair_results as pair_results
from .policy import Compaction as Compaction
from .policy import Room as Room
from .policy import WindowPolicy as WindowPolicy
from .policy import room_of as room_of
from .policy import window_problems as window_problems
from .read_result import ReadResult as ReadResult
from .summary import SUMMARY_PROMPT as SUMMARY_PROMPT
from .summary import Span as Span
from .summary import SummaryKey as SummaryKey
from .summary import SummaryState as SummaryState
from .summary import choose_span as choose_span
from .summary import make_summary as make_summary
from .summary import summary_request as summary_request
from .tally import Tally as Tally
from .tokens import Gauge as Gauge
from .tokens import Gauges as Gauges
from .tokens import count_tokens as count_tokens
from .window import READ_RESULT as READ_RESULT
from .window import Fit as Fit
from .window import is_left_out_note as is_left_out_note
from .window import left_out_note as left_out_note
from .window import preview as preview
from .window import truncate as truncate

# The public names. The others are for the packages above.
__all__ = [
    "Compaction",
    "WindowPolicy",
    "count_tokens",
]
