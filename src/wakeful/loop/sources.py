"""Tool sources at the activation of a run: their offers, and the snapshots that the run pins."""

from __future__ import annotations

from ..agents import SourcePins
from ..errors import Conflict
from ..stores import Records
from ..tools import Offer, SourceScope, ToolSource
from ..types.ids import digest_of
from ..types.records import Pinned
from .activation import Activation
from .disclosure import note_error

__all__ = ["load_sources"]


async def load_sources(act: Activation, *, only_pinned: bool = False) -> None:
    """Ask the agent's sources for their tools, except those whose lasting offer is there.

    A source that fails is noted once for an activation, and asked again before the next model call. Pinned offers
    are made of stored snapshots, without contacting anything.
    """
    offers, pins = act.offers, act.state.snapshot()[SourcePins]
    for source in act.agent.sources:
        if source.name in offers and offers[source.name].snapshot is not None:
            continue
        if only_pinned and source.name not in pins:
            continue
        try:
            offers[source.name] = await _ask(act, source, pins.get(source.name))
        except Exception as error:
            if source.required:
                raise
            if source.name not in act.unavailable:
                act.unavailable.add(source.name)
                note_error(act, error, f"tool source {source.name}")
    act.use_offers()


async def _ask(act: Activation, source: ToolSource, pinned: str | None) -> Offer:
    snapshot = await _read_pinned(act, pinned)
    offer = await source.tools(SourceScope(act.view.run.principal, snapshot))
    act.now = act.clock.now()
    if offer.snapshot is not None and pinned is None:
        digest = digest_of(offer.snapshot)
        await _pin(act, digest, offer.snapshot)
        act.state.apply([(SourcePins, (source.name, digest))])
    return offer


async def _read_pinned(act: Activation, digest: str | None) -> bytes | None:
    if digest is None:
        return None
    found = act.env.pinned.get(digest)
    if found is None and (row := await act.env.store.record(Pinned, digest)) is not None:
        found = act.env.pinned[digest] = row.data
    return found


async def _pin(act: Activation, digest: str, data: bytes) -> None:
    """Store a snapshot before the commit that refers to it. Its id is its digest, so a second row is the same."""
    env = act.env
    if (env.store.tenant_name, digest) in env.stored_pins:
        return
    if await env.store.record(Pinned, digest) is None:
        try:
            await env.store.put(Records(put=(Pinned(id=digest, data=data, created_at=act.now),)))
        except Conflict:
            pass  # Another process stored it meanwhile.
    env.stored_pins.add((env.store.tenant_name, digest))
    env.pinned[digest] = data
