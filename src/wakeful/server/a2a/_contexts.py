"""Whose a context is. The store settles it, so that of two who come at once to a new one, to whichever processes,
one gets in."""

from __future__ import annotations

from contextlib import suppress

from a2a.utils.errors import InvalidParamsError

from ...errors import Conflict
from ...runtime import Runtime
from ...stores import Commit, Relay
from ...types.runs import Principal, RunRecord

__all__ = ["belongs", "enter"]

# The row that says whose a context is: nothing is ever delivered by it, but of one id and revision there is one.
KIND = "a2a-context"

# What nobody is called who calls.
_OTHERS = ""


def belongs(run: RunRecord | None, agent_id: str, principal: Principal | None) -> bool:
    """Whether a run is a task of this agent's that the caller may see: one that somebody asked for, not one that
    an agent delegated; and where callers are known, their own."""
    if run is None or run.identity.parent_run_id is not None or run.identity.agent_id != agent_id:
        return False
    return principal is None or (run.principal is not None and run.principal.id == principal.id)


async def enter(runtime: Runtime, context_id: str, principal: Principal | None) -> None:
    """Let a caller into a context that it names: one that is its own, or a new one, which is its own from now on.
    Other agents of the same server may be called in it."""
    runs = await runtime.list_runs(thread=context_id, limit=1)
    if any(not belongs(run, run.identity.agent_id, None) for run in runs):
        raise _not_yours(context_id)
    if principal is None:
        return
    owner = await _owner(runtime, context_id, runs)
    if owner is None:
        owner = await _claim(runtime, context_id, principal)
    if owner != principal.id:
        raise _not_yours(context_id)


def _not_yours(context_id: str) -> InvalidParamsError:
    return InvalidParamsError(
        f"context {context_id!r:.80} can't be used here; leave the context out to begin a new one"
    )


async def _owner(runtime: Runtime, context_id: str, runs: list[RunRecord]) -> str | None:
    """Whose a context is by what it says itself, else by what is in it; None if it is new."""
    store = runtime.store
    if (claim := await store.relay(_claim_id(context_id))) is not None:
        return claim.payload.decode()
    stored = await store.load(context_id)
    if stored is None:
        return None
    if found := [*runs, *stored.inbox]:
        return _OTHERS if found[0].principal is None else found[0].principal.id
    for message in await store.messages(context_id, limit=1):  # Its runs were pruned.
        producer = message.producer
        return _OTHERS if producer is None else producer.principal_id or _OTHERS
    return None


async def _claim(runtime: Runtime, context_id: str, principal: Principal) -> str | None:
    """Make a new context somebody's, unless another one was faster; whose it is then."""
    claim = Relay(
        id=_claim_id(context_id),
        thread_id=context_id,
        kind=KIND,
        payload=principal.id.encode(),
        status="done",
        created_at=runtime.clock.now(),
    )
    with suppress(Conflict):
        await runtime.store.commit(Commit(context_id, relays=[claim]))
        return principal.id
    return await _owner(runtime, context_id, [])


def _claim_id(context_id: str) -> str:
    return f"{KIND}:{context_id}"
