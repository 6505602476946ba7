"""Chats whose messages are edited or answered again: each time the chat goes on on a fork of its thread."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ThreadExists
from ...types.inbox import Request
from ...types.messages import Message
from ..operations import Call
from ..operations.threads import check_thread
from .messages import ClientMessage

__all__ = ["branch_before", "thread_of_chat"]

# The entry of a thread's metadata that names the newest branch of the chat.
BRANCH = "aisdk:branch"


async def thread_of_chat(call: Call, chat: str) -> str:
    """The thread on which a chat of the caller goes on: its own, or the newest branch."""
    await check_thread(call, chat)
    found = await call.runtime.store.thread(chat)
    branch = None if found is None else found.metadata.get(BRANCH)
    if not isinstance(branch, str) or await call.runtime.store.thread(branch) is None:
        return chat
    await check_thread(call, branch)
    return branch


async def branch_before(call: Call, chat: str, thread: str, message: ClientMessage, request: Request) -> str:
    """A thread with the conversation before a message, on which the chat goes on from now on.

    A message that the thread doesn't have is a new one, and needs no branch.
    """
    found = _sent_as(await call.runtime.threads.messages(thread), message.id)
    if found is None:
        return thread
    branch = f"{chat}~{request.id[-12:]}"
    if await call.runtime.store.thread(branch) is None:
        try:
            await call.runtime.threads.fork(thread, at=found.seq - 1, into=branch)
        except ThreadExists:
            pass  # The same request was sent at the same time.
    record = await call.runtime.threads.get(chat)
    await call.runtime.threads.describe(chat, metadata={**record.metadata, BRANCH: branch})
    return branch


def _sent_as(messages: Sequence[Message], message_id: str) -> Message | None:
    """The last message that was sent under an id."""
    sent = (m for m in reversed(messages) if m.producer is not None and m.producer.message_id == message_id)
    return next(sent, None)
