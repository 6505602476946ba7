"""Threads: their records, conversations and state; fork, move, delete and prune them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, get_args

from ..dispatch import delete_thread, first_item
from ..errors import InvalidInput, UnknownThread, UsageError
from ..errors.arguments import checked_methods
from ..stores import About, ChildPolicy, Commit, Pruned, Retention, Store, ThreadRecord
from ..types.codec import encode
from ..types.content import clean_text
from ..types.copies import copy_mutable
from ..types.ids import new_id
from ..types.inbox import Request
from ..types.messages import Message
from .arguments import (
    check_choice,
    check_count,
    check_id,
    check_ids,
    check_instance,
    check_request_id,
    check_retention,
    check_thread_id,
    parse_cursor,
)
from .events import read_state
from .filters import check_agents
from .scope import Scope
from .thread_export import export_lines
from .thread_import import Lines, import_lines

__all__ = ["Threads"]

MIN_KEY = 16
_PAGE = 16  # Messages, and so calls of one answer, that are read at once.


@checked_methods("runtime.threads")
class Threads:
    """`runtime.threads`: the threads of one tenant."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def get(self, thread: str) -> ThreadRecord:
        """A thread's record, with its title and metadata; raises `UnknownThread`."""
        found = await self._scope.store.thread(check_id(thread, "thread"))
        if found is None:
            raise UnknownThread(f"no thread {thread!r} in this store")
        return copy_mutable(found)

    async def list(
        self,
        *,
        principal: str | None = None,
        agent: str | Collection[str] | None = None,
        base: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Sequence[ThreadRecord]:
        """Threads, newest first, without those of delegated runs.

        `principal` is the id of the principal whose input made them, `agent` the agent of their last run, one or
        several, `base` the thread that they are forks of. Pass the last thread's id as `before` for the next page.
        """
        store = self._scope.store
        check_ids(principal=principal, base=base, thread=before)
        most = check_count(limit, "limit") or 100
        found = await store.threads(
            principal=principal, agents=check_agents(agent), base=base, before=before, limit=most
        )
        if before is not None and not found and await store.thread(before) is None:
            raise UnknownThread(
                f"no thread {before!r} in this store to list older ones than; if it was deleted since the last "
                "page, begin with the first one again"
            )
        return copy_mutable(found)

    async def messages(
        self, thread: str, *, after: int | str = 0, limit: int | None = None, newest: int | None = None
    ) -> Sequence[Message]:
        """A thread's conversation, oldest first: the first `limit` after a cursor, or the `newest` ones."""
        if limit is not None and newest is not None:
            raise UsageError("messages are the first ones (limit) or the last ones (newest), not both")
        found = await self._scope.store.messages(
            check_id(thread, "thread"),
            after=parse_cursor(after)[0],
            limit=check_count(limit, "limit"),
            newest=check_count(newest, "newest"),
        )
        return copy_mutable(found)

    async def state(self, thread: str) -> dict[str, Any]:
        """The persistent state of a thread and of its open run, by the names of the keys."""
        self._scope.shared.check_open()
        return await read_state(self._scope.env, check_id(thread, "thread"))

    async def describe(
        self, thread: str, *, title: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Set a thread's title, its metadata, or both; an empty title removes it."""
        check_thread_id(thread)
        check_instance(title, str, "title")
        check_instance(metadata, Mapping, "metadata")
        about = About(None if title is None else clean_text(title), None if metadata is None else dict(metadata))
        try:
            encode(about)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidInput(f"the metadata of thread {thread!r} can't be kept as JSON: {error}") from error
        await self._scope.store.commit(Commit(thread, about=about))

    async def fork(
        self,
        thread: str,
        *,
        at: int | None = None,
        into: str | None = None,
        request_id: str | Request | None = None,
    ) -> str:
        """Make a new thread that shares the conversation up to the entry `at` (all of it by default) and the state
        at that point; returns its id. To edit a message and run again, fork before the message and run.
        Repeating a `request_id` makes nothing and returns the first thread."""
        request = check_request_id(request_id)
        if at is not None and type(at) is not int:
            raise UsageError(f"at is the seq of an entry, such as message.seq, or None for all; not {at!r:.80}")
        record, store = await self.get(thread), self._scope.store
        new = check_thread_id(into) if into is not None else new_id()
        if await first_item(store, request) is not None:
            return (await store.fork(thread, 0, new, request=request)).id
        at = record.head if at is None else at
        if (open_calls := await _unanswered(store, thread, min(at, record.head))) is not None:
            raise UsageError(
                f"thread {thread!r} can't be forked at {at}: the tool calls of message {open_calls} would have no "
                f"results there; fork at {open_calls - 1}, or after their results"
            )
        return (await store.fork(thread, at, new, request=request)).id

    async def delete(self, thread: str, *, children: ChildPolicy = "reject") -> int:
        """Delete a thread with everything it owns; returns the number of threads deleted.

        `children` is the policy for threads of delegated runs: `reject` refuses, `detach` keeps them, `cascade`
        deletes them too. A run that waits for a run of the thread is told that it was cancelled.
        """
        self._scope.shared.check_open()
        check_choice(children, get_args(ChildPolicy), "children")
        removed = await delete_thread(self._scope.dispatch, check_id(thread, "thread"), children)
        if not removed:
            raise UnknownThread(f"no thread {thread!r} in this store")
        self._scope.bus.end(thread)
        return removed

    def export(self, thread: str, *, key: bytes | None = None) -> AsyncIterator[bytes]:
        """A thread as lines of JSON for `import_`: title, metadata, runs, log, calls, tickets, decisions, state,
        pending inbox. Its run must wait or be done. With a `key`, a secret of 16 bytes or more, it is signed."""
        return export_lines(self._scope.store, check_thread_id(thread), _checked_key(key))

    async def import_(
        self,
        lines: Lines,
        *,
        into: str | None = None,
        key: bytes | None = None,
        request_id: str | Request | None = None,
    ) -> str:
        """Write an exported thread in one commit; returns its id. Its ids stay, and must be new in this store.
        With `into` it becomes a copy of that id, whose runs, calls and tickets get new ids.

        With a `key`, an export that the key didn't sign, or that was edited since, is refused with
        `InvalidExport`. Repeating a `request_id` writes nothing.
        """
        request = check_request_id(request_id)
        return await import_lines(self._scope.store, lines, into, _checked_key(key), request)

    async def prune(self, retention: Retention) -> Pruned:
        """Delete everything older than the retention."""
        check_retention(retention)
        return await self._scope.store.prune(retention)


def _checked_key(key: bytes | None) -> bytes | None:
    if key is not None and (type(key) is not bytes or len(key) < MIN_KEY):
        raise UsageError(f"the key of an export is a secret of {MIN_KEY} bytes or more")
    return key


async def _unanswered(store: Store, thread: str, at: int) -> int | None:
    """The last answer up to `at`, if it has tool calls without results up to `at`. Those before it have theirs."""
    answered: set[str] = set()
    before = at + 1
    while page := await store.messages(thread, before=before, newest=_PAGE):
        for message in reversed(page):
            if message.reply is not None:
                answered.add(message.reply.call_id)
            elif message.role == "assistant" and message.rewrites is None:
                return None if all(call.id in answered for call in message.calls) else message.seq
        before = page[0].seq
    return None
