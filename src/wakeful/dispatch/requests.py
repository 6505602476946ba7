"""Requests that were made before."""

from __future__ import annotations

from ..stores import Store, refuse_reuse
from ..types.inbox import InboxItem, Request

__all__ = ["first_item"]


async def first_item(store: Store, request: Request | None) -> InboxItem | None:
    """The item of the request that was made first with this id; None if there is none.

    Raises `RequestReused` if that one asked for something else.
    """
    found = None if request is None else await store.item(request.id)
    if request is None or found is None:
        return None
    if error := refuse_reuse(request.id, found.digest, request.digest):
        raise error
    return found
