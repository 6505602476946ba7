"""A tool of a server, as a tool of wakeful."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, NoReturn, cast

from ...errors import InDoubt, ToolError, ToolNotFound, UsageError
from ...tools import Tool, ToolContext, ToolResult
from ...types.requests import ToolSpec
from .connection import Connection, Link
from .questions import MAX_REQUESTS, MAX_ROUNDS, Desk, RunningCall, digest_of_request, question_of, response_of
from .results import result_of
from .settings import Settings
from .snapshot import ToolEntry, effect_of

__all__ = ["McpTool"]

# Attempts at a call that may run again, before a broken connection is an error.
MAX_ATTEMPTS = 3
PROGRESS_SECONDS = 0.1
MAX_PROGRESS = 1_000
# Pauses in milliseconds while a server asks to be called again without a question.
FIRST_PAUSE, MAX_PAUSE = 250, 60_000


class McpTool(Tool):
    """Calls a tool of a server. Its results are untrusted: strangers may have written them."""

    untrusted = True

    def __init__(self, settings: Settings, entry: ToolEntry, connection: Connection, desk: Desk) -> None:
        self._settings = settings
        self.entry = entry
        self._connection = connection
        self._desk = desk
        self.name = entry.name
        self.description = entry.description
        self.version = entry.digest
        self.effect = effect_of(settings, entry)
        self.timeout = settings.timeout
        self.max_result_bytes = settings.max_result_bytes
        self.approval = _approval_of(settings, entry)
        self.hints = _hints_of(settings, entry)
        self._spec = ToolSpec(entry.name, entry.description, entry.schema)

    @property
    def spec(self) -> ToolSpec:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tool's name, description and schema, as the model sees them."""
        return self._spec

    @property
    def is_async(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Always true."""
        return True

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments unchanged: the server checks them."""
        return arguments

    async def call(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        """Call the tool, or continue a call that was suspended."""
        try:
            return await self._call(arguments, context)
        except InDoubt as error:
            if self.effect != "once" and context.attempt >= MAX_ATTEMPTS:
                raise ToolError(f"given up after {context.attempt} attempts: {error}") from error
            raise

    async def _call(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        await self._check_unchanged()
        kept = context.kept or {}
        responses: dict[str, Any] | None = None
        answers: list[Mapping[str, Any]] = list(kept.get("answers", ()))
        if kept.get("kind") == "input":
            responses = self._responses(context, kept)
            for key, response in responses.items():
                answers.append({"digest": digest_of_request(kept["requests"][key]), "response": response})
        if kept.get("kind") == "again":
            answers.append(_answered(context, kept, kept["request"]))
        state = kept.get("state")
        for rounds in range(kept.get("rounds", 0), MAX_ROUNDS + 1):
            call = RunningCall(answers, may_repeat=self.effect != "once")
            try:
                result = await self._send(arguments, context, call, responses, state)
            except _Interrupted as interruption:
                if interruption.request is None:
                    continue  # Again, alone.
                self._ask_again(context, call, interruption.request)
            except _StateForgotten:
                if self.effect == "once":
                    raise ToolError(
                        f"{self._settings.name} forgot its question before it was answered; the call did nothing "
                        "more, and may be made again"
                    ) from None
                responses = state = None  # From the top; equal questions get the same answers.
                continue
            if result.get("resultType") != "input_required":
                return self._result(result, call)
            responses, state = self._input_required(context, result, answers, rounds), result.get("requestState")
        raise ToolError(f"{self._settings.name} asked more than {MAX_ROUNDS} times in one call")

    async def _check_unchanged(self) -> None:
        """Refuse a tool that its server changed or removed since the run saw it. Nothing was sent yet."""
        found = await self._connection.entries()
        listed = next((entry for entry in found if entry.wire == self.entry.wire), None)
        if listed is None:
            raise ToolNotFound(f"MCP server {self._settings.name!r} has no tool {self.entry.wire!r} any more")
        if listed.digest != self.entry.digest:
            raise ToolError(
                f"MCP server {self._settings.name!r} changed {self.entry.wire!r} since this run saw it, so it "
                "isn't called; the next run is shown the new definition"
            )

    # -- requests --------------------------------------------------------------------------------------------

    async def _send(
        self,
        arguments: dict[str, Any],
        context: ToolContext[Any],
        call: RunningCall,
        responses: dict[str, Any] | None,
        state: str | None,
    ) -> dict[str, Any]:
        """Send the call, and wait for its result or a question. The request is written once."""
        async with self._desk.seat(call):
            sent = asyncio.ensure_future(
                self._connection.request(lambda link: self._request(link, arguments, context, responses, state))
            )
            try:
                await asyncio.wait({sent, call.interrupted}, return_when=asyncio.FIRST_COMPLETED)
                if not sent.done():
                    raise _Interrupted(call.interrupted.result())
                return await sent
            finally:
                if not sent.done():
                    sent.cancel()  # The server is told.
                    with suppress(asyncio.CancelledError, Exception):
                        await sent

    async def _request(
        self,
        link: Link,
        arguments: dict[str, Any],
        context: ToolContext[Any],
        responses: dict[str, Any] | None,
        state: str | None,
    ) -> dict[str, Any]:
        from mcp import MCPError
        from mcp_types import ElicitResult

        await link.entries(self._settings)  # The SDK checks and shapes a call by the listing of its session.
        if self._settings.server is not None and (attempt := _present()) is not None:
            attempt.is_written = True
        inputs: Any = None
        if responses is not None:
            inputs = {key: ElicitResult.model_validate(value) for key, value in responses.items()}
        try:
            result: Any = await link.session.call_tool(
                self.entry.wire,
                arguments,
                progress_callback=_progress(context),
                input_responses=inputs,
                request_state=state,
                meta={"wakeful/idempotencyKey": context.idempotency_key},  # pyright: ignore[reportArgumentType]
                allow_input_required=True,
            )
        except MCPError as error:
            data: Any = error.data
            if isinstance(data, dict) and cast(dict[str, Any], data).get("reason") == "invalid_request_state":
                raise _StateForgotten from error
            raise
        except RuntimeError as error:
            raise ToolError(f"the call was made, but its result is refused: {error}") from error
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)

    def _result(self, result: dict[str, Any], call: RunningCall) -> ToolResult:
        return result_of(result, call.declined)

    # -- questions -------------------------------------------------------------------------------------------

    def _responses(self, context: ToolContext[Any], kept: Mapping[str, Any]) -> dict[str, Any]:
        """The answers to the questions of a result, as far as they are remembered; asks for the next one."""
        responses = dict(kept["responses"])
        if (key := kept.get("asked")) is not None:
            responses[key] = _answered(context, kept, kept["requests"][key])["response"]
        open_keys = [key for key in kept["requests"] if key not in responses]
        if open_keys:
            self._ask(context, {**kept, "responses": responses}, open_keys[0])
        return responses

    def _ask(self, context: ToolContext[Any], kept: Mapping[str, Any], key: str) -> NoReturn:
        asked = question_of(context, self._settings.name, kept["requests"][key])
        context.keep({**kept, "asked": key, "seen": len(context.decisions)})
        raise asked

    def _input_required(
        self, context: ToolContext[Any], result: Mapping[str, Any], answers: list[Mapping[str, Any]], rounds: int
    ) -> dict[str, Any]:
        """Suspend the call on the questions of a result, and return the answers once there are all of them."""
        requests: dict[str, Any] = result.get("inputRequests") or {}
        if len(requests) > MAX_REQUESTS:
            raise ToolError(
                f"{self._settings.name} asked {len(requests)} questions at once; {MAX_REQUESTS} are allowed"
            )
        if self._settings.elicitation == "deny":
            return {key: {"action": "decline"} for key in requests}
        known = {answer["digest"]: answer["response"] for answer in answers}
        digests = {key: digest_of_request(request) for key, request in requests.items()}
        responses = {key: known[digest] for key, digest in digests.items() if digest in known}
        kept = {
            "kind": "input",
            "requests": requests,
            "responses": responses,
            "state": result.get("requestState"),
            "rounds": rounds + 1,
            "answers": answers,
            "asked": None,
        }
        if not requests:
            pause = min(FIRST_PAUSE * 2**rounds, MAX_PAUSE)
            context.keep(kept)
            raise context.park(timer=(0, context.now + pause))
        return self._responses(context, kept)

    def _ask_again(self, context: ToolContext[Any], call: RunningCall, request: dict[str, Any]) -> NoReturn:
        """Suspend a call of 2025-11-25 on a question; it runs from the top once that is answered."""
        asked = question_of(context, self._settings.name, request)
        context.keep({"kind": "again", "answers": call.used, "request": request, "seen": len(context.decisions)})
        raise asked


class _Interrupted(Exception):
    """The call is given up, for a question or to run alone."""

    def __init__(self, request: dict[str, Any] | None) -> None:
        super().__init__()
        self.request = request


class _StateForgotten(Exception):
    """The server refuses the state of its own question."""


def _present() -> Any:
    from .attempts import ATTEMPT

    return ATTEMPT.get()


def _answered(context: ToolContext[Any], kept: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a person to the question that the call was suspended on."""
    place: int = kept["seen"]
    decision = context.decisions[place]
    return {"digest": digest_of_request(request), "response": response_of(decision, request)}


def _progress(context: ToolContext[Any]) -> Any:
    """A callback that shows progress, a limited number of times."""
    shown, last = 0, -1e9

    async def show(progress: float, total: float | None, message: str | None) -> None:
        nonlocal shown, last
        now = asyncio.get_running_loop().time()
        if shown >= MAX_PROGRESS or now - last < PROGRESS_SECONDS:
            return
        shown, last = shown + 1, now
        is_part = total is not None and 0 < total < float("inf") and 0 <= progress <= total
        fraction = progress / total if is_part and total else None
        with suppress(UsageError, ToolError):
            context.progress(fraction, message=(message or "")[:500])

    return show


def _approval_of(settings: Settings, entry: ToolEntry) -> bool:
    if isinstance(settings.approval, bool):
        return settings.approval
    return next((value for p, value in settings.approval.items() if fnmatchcase(entry.wire, p)), False)


def _hints_of(settings: Settings, entry: ToolEntry) -> tuple[str, ...]:
    """Words for permission rules: the server's if it is trusted, else the worst case, as the protocol has it."""
    hints = entry.hints if settings.trust == "hints" else {}
    if hints.get("readOnlyHint"):
        found = ["read_only"]
    else:
        found = ["destructive"] if hints.get("destructiveHint", True) else []
    if hints.get("openWorldHint", True):
        found.append("open_world")
    return tuple(found)
