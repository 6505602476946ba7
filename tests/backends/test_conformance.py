"""The backend checks: a conforming backend passes all, and each check finds its fault."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from wakeful import Agent, FunctionModel, ModelRequest, Runtime, tool
from wakeful.backends import (
    AbortRequest,
    BackendOutput,
    BackendResult,
    Capabilities,
    DelegateRequest,
    ExecutionBackend,
    RootRequest,
    WaitingInput,
)
from wakeful.testing import BackendCheck, Turn, backend_checks, call
from wakeful.types.content import Artifact

ABLE = Capabilities("abort", False, False, False, "remote", "input", "incremental")


@tool
async def forever() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


def inner(request: ModelRequest) -> str | Turn:
    text = request.messages[-1].text
    return Turn(calls=[call("forever")]) if text == "Dawdle" else f"You said: {text}"


class Nested(ExecutionBackend):
    """A backend that runs a local agent in a runtime of its own."""

    capabilities = ABLE

    def __init__(self) -> None:
        self._runtime = Runtime([Agent("inner", FunctionModel(inner), tools=[forever])])

    async def execute_root(self, request: RootRequest | DelegateRequest) -> BackendResult:
        if request.new_messages[-1].text == "Ask":
            return BackendResult(request.agent_id, WaitingInput("What?"))
        said = request.new_messages[-1]
        text = said.text if said.reply is None else "an answer"
        await request.save({"turns": (request.state or {}).get("turns", 0) + 1})
        result = await self._runtime.run("inner", text)
        for start in range(0, len(result.text), 4):
            request.emit(result.text[start : start + 4])
        return BackendResult(request.agent_id, response=result.text)

    execute_delegate = execute_root  # type: ignore[assignment]

    async def abort(self, request: AbortRequest) -> None:
        """Its coroutine is cancelled, which is enough."""


CHECKS = backend_checks(Nested, slow="Dawdle", asking="Ask", grace=5)


@pytest.mark.parametrize("check", CHECKS, ids=str)
async def test_conforming_backend_passes_all_checks(check: BackendCheck) -> None:
    await check()


class OddValue(Nested):
    """Declares an invalid cancellation."""

    capabilities = msgspec.structs.replace(ABLE, cancellation="prayer")


class Undeclared(Nested):
    """Makes artifacts without declaring them."""

    capabilities = msgspec.structs.replace(ABLE, output="text")

    async def execute_root(self, request: Any) -> BackendResult:
        return BackendResult(request.agent_id, response="x", output=BackendOutput(artifacts=(Artifact(1),)))


class Fails(Nested):
    """Fails."""

    async def execute_root(self, request: Any) -> BackendResult:
        raise OSError("no route")


class Stranger(Nested):
    """Answers a delegate request for another agent."""

    async def execute_delegate(self, request: DelegateRequest) -> BackendResult:
        return BackendResult("somebody")


class Alone(Nested):
    """Has no execute_delegate."""

    execute_delegate = ExecutionBackend.execute_delegate


class Hasty(Nested):
    """Answers every request at once."""

    async def execute_root(self, request: Any) -> BackendResult:
        return BackendResult(request.agent_id, response="at once")


class Stumbles(Nested):
    """Asks, and fails on the answer."""

    async def execute_root(self, request: Any) -> BackendResult:
        if request.is_continuation:
            raise OSError("lost")
        return await super().execute_root(request)


class Forgets(Nested):
    """Saves a state that JSON changes."""

    async def execute_root(self, request: Any) -> BackendResult:
        return BackendResult(request.agent_id, response="x", state={"pair": (1, 2)})


class Touchy(Nested):
    """Raises on abort without a state."""

    async def abort(self, request: AbortRequest) -> None:
        raise KeyError("no such task")


class Deaf(Nested):
    """Ignores cancellation."""

    async def execute_root(self, request: Any) -> BackendResult:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await RELEASE.wait()
        return BackendResult(request.agent_id)


class Silent(Nested):
    """Asks without declaring it."""

    capabilities = msgspec.structs.replace(ABLE, waits="none")


RELEASE = asyncio.Event()


async def test_checks_accept_backend_without_delegation() -> None:
    for make, passes in ((Alone, True), (Nested, False)):
        (check,) = [check for check in backend_checks(make, delegate=False) if check.name == "delegates"]
        if passes:
            await check()
        else:
            with pytest.raises(AssertionError, match="delegate=False was given, but a delegated run returned"):
                await check()


@pytest.mark.parametrize(
    ("make", "name", "text"),
    [
        (OddValue, "capabilities", "have an invalid value"),
        (Undeclared, "answers", "returned artifacts, but its capabilities declare output='text'"),
        (Fails, "answers", "ended with OSError: no route"),
        (Stranger, "delegates", "the result is for 'somebody'"),
        (Alone, "delegates", "it has no execute_delegate; pass delegate=False"),
        (Hasty, "cancels_in_time", "it answered 'Dawdle' before it could be cancelled"),
        (Hasty, "saves_state", "it declares continuation='remote' but saves no state"),
        (Stumbles, "asks", "it should have continued with the answer, but ended with OSError: lost"),
        (Forgets, "saves_state", "the saved state"),
        (Touchy, "aborts_quietly", "abort raised for the state None"),
        (Deaf, "cancels_in_time", "was abandoned after 0.05 s and still runs"),
        (Silent, "asks", "declares waits='none'"),
    ],
)
async def test_check_finds_its_fault(make: Any, name: str, text: str) -> None:
    (check,) = [c for c in backend_checks(make, slow="Dawdle", asking="Ask", grace=0.05) if c.name == name]
    with pytest.raises(AssertionError) as found:
        await check()
    assert text in str(found.value)
    RELEASE.set()
    for _ in range(5):
        await asyncio.sleep(0)
    RELEASE.clear()
