"""Ids of responses: the run that answers, and for an answer after its tickets the time of the first decision."""

from __future__ import annotations

from ...errors import UnknownRun
from ..follow import Followed, start_of
from ..operations import Call
from ..operations.runs import run_of

__all__ = ["followed_of", "response_id"]

PREFIX = "resp_"


def response_id(run: Followed) -> str:
    """The id of the response that begins where a run is followed from."""
    return f"{PREFIX}{run.run_id}" + (f"_{run.since}" if run.since else "")


async def followed_of(call: Call, an_id: str, action: str | None = None) -> Followed:
    """The run of a response, from where the response begins; raises `UnknownRun` if the caller may not read it."""
    run_id, _, since = an_id.removeprefix(PREFIX).partition("_")
    if not an_id.startswith(PREFIX) or (since and not since.isdecimal()):
        raise UnknownRun(f"no response {an_id!r:.80} for this caller")
    record = await run_of(call, run_id, action)
    start = await start_of(call.runtime, record.id, record.thread_id)
    return Followed(start.run_id, start.thread_id, start.after, int(since or 0))
