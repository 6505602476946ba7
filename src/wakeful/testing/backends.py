"""Conformance checks for execution backends."""

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
from ..types.runs import Cancelled, EndRequested, Identity, NaturalEnd
from .recorder import Recorder

__all__ = ["BackendCheck", "backend_checks"]

# A slow request is cancelled this many seconds after it started.
CANCEL_AFTER = 0.05

MakeBackend = Callable[[], ExecutionBackend]


class BackendCheck(Struct, frozen=True):
    """One check of a backend: `await check()` raises AssertionError if it fails."""

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
        agent = Agent("checked", backend=backend or self.make(), expose_errors=True)
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
    """The conformance checks for a backend; if several fail, fix the first one first.

    `make_backend` returns a new instance on each call, as another process would. The backend answers `prompt`,
    takes long to answer `slow`, and asks a question about `asking`; without the last two, their checks are left
    out. `grace` is the cancel grace in seconds. Set `delegate=False` for a backend without `execute_delegate`.

    Run the checks with `pytest.mark.parametrize("check", backend_checks(...), ids=str)`.
    """
    setup = _Setup(make_backend, prompt, slow, asking, grace, delegate)
    checks = [_capabilities, _answers, _delegates, _streams, _saves_state, _aborts_quietly, _cancels_at_once]
    if slow is not None:
        checks.append(_cancels_in_time)
    if asking is not None:
        checks.append(_asks)
    return [BackendCheck(check.__name__.strip("_"), setup, check) for check in checks]


def _must(holds: object, text: str) -> None:
    if not holds:
        raise AssertionError(text)


async def _capabilities(setup: _Setup) -> None:
    """The capabilities are valid and the same for every instance."""
    found: Any = setup.make().capabilities
    again = setup.make().capabilities
    _must(isinstance(found, Capabilities), f"capabilities must be Capabilities, not {found!r}")
    try:
        msgspec.convert(msgspec.to_builtins(found), Capabilities)
    except msgspec.ValidationError as error:
        raise AssertionError(f"the capabilities have an invalid value: {error}") from error
    _must(found == again, f"two instances have different capabilities: {found} and {again}")


async def _answers(setup: _Setup) -> None:
    """A prompt is answered with a text, and with artifacts only if they are declared."""
    result = _require_answer(await setup.runtime().run("checked", setup.prompt, check=False))
    _must(result.text, f"the answer to {setup.prompt!r} is empty")


def _require_answer(result: RunResult) -> RunResult:
    _must(result.status == "done", f"it should have answered, but {result.status_reason}")
    ended = isinstance(result.termination, NaturalEnd | EndRequested)
    _must(ended, f"it should have answered, but ended with {result.error}")
    return result


async def _delegates(setup: _Setup) -> None:
    """A delegated prompt is answered; with `delegate=False` it is refused."""
    asks = call("agent_run_checked", prompt=setup.prompt)
    lead = Agent("lead", model=ScriptedModel([asks, "done"]), delegates=["checked"])
    backend = setup.make()
    execute, names = backend.execute_delegate, list[str]()

    async def execute_recorded(request: Any) -> BackendResult:
        result = await execute(request)
        names.append(result.agent_id)
        return result

    backend.execute_delegate = execute_recorded
    runtime = Runtime([lead, Agent("checked", backend=backend)], cancel_grace=setup.grace)
    await runtime.run("lead", "go", thread="t")
    (reply,) = [message.reply for message in await runtime.threads.messages("t") if message.reply is not None]
    text = text_of(reply.content)
    refused = "backend does not support delegated execution" in text
    if not setup.delegate:
        _must(refused, f"delegate=False was given, but a delegated run returned {text!r:.200}")
        return
    _must(not refused, "it has no execute_delegate; pass delegate=False if that is intended")
    _must(reply.error is None, f"a delegated run should have answered, but: {text}")
    _must(names == ["checked"], f"the result is for {', '.join(names)!r}, the request was for 'checked'")
    _must(text, f"the answer to the delegated {setup.prompt!r} is empty")


async def _streams(setup: _Setup) -> None:
    """The streamed deltas add up to the answer."""
    seen = await Recorder().record(setup.runtime().stream("checked", setup.prompt, check=False))
    size = 0
    for event in seen.events:
        if isinstance(event, StreamReset):
            size = 0
        elif isinstance(event, TextDelta):
            _must(event.offset == size, f"a delta has the offset {event.offset}; it should be {size}")
            size += len(event.delta)
    answer = next(e.message for e in reversed(seen.of(MessageAdded)) if e.message.role == "assistant")
    _must(size == len(answer.text), f"{size} characters were streamed of an answer of {len(answer.text)}")


async def _saves_state(setup: _Setup) -> None:
    """Saved state survives JSON, and another instance continues with it."""
    store, last = MemoryStore(), None
    for _ in range(2):
        backend = setup.make()
        saved = _record_saves(backend)
        _require_answer(await setup.runtime(backend, store).run("checked", setup.prompt, thread="t", check=False))
        for state in saved:
            again = msgspec.json.decode(msgspec.json.encode(state))
            _must(again == state, f"the saved state {state} is {again} after JSON")
        is_remote = backend.capabilities.continuation == "remote"
        _must(saved or last or not is_remote, "it declares continuation='remote' but saves no state")
        last = saved[-1] if saved else last


def _record_saves(backend: ExecutionBackend) -> list[dict[str, Any]]:
    saved: list[dict[str, Any]] = []
    execute = backend.execute_root

    async def execute_recorded(request: Any) -> BackendResult:
        async def save(state: dict[str, Any]) -> None:
            saved.append(state)
            await request.save(state)

        result = await execute(msgspec.structs.replace(request, save=save))
        if result.state is not None:
            saved.append(result.state)
        return result

    backend.execute_root = execute_recorded
    return saved


async def _aborts_quietly(setup: _Setup) -> None:
    """Aborting a run that never started, is over, or isn't known raises nothing, also when repeated."""
    backend = setup.make()
    saved = _record_saves(backend)
    result = await setup.runtime(backend).run("checked", setup.prompt, check=False)
    identity = Identity(result.run_id, result.thread_id, "checked", result.run_id)
    for state in (None, {"unknown": "handle"}, *saved[-1:]):
        for _ in range(2):
            try:
                await setup.make().abort(AbortRequest(agent_id="checked", identity=identity, state=state))
            except Exception as error:
                raise AssertionError(f"abort raised for the state {state!r}: {error!r}") from error


async def _cancels_at_once(setup: _Setup) -> None:
    """A run that is cancelled as it starts ends and leaves nothing running."""
    result, _ = await _cancel_run(setup, setup.prompt, after=0.0)
    _must(result.status == "done", f"it should have ended, but is {result.status}")


async def _cancels_in_time(setup: _Setup) -> None:
    """A slow run is cancelled within the grace."""
    result, answered = await _cancel_run(setup, setup.slow or "", after=CANCEL_AFTER)
    _must(not answered, f"it answered {setup.slow!r} before it could be cancelled; pass a slower `slow`")
    _must(isinstance(result.termination, Cancelled), f"it should have been cancelled, but ended with {result}")


async def _cancel_run(setup: _Setup, prompt: str, *, after: float) -> tuple[RunResult, bool]:
    """Cancel a run `after` seconds into its request; returns its result and whether it was answered by then."""
    backend, reached, answered = setup.make(), asyncio.Event(), asyncio.Event()
    execute = backend.execute_root

    async def execute_signalled(request: Any) -> BackendResult:
        reached.set()
        result = await execute(request)
        answered.set()
        return result

    backend.execute_root = execute_signalled
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
        raise AssertionError(f"it didn't stop within the cancel grace of {setup.grace:g} s") from None
    _must(not runtime.workers.abandoned, f"it was abandoned after {setup.grace:g} s and still runs")
    return await handle.result(check=False), early


async def _asks(setup: _Setup) -> None:
    """A question makes the run wait; another instance continues with the answer."""
    store, capabilities = MemoryStore(), setup.make().capabilities
    _must(capabilities.waits != "none", "it asks questions, but declares waits='none'")
    _must(capabilities.continuation != "none", "it asks questions, but declares continuation='none'")
    result = await setup.runtime(store=store).run("checked", setup.asking or "", check=False)
    _must(result.status == "waiting", f"it should have asked, but is {result.status}: {result.error}")
    (ticket,) = result.tickets
    result = await setup.runtime(store=store).resume(result.run_id, ticket.answer(setup.prompt), check=False)
    _must(result.error is None, f"it should have continued with the answer, but ended with {result.error}")
