"""Listing tasks: newest first, page by page, each page at a bounded cost."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError

from ...types.runs import Principal, RunRecord, RunStatus
from .._serving import Serving
from ._contexts import belongs
from ._tasks import INTERRUPTED, TERMINAL, state_of

__all__ = ["list_runs", "size_of"]

# How many runs are looked at for one page; a page that would need more is shorter, and goes on behind its token.
LOOKS = 2000
CHUNK = 200

# A page's token is the id of the run that it begins behind; that one may be deleted by then.
_TOKEN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_STATUS: dict[int, RunStatus] = {
    pb.TASK_STATE_SUBMITTED: "created",
    **dict.fromkeys(TERMINAL, "done"),
    **dict.fromkeys(INTERRUPTED, "waiting"),
}


def size_of(serving: Serving, params: pb.ListTasksRequest) -> int:
    """How many tasks a page has at most."""
    most = serving.limits.page_size
    if params.page_size < 0:
        raise InvalidParamsError(f"pageSize is 1 to {most}, not {params.page_size}")
    return min(params.page_size or most, most)


async def list_runs(
    serving: Serving, agent_id: str, principal: Principal | None, params: pb.ListTasksRequest
) -> tuple[list[RunRecord], str, int]:
    """The runs of a page, the token of the next one, and how many there are, as far as is looked for one page."""
    size = size_of(serving, params)
    if params.page_token and not _TOKEN.fullmatch(params.page_token):
        raise InvalidParamsError(
            f"pageToken is the last page's nextPageToken, or nothing for the first; not {params.page_token!r:.80}"
        )
    page: list[RunRecord] = []
    token, looks = "", 0
    async for run, wanted in _looked(serving, agent_id, principal, params, params.page_token or None):
        looks += 1
        if wanted and len(page) == size:
            token = page[-1].id
            break
        if wanted:
            page.append(run)
        if looks == LOOKS:
            token = run.id
    total = len(page)
    if token or params.page_token:
        total = 0
        async for _, wanted in _looked(serving, agent_id, principal, params, None):
            total += wanted
    return page, token, total


async def _looked(
    serving: Serving, agent_id: str, principal: Principal | None, params: pb.ListTasksRequest, before: str | None
) -> AsyncGenerator[tuple[RunRecord, bool]]:
    """Runs, newest first, and whether each is one that was asked for."""
    thread, status = params.context_id or None, _STATUS.get(params.status)
    after = params.status_timestamp_after.ToMilliseconds() if params.HasField("status_timestamp_after") else 0
    for _ in range(LOOKS // CHUNK):
        runs = await serving.runtime.list_runs(thread=thread, status=status, before=before, limit=CHUNK)
        for run in runs:
            wanted = belongs(run, agent_id, principal) and (run.updated_at or run.created_at) >= after
            if wanted and params.status:
                wanted = await _state(serving, run) == params.status
            yield run, wanted
        if len(runs) < CHUNK:
            return
        before = runs[-1].id


async def _state(serving: Serving, run: RunRecord) -> pb.TaskState:
    tickets = (await serving.runtime.result(run.id)).tickets if run.status == "waiting" else ()
    return state_of(run, tickets)
