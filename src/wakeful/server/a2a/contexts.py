"""Owners of contexts. The store decides between two callers who enter a new context at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from a2a.utils.errors import InvalidParamsError

from ...errors import Conflict
from ...runtime import TenantRuntime
from ...stores import Commit, Relay
from ...types.inbox import InputItem
from ...types.runs import Principal, RunRecord

__all__ = ["enter_context", "is_task_of"]

# The kind of relay that records a context's owner. It delivers nothing; the store admits one row of an id and
# revision.
KIND = "a2a-context"

# The owner of a context that wasn't started by a principal; no caller has this id.
_NO_PRINCIPAL = ""


def is_task_of(run: RunRecord | None, agent_id: str, principal: Principal | None) -> bool:
    """Whether a run is a task of an agent that the caller may see: no delegated run, and the principal's own."""
    if run is None or run.identity.parent_run_id is not None or run.identity.agent_id != agent_id:
        return False
    return principal is None or run.owner_id == principal.id


async def enter_context(runtime: TenantRuntime, context_id: str, principal: Principal | None) -> None:
    """Admit a caller to a context: its own, or a new one, which it then owns; else raise `InvalidParamsError`.

    The agents of one server share contexts.
    """
    runs = await runtime.runs.list(thread=context_id, limit=1)
    if any(not is_task_of(run, run.identity.agent_id, None) for run in runs):
        raise _no_access(context_id)
    if principal is None:
        return
    owner = await _find_owner(runtime, context_id, runs)
    if owner is None:
        owner = await _claim(runtime, context_id, principal)
    if owner != principal.id:
        raise _no_access(context_id)


def _no_access(context_id: str) -> InvalidParamsError:
    return InvalidParamsError(
        f"context {context_id!r:.80} can't be used here; leave the context out to begin a new one"
    )


async def _find_owner(runtime: TenantRuntime, context_id: str, runs: Sequence[RunRecord]) -> str | None:
    """The owner of a context by its record, or else by its runs, inbox or messages; None if it is new."""
    store = runtime.store
    if (claim := await store.relay(_claim_id(context_id))) is not None:
        return claim.payload.decode()
    stored = await store.load(context_id)
    if stored is None:
        return None
    if runs:
        return runs[0].owner_id or _NO_PRINCIPAL
    for item in [item for item in stored.inbox if isinstance(item, InputItem)]:
        return _NO_PRINCIPAL if item.principal is None else item.principal.id
    for message in await store.messages(context_id, limit=1):  # The runs were pruned.
        producer = message.producer
        return _NO_PRINCIPAL if producer is None else producer.principal_id or _NO_PRINCIPAL
    return None


async def _claim(runtime: TenantRuntime, context_id: str, principal: Principal) -> str | None:
    """Record the owner of a new context; returns the owner, who may be another caller that was faster."""
    claim = Relay(
        id=_claim_id(context_id),
        thread_id=context_id,
        kind=KIND,
        payload=principal.id.encode(),
        status="done",
        created_at=runtime.schedules.clock.now(),
    )
    with suppress(Conflict):
        await runtime.store.commit(Commit(context_id, relays=[claim]))
        return principal.id
    return await _find_owner(runtime, context_id, [])


def _claim_id(context_id: str) -> str:
    return f"{KIND}:{context_id}"
