"""Questions of servers: an elicitation becomes a ticket, and its answer reaches whichever process continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from ...errors import ToolError
from ...tools import Asked, ToolContext, schema_faults
from ...types.ids import digest_of
from ...types.tickets import Decision
from .snapshot import visible_text

__all__ = ["CALL", "Desk", "RunningCall", "digest_of_request", "question_of", "response_of"]

MAX_QUESTION = 4_000
MAX_URL = 4_000
# Answers of 2026-07-28 that one call may ask for, and questions of one answer.
MAX_ROUNDS = 10
MAX_REQUESTS = 20


def _params_of(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], request.get("params") or {})


def digest_of_request(request: Mapping[str, Any]) -> str:
    """The digest of what a person is asked, the same for the same question."""
    params = _params_of(request)
    asked = [params.get(key) for key in ("mode", "message", "requestedSchema", "url")]
    return digest_of(msgspec.json.encode(asked, order="deterministic"))


def question_of(context: ToolContext[Any], server: str, request: Mapping[str, Any]) -> Asked:
    """The signal that suspends a call on a question of the server, as a ticket.

    An address is shown and never fetched. Raises `ToolError` for a request that is no elicitation.
    """
    if request.get("method") != "elicitation/create":
        raise ToolError(
            f"MCP server {server!r} asked for {request.get('method')!r:.80}, which isn't offered to it"
        )
    params = _params_of(request)
    text = f"{server} asks: {visible_text(str(params.get('message', '')), MAX_QUESTION)}"
    if params.get("mode") == "url":
        url = visible_text(str(params.get("url", "")), MAX_URL)
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ToolError(f"MCP server {server!r} asked to open {url!r:.80}, which is no web address")
        return context.question(f"{text}\nOpen this page of {parts.hostname}, then approve: {url}")
    schema = params.get("requestedSchema")
    if not isinstance(schema, dict) or schema_faults(schema):
        raise ToolError(f"MCP server {server!r} asked with a schema that isn't supported: {schema!r:.200}")
    return context.question(text, schema=schema)


def response_of(decision: Decision, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to the server. A denial declines."""
    if decision.verdict == "deny":
        return {"action": "decline"}
    if _params_of(request).get("mode") == "url":
        return {"action": "accept"}
    value: Any = decision.value
    return {"action": "accept", "content": value if isinstance(value, dict) else {}}


class RunningCall:
    """A call of a 2025-11-25 server, which asks while the call runs.

    A call that may run again is given up at a question without an answer: once a person has answered, it runs from
    the top, and `answers` are given in order. Questions of other calls are declined.
    """

    def __init__(self, answers: Sequence[Mapping[str, Any]], *, may_repeat: bool) -> None:
        self._answers = list(answers)
        self._used = 0
        self.may_repeat = may_repeat
        self.declined: list[str] = []
        # The question to ask a person, or None to run alone.
        self.interrupted: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()

    @property
    def used(self) -> list[Mapping[str, Any]]:
        """The answers that were given."""
        return self._answers[: self._used]

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a question of the server, or interrupt the call."""
        digest = digest_of_request(request)
        if self._used < len(self._answers) and self._answers[self._used]["digest"] == digest:
            self._used += 1
            return self._answers[self._used - 1]["response"]
        if not self.may_repeat:
            message = str(_params_of(request).get("message", ""))
            self.declined.append(visible_text(message, MAX_QUESTION))
            return {"action": "decline"}
        self.interrupt(request)
        return await asyncio.get_running_loop().create_future()  # Until the request is cancelled.

    def interrupt(self, request: dict[str, Any] | None) -> None:
        """Give the call up, to ask a person or to run it alone."""
        if not self.interrupted.done():
            self.interrupted.set_result(request)


# The call that a request belongs to. HTTP carries it to the server's questions; stdio has no such link.
CALL: ContextVar[RunningCall | None] = ContextVar("mcp_call", default=None)


class Desk:
    """The calls of one connection, to find the one that a question of the server belongs to.

    Over stdio a question doesn't say which call it is about. Once a server asked while several calls were running,
    its calls run one at a time.
    """

    def __init__(self) -> None:
        self._running: list[RunningCall] = []
        self._one_at_a_time = False
        self._turn = asyncio.Lock()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def seat(self, call: RunningCall) -> AsyncGenerator[None]:
        """Run a call, alone if the server's questions demand it."""
        if not self._one_at_a_time:
            async with self._enter(call):
                yield
            return
        async with self._turn:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._running)
            async with self._enter(call):
                yield

    @asynccontextmanager
    async def _enter(self, call: RunningCall) -> AsyncGenerator[None]:
        self._running.append(call)
        token = CALL.set(call)
        try:
            yield
        finally:
            CALL.reset(token)
            self._running.remove(call)
            async with self._changed:
                self._changed.notify_all()

    async def elicit(self, context: Any, params: Any) -> Any:
        """Answer an elicitation of the SDK's session."""
        from mcp_types import ElicitResult

        request = {
            "method": "elicitation/create",
            "params": params.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        call = CALL.get()
        if call is None and len(self._running) == 1:
            call = self._running[0]
        if call is not None:
            return ElicitResult.model_validate(await call.answer(request))
        self._one_at_a_time = True
        for running in self._running:
            if running.may_repeat:
                running.interrupt(None)
            else:
                running.declined.append("a question that several calls could have led to")
        return ElicitResult(action="cancel")
