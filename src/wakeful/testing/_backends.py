"""What every backend must keep to, as checks to run on one of your own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from ..agents import Agent
from ..backends import (
    AbortRequest,
    BackendResult,
    Capabilities,
    ExecutionBackend,
)
from ..dispatch import RunResult
from ..models import ScriptedModel, call
from ..runtime import Runtime
from ..stores import MemoryStore
from ..types.content import text_of
from ..types.events import MessageAdded, StreamReset, TextDelta
from ..types.runs import BehaviourRequested, Cancelled, Identity, NaturalEnd
from ._recorder import Recorder

__all__ = ["BackendCheck", "backend_checks"]

# For so many seconds a request must be under way before it counts as one that takes long.
UNDER_WAY = 0.05

MakeBackend = Callable[[], ExecutionBackend]


class BackendCheck(Struct, frozen=True):
    """One check of a backend: `await check()` raises AssertionError if the backend doesn't keep to it."""

    name: str
    _setup: _Setup
    _run: Callable[[_Setup], Awaitable[None]]

    async def __call__(self) -> None:
        await self._run(self._setup)

    def __str__(self) -> str:
        return self.name


class _Setup(Struct, frozen=True):
    make: MakeBackend
    prompt: str
    slow: str | None
    asking: str | None
    grace: float
    delegate: bool

    def runtime(self, backend: ExecutionBackend | None = None, store: MemoryStore | None = None) -> Runtime:
        agent = Agent("checked", backend=backend or self.make())
        return Runtime([agent], store=store, cancel_grace=self.grace)


def backend_checks(
    make_backend: MakeBackend,
    *,
    prompt: str = "Hello",
    slow: str | None = None,
    asking: str | None = None,
    grace: float = 5.0,
    delegate: bool = True,
) -> list[BackendCheck]:
    """The checks for a backend, in the order in which to read their failures.

    `make_backend` makes a new one each time, as another process would. `prompt` is something that it answers,
    `slow` something that takes it long, `asking` something that it asks back about; checks without their prompt
    are left out. `delegate` is False for one that no other agent calls. Run them with
    `pytest.mark.parametrize("check", backend_checks(...), ids=str)`.
    """
    setup = _Setup(make_backend, prompt, slow, asking, grace, delegate)
    checks = [_capabilities, _answers, _delegates, _streams, _keeps_state, _abort_is_harmless, _cancels_at_once]
    if slow is not None:
        checks.append(_cancels_in_time)
    if asking is not None:
        checks.append(_asks)
    return [BackendCheck(check.__name__.strip("_"), setup, check) for check in checks]


def _must(holds: object, text: str) -> None:
    if not holds:
        raise AssertionError(text)


async def _capabilities(setup: _Setup) -> None:
    """The capabilities are what they may be, and the same for every instance."""
    found: Any = setup.make().capabilities
    again = setup.make().capabilities
    _must(isinstance(found, Capabilities), f"capabilities must be Capabilities, not {found!r}")
    try:
        msgspec.convert(msgspec.to_builtins(found), Capabilities)
    except msgspec.ValidationError as error:
        raise AssertionError(f"the capabilities have a value that none may have: {error}") from error
    _must(found == again, f"two instances differ in what they can do: {found} and {again}")


async def _answers(setup: _Setup) -> None:
    """A prompt is answered with a text, and with no more than is declared."""
    backend = setup.make()
    result = _ended_well(await setup.runtime(backend).run("checked", setup.prompt))
    _must(result.text, f"it answered {setup.prompt!r} with nothing")
    if backend.capabilities.output == "text":
        _must(not result.artifacts, f"it declares output='text' and made artifacts: {result.artifacts}")


def _ended_well(result: RunResult) -> RunResult:
    _must(result.status == "done", f"it should have answered, and {result.status_reason}")
    ended = isinstance(result.termination, NaturalEnd | BehaviourRequested)
    _must(ended, f"it should have answered, and ended with {result.error}")
    return result


async def _delegates(setup: _Setup) -> None:
    """As another agent's child it answers too; one that is no delegate refuses as a bare backend does."""
    asks = call("agent_run_checked", prompt=setup.prompt)
    lead = Agent("lead", model=ScriptedModel([asks, "done"]), delegates=["checked"])
    backend = setup.make()
    execute, names = backend.execute_delegate, list[str]()

    async def noting(request: Any) -> BackendResult:
        result = await execute(request)
        names.append(result.agent_id)
        return result

    backend.execute_delegate = noting
    runtime = Runtime([lead, Agent("checked", backend=backend)], cancel_grace=setup.grace)
    await runtime.run("lead", "go", thread="t")
    (reply,) = [message.reply for message in await runtime.messages("t") if message.reply is not None]
    told = text_of(reply.content)
    refused = "backend does not support delegated execution" in told
    if not setup.delegate:
        _must(refused, f"it is no delegate, and a child of it came to {told!r:.200}")
        return
    _must(not refused, "it has no execute_delegate; give the checks delegate=False if that is meant so")
    _must(reply.error is None, f"a child of it should have answered, and: {told}")
    _must(names == ["checked"], f"the result is for {', '.join(names)!r}, the request was for 'checked'")
    _must(told, f"as a child it answered {setup.prompt!r} with nothing")


async def _streams(setup: _Setup) -> None:
    """What is shown piece by piece is what the answer is."""
    seen = await Recorder().record(setup.runtime().stream("checked", setup.prompt))
    size = 0
    for event in seen.events:
        if isinstance(event, StreamReset):
            size = 0
        elif isinstance(event, TextDelta):
            _must(event.offset == size, f"a piece is at {event.offset} and should be at {size}")
            size += len(event.delta)
    answer = next(e.message for e in reversed(seen.of(MessageAdded)) if e.message.role == "assistant")
    _must(size == len(answer.text), f"{size} characters were shown of an answer of {len(answer.text)}")


async def _keeps_state(setup: _Setup) -> None:
    """What it saves is JSON, and another instance goes on with it."""
    store, last = MemoryStore(), None
    for _ in range(2):
        backend = setup.make()
        saved = _spy_on_saves(backend)
        _ended_well(await setup.runtime(backend, store).run("checked", setup.prompt, thread="t"))
        for state in saved:
            again = msgspec.json.decode(msgspec.json.encode(state))
            _must(again == state, f"a saved state comes back as {again}, and was {state}")
        far = backend.capabilities.continuation == "remote"
        _must(saved or last or not far, "it declares continuation='remote' and saves nothing to go on with")
        last = saved[-1] if saved else last


def _spy_on_saves(backend: ExecutionBackend) -> list[dict[str, Any]]:
    saved: list[dict[str, Any]] = []
    execute = backend.execute_root

    async def spying(request: Any) -> BackendResult:
        async def save(state: dict[str, Any]) -> None:
            saved.append(state)
            await request.save(state)

        result = await execute(msgspec.structs.replace(request, save=save))
        if result.state is not None:
            saved.append(result.state)
        return result

    backend.execute_root = spying
    return saved


async def _abort_is_harmless(setup: _Setup) -> None:
    """Aborting what was never begun, is over, or isn't known is no error, however often."""
    backend = setup.make()
    saved = _spy_on_saves(backend)
    result = await setup.runtime(backend).run("checked", setup.prompt)
    identity = Identity(result.run_id, result.thread_id, "checked", result.run_id)
    for state in (None, {"unknown": "handle"}, *saved[-1:]):
        for _ in range(2):
            try:
                await setup.make().abort(AbortRequest(agent_id="checked", identity=identity, state=state))
            except Exception as error:
                raise AssertionError(f"abort raised for the state {state!r}: {error!r}") from error


async def _cancels_at_once(setup: _Setup) -> None:
    """A run that is cancelled as it begins comes to an end, and leaves nothing running."""
    result, _ = await _cancelled(setup, setup.prompt, after=0.0)
    _must(result.status == "done", f"it should have come to an end, and is {result.status}")


async def _cancels_in_time(setup: _Setup) -> None:
    """A run that would take long is cancelled within the grace."""
    result, answered = await _cancelled(setup, setup.slow or "", after=UNDER_WAY)
    _must(
        not answered, f"it answered {setup.slow!r} before it could be cancelled; give a `slow` that takes it long"
    )
    _must(isinstance(result.termination, Cancelled), f"it should have been cancelled, and ended with {result}")


async def _cancelled(setup: _Setup, prompt: str, *, after: float) -> tuple[RunResult, bool]:
    """Cancel a run so long after its request began; what it came to, and whether it was answered before."""
    backend, reached, answered = setup.make(), asyncio.Event(), asyncio.Event()
    execute = backend.execute_root

    async def noting(request: Any) -> BackendResult:
        reached.set()
        result = await execute(request)
        answered.set()
        return result

    backend.execute_root = noting
    runtime = setup.runtime(backend)
    handle = await runtime.start("checked", prompt)
    await reached.wait()
    with suppress(TimeoutError):
        async with asyncio.timeout(after):
            await answered.wait()
    early = answered.is_set()
    try:
        await asyncio.wait_for(handle.cancel(), setup.grace * 2 + 1)
    except TimeoutError:
        raise AssertionError(f"it didn't stop within the grace of {setup.grace:g} s") from None
    _must(not runtime.abandoned, f"it was let go of after {setup.grace:g} s and still runs")
    return await handle.result(), early


async def _asks(setup: _Setup) -> None:
    """A question makes the run wait; another instance goes on with the answer."""
    store, waits = MemoryStore(), setup.make().capabilities
    _must(waits.waits != "none", "it asks back, and its capabilities say waits='none'")
    _must(waits.continuation != "none", "it asks back, and its capabilities say continuation='none'")
    result = await setup.runtime(store=store).run("checked", setup.asking or "")
    _must(result.status == "waiting", f"it should have asked, and is {result.status}: {result.error}")
    (ticket,) = result.tickets
    result = await setup.runtime(store=store).resume(result.run_id, ticket.answer(setup.prompt))
    _must(result.error is None, f"it should have gone on with the answer, and ended with {result.error}")
