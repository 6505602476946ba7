"""Changes to what waits in an inbox: an edit, another place, a retraction; each on the revision that was read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import Conflict
from ..types.codec import encode
from ._packing import Packer
from ._protocol import Commit, InboxItem

__all__ = ["PENDING_ROUTINES", "Standing", "change_rows", "check_pending", "moved"]

Standing = tuple[str, str, int]
"""Where an item is: its thread, its status, its revision."""


def moved(item_id: str, status: str | None, revision: int | None) -> Conflict:
    """Why an item can't be changed or taken as it was seen."""
    if status is None:
        return Conflict(f"item {item_id!r} isn't in this thread's inbox")
    if status != "pending":
        return Conflict(f"item {item_id!r} was {status} before")
    return Conflict(f"item {item_id!r} was changed meanwhile: it is at revision {revision}")


def check_pending(commit: Commit, find: Callable[[str], Standing | None]) -> None:
    """Refuse a commit that changes or takes items which aren't as its writer saw them."""
    wanted: dict[str, int] = {item.id: item.revision - 1 for item in commit.pending}
    for item_id, revision in {**commit.seen, **wanted}.items():
        found = find(item_id)
        if found is None or found[0] != commit.thread_id:
            raise moved(item_id, None, None)
        if found[1:] != ("pending", revision):
            raise moved(item_id, found[1], found[2])


def change_rows(
    run: Callable[..., Any], tenant: str, packer: Packer, blobs: dict[str, bytes], items: Mapping[str, InboxItem]
) -> None:
    """Write changed items to SQLite; large messages go to `blobs`."""
    for item in items.values():
        run(
            "UPDATE inbox SET status = ?, position = ?, revision = ?, payload = ? WHERE tenant = ? AND id = ?",
            (item.status, item.position, item.revision, packer.pack(encode(item), blobs), tenant, item.id),
        )


# A change that is in already is not refused: its writer's connection broke before it heard.
_MOVED_PENDING = """
CREATE FUNCTION moved_pending_v3(c jsonb, p bytea[], v_first int, v_no bigint) RETURNS jsonb
LANGUAGE plpgsql AS $wakeful$
DECLARE
    e record;
    i inbox%ROWTYPE;
BEGIN
    FOR e IN
        SELECT x.id, x.revision, NULL::text AS status, NULL::int AS i
        FROM jsonb_to_recordset(c->'seen') AS x(id text, revision bigint)
        UNION ALL
        SELECT x.id, x.revision - 1, x.status, x.i
        FROM jsonb_to_recordset(c->'pending') AS x(id text, revision bigint, status text, i int)
    LOOP
        SELECT * INTO i FROM inbox WHERE tenant = c->>'tenant' AND id = e.id AND thread = v_no;
        IF NOT FOUND THEN
            RETURN jsonb_build_array('pending_moved', e.id, NULL, NULL);
        END IF;
        CONTINUE WHEN i.revision = e.revision + 1 AND i.status = e.status AND i.payload = p[v_first + e.i];
        IF i.status <> 'pending' OR i.revision <> e.revision THEN
            RETURN jsonb_build_array('pending_moved', e.id, i.status, i.revision);
        END IF;
    END LOOP;
    RETURN NULL;
END
$wakeful$
"""

_PUT_PENDING = """
CREATE FUNCTION put_pending_v3(c jsonb, p bytea[], v_first int, v_no bigint) RETURNS void
LANGUAGE sql AS $wakeful$
    UPDATE inbox i SET status = e.status, position = e.position, revision = e.revision, payload = p[v_first + e.i]
    FROM jsonb_to_recordset(c->'pending') AS e(id text, revision bigint, status text, position bigint, i int)
    WHERE i.tenant = c->>'tenant' AND i.id = e.id;
    UPDATE threads SET inbox_head = inbox_head + 1 WHERE no = v_no;
$wakeful$
"""

PENDING_ROUTINES = (_MOVED_PENDING, _PUT_PENDING)
