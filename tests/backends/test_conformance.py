"""The checks for backends: an honest one passes them all, and each finds what it is there to find."""

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
    """Take very long."""
    await asyncio.Event().wait()
    return "never"


def inner(request: ModelRequest) -> str | Turn:
    text = request.messages[-1].text
    return Turn(calls=[call("forever")]) if text == "Dawdle" else f"You said: {text}"


class Nested(ExecutionBackend):
    """Runs a local agent in a runtime of its own: the loop, as far away as it can be."""

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


CHECKS = backend_checks(Nested, slow="Dawdle", asking="Ask", grace=5)


@pytest.mark.parametrize("check", CHECKS, ids=str)
async def test_an_honest_backend_passes(check: BackendCheck) -> None:
    await check()


class OddValue(Nested):
    """Can be cancelled by prayer."""

    capabilities = msgspec.structs.replace(ABLE, cancellation="prayer")


class Undeclared(Nested):
    """Makes artifacts and says that it doesn't."""

    capabilities = msgspec.structs.replace(ABLE, output="text")

    async def execute_root(self, request: Any) -> BackendResult:
        return BackendResult(request.agent_id, response="x", output=BackendOutput(artifacts=(Artifact(1),)))


class Fails(Nested):
    """Fails."""

    async def execute_root(self, request: Any) -> BackendResult:
        raise OSError("no route")


class Stranger(Nested):
    """Answers a child's request in somebody else's name."""

    async def execute_delegate(self, request: DelegateRequest) -> BackendResult:
        return BackendResult("somebody")


class Alone(Nested):
    """Is no delegate, and doesn't say so."""

    execute_delegate = ExecutionBackend.execute_delegate


class Hasty(Nested):
    """Has nothing that takes it long."""

    async def execute_root(self, request: Any) -> BackendResult:
        return BackendResult(request.agent_id, response="at once")


class Stumbles(Nested):
    """Asks, and can't go on with the answer."""

    async def execute_root(self, request: Any) -> BackendResult:
        if request.is_continuation:
            raise OSError("lost")
        return await super().execute_root(request)


class Forgets(Nested):
    """Keeps something that JSON changes."""

    async def execute_root(self, request: Any) -> BackendResult:
        return BackendResult(request.agent_id, response="x", state={"pair": (1, 2)})


class Touchy(Nested):
    """Minds being aborted twice."""

    async def abort(self, request: AbortRequest) -> None:
        raise KeyError("no such task")


class Deaf(Nested):
    """Can't be stopped."""

    async def execute_root(self, request: Any) -> BackendResult:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await RELEASE.wait()
        return BackendResult(request.agent_id)


class Silent(Nested):
    """Asks without having said so."""

    capabilities = msgspec.structs.replace(ABLE, waits="none")


RELEASE = asyncio.Event()


async def test_one_that_is_no_delegate_may_say_so() -> None:
    for make, passes in ((Alone, True), (Nested, False)):
        (check,) = [check for check in backend_checks(make, delegate=False) if check.name == "delegates"]
        if passes:
            await check()
        else:
            with pytest.raises(AssertionError, match="it is no delegate, and a child of it came to"):
                await check()


@pytest.mark.parametrize(
    ("make", "name", "text"),
    [
        (OddValue, "capabilities", "have a value that none may have"),
        (Undeclared, "answers", "declares output='text' and made artifacts"),
        (Fails, "answers", "ended with OSError: no route"),
        (Stranger, "delegates", "the result is for 'somebody'"),
        (Alone, "delegates", "it has no execute_delegate; give the checks delegate=False"),
        (Hasty, "cancels_in_time", "it answered 'Dawdle' before it could be cancelled"),
        (Hasty, "keeps_state", "it declares continuation='remote' and saves nothing"),
        (Stumbles, "asks", "it should have gone on with the answer, and ended with OSError: lost"),
        (Forgets, "keeps_state", "a saved state comes back as"),
        (Touchy, "abort_is_harmless", "abort raised for the state None"),
        (Deaf, "cancels_in_time", "was let go of after 0.05 s and still runs"),
        (Silent, "asks", "say waits='none'"),
    ],
)
async def test_a_check_finds_what_it_is_there_for(make: Any, name: str, text: str) -> None:
    (check,) = [c for c in backend_checks(make, slow="Dawdle", asking="Ask", grace=0.05) if c.name == name]
    with pytest.raises(AssertionError) as found:
        await check()
    assert text in str(found.value)
    RELEASE.set()
    for _ in range(5):
        await asyncio.sleep(0)
    RELEASE.clear()
