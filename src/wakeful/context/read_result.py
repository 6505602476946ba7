"""The tool that reads the rest of a long result."""

from __future__ import annotations

from ..errors import ToolError
from ..tools import Tool, ToolContext
from .window import READ_RESULT

__all__ = ["ReadResult"]

# Characters shown before and after a match.
_AROUND = 120


class ReadResult(Tool):
    """Reads a result from the log. It is offered only if the conversation has a preview."""

    name = READ_RESULT
    effect = "pure"
    on_demand = True

    async def run(
        self, call_id: str, ctx: ToolContext, offset: int = 0, limit: int = 8000, search: str = ""
    ) -> str:
        """Read a tool result that was too long to be shown whole.

        Args:
            call_id: the id that the preview of the result names.
            offset: the first character to read.
            limit: how many characters to read, or to show of what was found.
            search: find this text, from the offset on, and show where it is; upper and lower case are the same.
        """
        found = await ctx.result_of(call_id)
        if found is None:
            raise ToolError(f"there is no result of a call {call_id!r}; use the call_id that a preview names")
        text, most = found
        limit = max(1, min(limit, most))
        if search:
            return _search(text, search, max(offset, 0), limit)
        if not 0 <= offset < max(len(text), 1):
            raise ToolError(f"the result has {len(text):,} characters; offset is 0 to {max(len(text) - 1, 0):,}")
        piece = text[offset : offset + limit]
        end = offset + len(piece)
        rest = "the end" if end == len(text) else f"go on with offset={end}"
        return f"[characters {offset:,} to {end:,} of {len(text):,}; {rest}]\n{piece}"


def _search(text: str, search: str, offset: int, limit: int) -> str:
    lower, wanted = text.lower(), search.lower()
    places: list[str] = []
    size, at = 0, lower.find(wanted, offset)
    while at >= 0 and size < limit:
        first = max(0, at - _AROUND)
        places.append(f"[at {at:,}] … {text[first : at + len(search) + _AROUND]} …")
        size += len(places[-1])
        at = lower.find(wanted, at + max(len(wanted), _AROUND))
    if not places:
        return f"[{search!r} isn't in the result from character {offset:,} on; it has {len(text):,}]"
    more = f"\n[there is more from offset={at} on]" if at >= 0 else ""
    return "\n".join(places) + more
