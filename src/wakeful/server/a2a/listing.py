"""Listing of tasks, newest first, in pages of bounded cost."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError

from ...types.runs import Principal, RunRecord, RunStatus
from ..serving import Serving
from .contexts import is_task_of
from .tasks import INTERRUPTED, TERMINAL, state_of

__all__ = ["list_runs", "page_size_of"]

# The number of runs read for one page; a page that would need more is shorter and has a token.
MAX_READS = 2000
CHUNK = 200

# A page token is the id of the run before the page's first one; that run may be deleted by then.
_TOKEN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_STATUS: dict[int, RunStatus] = {
    pb.TASK_STATE_SUBMITTED: "created",
    **dict.fromkeys(TERMINAL, "done"),
    **dict.fromkeys(INTERRUPTED, "waiting"),
}


def page_size_of(serving: Serving, params: pb.ListTasksRequest) -> int:
    """The page size of a request, within the server's limit."""
    limit = serving.limits.page_size
    if params.page_size < 0:
        raise InvalidParamsError(f"pageSize is 1 to {limit}, not {params.page_size}")
    return min(params.page_size or limit, limit)


async def list_runs(
    serving: Serving, agent_id: str, principal: Principal | None, params: pb.ListTasksRequest
) -> tuple[list[RunRecord], str, int]:
    """List the runs of a page, with the token of the next page and the total within the reads of one page."""
    size = page_size_of(serving, params)
    if params.page_token and not _TOKEN.fullmatch(params.page_token):
        raise InvalidParamsError(
            f"pageToken is the last page's nextPageToken, or nothing for the first; not {params.page_token!r:.80}"
        )
    page: list[RunRecord] = []
    token, reads = "", 0
    async for run, matches in _scan(serving, agent_id, principal, params, params.page_token or None):
        reads += 1
        if matches and len(page) == size:
            token = page[-1].id
            break
        if matches:
            page.append(run)
        if reads == MAX_READS:
            token = run.id
    total = len(page)
    if token or params.page_token:
        total = 0
        async for _, matches in _scan(serving, agent_id, principal, params, None):
            total += matches
    return page, token, total


async def _scan(
    serving: Serving, agent_id: str, principal: Principal | None, params: pb.ListTasksRequest, before: str | None
) -> AsyncGenerator[tuple[RunRecord, bool]]:
    """Read runs, newest first, with whether each matches the request."""
    thread, status = params.context_id or None, _STATUS.get(params.status)
    after = params.status_timestamp_after.ToMilliseconds() if params.HasField("status_timestamp_after") else 0
    for _ in range(MAX_READS // CHUNK):
        runs = await serving.runtime.runs.list(thread=thread, status=status, before=before, limit=CHUNK)
        for run in runs:
            matches = is_task_of(run, agent_id, principal) and (run.updated_at or run.created_at) >= after
            if matches and params.status:
                matches = await _fetch_state(serving, run) == params.status
            yield run, matches
        if len(runs) < CHUNK:
            return
        before = runs[-1].id


async def _fetch_state(serving: Serving, run: RunRecord) -> pb.TaskState:
    tickets = (await serving.runtime.runs.result(run.id)).tickets if run.status == "waiting" else ()
    return state_of(run, tickets)
