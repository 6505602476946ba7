"""What every backend must keep to, as checks to run on one of your own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from ..agents import Agent
from ..backends import (
    AbortRequest,
    BackendResult,
    Capabilities,
    DelegateRequest,
    ExecutionBackend,
    ExecutionFailed,
    Parent,
)
from ..dispatch import RunResult
from ..runtime import Runtime
from ..stores import MemoryStore
from ..types.events import MessageAdded, StreamReset, TextDelta
from ..types.ids import new_id
from ..types.messages import user_message
from ..types.runs import BehaviourRequested, Cancelled, Identity, NaturalEnd
from ._recorder import Recorder

__all__ = ["BackendCheck", "backend_checks"]

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
) -> list[BackendCheck]:
    """The checks for a backend, in the order in which to read their failures.

    `make_backend` makes a new one each time, as another process would. `prompt` is something that it answers,
    `slow` something that takes it long, `asking` something that it asks back about; checks without their prompt
    are left out. Run them with `pytest.mark.parametrize("check", backend_checks(...), ids=str)`.
    """
    setup = _Setup(make_backend, prompt, slow, asking, grace)
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
    """A child's request is answered in the same form, or refused as a bare backend refuses it."""
    backend, run_id = setup.make(), new_id()
    request = DelegateRequest(
        agent_id="checked",
        messages=(user_message(setup.prompt),),
        new_messages=(user_message(setup.prompt),),
        identity=Identity(run_id, run_id, "checked", "root", "root", "thread", "call", "subagent", 1),
        parent=Parent("root", "thread", "call"),
    )
    try:
        result: Any = await backend.execute_delegate(request)
    except ExecutionFailed as error:
        _must(error.detail == "backend does not support delegated execution", f"a child failed: {error}")
        return
    _must(isinstance(result, BackendResult), f"a result must be a BackendResult, not {result!r}")
    _must(result.agent_id == "checked", f"the result is for {result.agent_id!r}, the request was for 'checked'")


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
    store = MemoryStore()
    for _ in range(2):
        backend = setup.make()
        saved = _spy_on_saves(backend)
        _ended_well(await setup.runtime(backend, store).run("checked", setup.prompt, thread="t"))
        for state in saved:
            again = msgspec.json.decode(msgspec.json.encode(state))
            _must(again == state, f"a saved state comes back as {again}, and was {state}")


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
    await _cancelled(setup, setup.prompt)


async def _cancels_in_time(setup: _Setup) -> None:
    """A run that would take long is cancelled within the grace."""
    result = await _cancelled(setup, setup.slow or "")
    _must(isinstance(result.termination, Cancelled), f"it should have been cancelled, and ended with {result}")


async def _cancelled(setup: _Setup, prompt: str) -> RunResult:
    backend, reached = setup.make(), asyncio.Event()
    execute = backend.execute_root

    async def noting(request: Any) -> BackendResult:
        reached.set()
        return await execute(request)

    backend.execute_root = noting
    runtime = setup.runtime(backend)
    handle = await runtime.start("checked", prompt)
    await reached.wait()
    try:
        await asyncio.wait_for(handle.cancel(), setup.grace * 2 + 1)
    except TimeoutError:
        raise AssertionError(f"it didn't stop within the grace of {setup.grace:g} s") from None
    _must(not runtime.abandoned, f"it was let go of after {setup.grace:g} s and still runs")
    return await handle.result()


async def _asks(setup: _Setup) -> None:
    """A question makes the run wait; another instance goes on with the answer."""
    store, waits = MemoryStore(), setup.make().capabilities
    _must(waits.waits != "none", "it asks back, and its capabilities say waits='none'")
    _must(waits.continuation != "none", "it asks back, and its capabilities say continuation='none'")
    result = await setup.runtime(store=store).run("checked", setup.asking or "")
    _must(result.status == "waiting", f"it should have asked, and is {result.status}: {result.error}")
    (ticket,) = result.tickets
    await setup.runtime(store=store).resume(result.run_id, ticket.answer(setup.prompt))
