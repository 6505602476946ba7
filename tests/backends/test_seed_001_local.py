"""Seed 001, rows 1.1 to 1.6, 1.9, 1.16 and 1.17: the loop as a backend."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, Spy, holding, soon, spying
from wakeful import Agent, ClientTool, FunctionModel, ModelSettings, Plugin, Runtime, StateKey, call
from wakeful.backends import (
    BackendOutput,
    BackendResult,
    BackendStatus,
    CancelledStatus,
    Capabilities,
    Completed,
    Control,
    DelegatePolicy,
    DelegateRequest,
    FailedStatus,
    LocalBackend,
    RootRequest,
    Suspended,
)
from wakeful.backends.local import status_of
from wakeful.errors import ConfigurationError, ExecutionFailed, ModelError, StoreUnavailable, UnknownTicket
from wakeful.plugins import Step
from wakeful.runtime.requests import new_run
from wakeful.stores import Commit
from wakeful.types.events import RunFinish, ToolCallResumed
from wakeful.types.ids import new_id
from wakeful.types.inbox import InputItem
from wakeful.types.messages import user_message
from wakeful.types.runs import (
    Blocked,
    Cancelled,
    EndRequested,
    Failed,
    Identity,
    NaturalEnd,
    Stopped,
    Termination,
)
from wakeful.types.tickets import Decision

from .helpers import FailingStore

IDENTITY = Identity("r", "t", "near", "r")


class Opened:
    """Open a local agent's activation as the runtime does, for a backend to drive."""

    def __init__(self, runtime: Runtime, agent: str = "near", **options: Any) -> None:
        runtime._scope.bind()
        given: dict[str, Any] = {"settings": None, "client_tools": ()} | options
        self.runtime = runtime
        registry = runtime._scope.env.registry
        new = new_run(registry, agent, "hi", "t", None, given["settings"], given["client_tools"])
        self.act = runtime._scope.dispatch.activations.new(new, None, [])

    def request(self, **fields: Any) -> RootRequest:
        act = self.act
        return RootRequest(
            agent_id=act.agent.id, messages=tuple(act.history), identity=act.identity, local=act, **fields
        )

    async def execute(self, **fields: Any) -> BackendResult:
        try:
            return await LocalBackend().execute_root(self.request(**fields))
        finally:
            self.runtime._scope.bus.release("t")


async def reopened(runtime: Runtime) -> Opened:
    """Open a waiting run of thread `t` again."""
    opened = Opened.__new__(Opened)
    stored = await runtime.store.load("t")
    assert stored is not None
    assert stored.run is not None
    opened.runtime, opened.act = (
        runtime,
        await runtime._scope.dispatch.activations.reopen(stored, stored.run, "resume"),
    )
    return opened


def test_seed_1_1_local_backend_is_stateless() -> None:
    one, other = LocalBackend(), LocalBackend()
    assert one.capabilities == other.capabilities == Capabilities.full()
    assert vars(one) == vars(other) == {}


async def test_seed_1_2_root_needs_activation() -> None:
    seen: list[str] = []
    request = RootRequest(agent_id="near", messages=(), identity=IDENTITY, emit=seen.append)
    text = r"^execution failed: local root execution requires a phase runtime context$"
    with pytest.raises(ExecutionFailed, match=text):
        await LocalBackend().execute_root(request)
    assert seen == []


async def test_seed_1_3_decisions_are_applied_before_loop(scripted: Scripted) -> None:
    spy = Spy()
    agent = Agent("near", scripted(call("act"), "done"), tools=[spying(spy, "act", approval=True)])
    runtime = Runtime([agent])
    waiting = await runtime.run("near", "hi", thread="t")
    opened = await reopened(runtime)
    with pytest.raises(UnknownTicket):
        await LocalBackend().execute_root(opened.request(decisions=(Decision("no such ticket"),)))
    assert spy.ran == []
    result = await opened.execute(decisions=(waiting.tickets[0].approve(),))
    assert (spy.ran, result.response) == (["act"], "done")
    log = await runtime.store.events("t")
    kinds = [e.type for e in log if not isinstance(e, RunFinish)]
    assert kinds.index("tool_call_resumed") < kinds.index("tool_call_done")
    assert len([e for e in log if isinstance(e, ToolCallResumed)]) == 1


async def test_seed_1_4_root_has_options_of_its_run(scripted: Scripted) -> None:
    tool = ClientTool("locate", "Where?", {"type": "object"})
    hold = Hold()
    model = scripted(call("wait"), "done")
    runtime = Runtime([Agent("near", model, tools=[holding(hold)])])
    opened = Opened(runtime, settings=ModelSettings(temperature=0.5), client_tools=[tool])
    running = asyncio.create_task(opened.execute())
    await soon(hold.reached.wait())
    item = InputItem(id=new_id(), thread_id="t", message=user_message("and this"), policy="steer", agent_id="near")
    committed = await runtime.store.commit(Commit("t", inbox=[item]))
    opened.act.deliver([item], committed.inbox_head)
    hold.released.set()
    assert (await running).response == "done"
    first, second = model.requests
    assert first.settings.temperature == 0.5
    assert "locate" in [spec.name for spec in first.tools]
    assert [m.text for m in second.messages if m.role == "user"] == ["hi", "and this"]  # The inbox.
    assert (await runtime.runs.get(opened.act.identity.run_id)).status == "done"  # The store.


async def test_seed_1_4_cancel_event_and_live_decisions_reach_loop(scripted: Scripted) -> None:
    hold = Hold()
    runtime = Runtime([Agent("near", scripted(call("wait")), tools=[holding(hold)])])
    cancelled = asyncio.Event()
    running = asyncio.create_task(Opened(runtime).execute(control=Control(cancelled)))
    await soon(hold.reached.wait())
    cancelled.set()
    assert isinstance((await soon(running)).status, CancelledStatus)

    spy, hold = Spy(), Hold()
    tools = [holding(hold), spying(spy, "act", approval=True)]
    runtime = Runtime([Agent("near", scripted([call("wait"), call("act")], "done"), tools=tools)])
    opened, queue = Opened(runtime), asyncio.Queue[Decision]()
    running = asyncio.create_task(opened.execute(control=Control(decisions=queue)))
    await soon(hold.reached.wait())
    (ticket,) = opened.act.view.tickets.values()
    queue.put_nowait(ticket.approve())
    await asyncio.sleep(0)
    hold.released.set()
    assert (await soon(running)).response == "done"
    assert spy.ran == ["act"]


async def test_seed_1_5_root_result_fields(scripted: Scripted) -> None:
    opened = Opened(Runtime([Agent("near", scripted("hello"))]))
    result = await opened.execute()
    assert result == BackendResult(
        "near", Completed(), NaturalEnd(), None, "hello", BackendOutput("hello"), 1, opened.act.identity.run_id
    )
    empty = await Opened(Runtime([Agent("near", scripted(""))])).execute()
    assert (empty.response, empty.output.text, empty.output) == (None, None, BackendOutput())
    assert (result.status_reason, result.inbox, result.state) == (None, None, None)


@pytest.mark.parametrize(
    ("policy", "missing"),
    [(DelegatePolicy("durable"), "delegate_persistence")],
)
async def test_seed_1_6_delegate_policy(policy: DelegatePolicy, missing: str) -> None:
    request = DelegateRequest(agent_id="near", messages=(), identity=IDENTITY, policy=policy)
    with pytest.raises(ExecutionFailed, match=rf"^execution failed: agent 'near' .* not support: {missing}$"):
        await LocalBackend().execute_delegate(request)
    assert DelegatePolicy() == DelegatePolicy("ephemeral", False)


class One(StateKey[int, int]):
    """A key."""

    name = "same"


class Two(StateKey[str, str]):
    """Another key of the same name."""

    name = "same"


class Keeps(Plugin):
    """A plugin with the given key."""

    def __init__(self, key: Any) -> None:
        self.keys = [key]
        self.name = key.__name__


class Refuses(Plugin):
    """A plugin that fails to start."""

    async def activate(self, ctx: Step) -> None:
        raise ValueError("not today")


async def test_seed_1_9_setup_failure_is_reported() -> None:
    # Problems that are known before the run are reported then, and no run starts.
    with pytest.raises(ConfigurationError, match="'same' has two definitions: One and Two"):
        Runtime([Agent("near", FunctionModel(lambda _: "hi"), plugins=[Keeps(One), Keeps(Two)])])
    runtime = Runtime([Agent("near", FunctionModel(lambda _: "hi"), plugins=[Refuses()])])
    result = await Opened(runtime).execute()
    assert result.status == FailedStatus("plugin 'Refuses' failed in activate: ValueError: not today")


@pytest.mark.parametrize(
    ("termination", "status"),
    [
        (NaturalEnd(), Completed()),
        (EndRequested("done"), Completed()),
        (Cancelled("enough"), CancelledStatus()),
        (Stopped("max_steps"), FailedStatus("stopped: max_steps")),
        (Stopped("max_steps", "50"), FailedStatus("stopped: max_steps: 50")),
        (Blocked("not allowed"), FailedStatus("blocked: not allowed")),
        (None, Suspended(None)),
        (Failed("ModelError", "down"), FailedStatus("down")),
    ],
)
def test_seed_1_16_status_of_termination(termination: Termination | None, status: BackendStatus) -> None:
    assert status_of(termination) == status


async def test_seed_1_16_waiting_run_is_suspended(scripted: Scripted) -> None:
    agent = Agent("near", scripted(call("act")), tools=[spying(Spy(), "act", approval=True)])
    result = await Opened(Runtime([agent])).execute()
    assert (result.status, result.termination) == (Suspended(), None)


async def test_seed_1_17_loop_errors_are_passed_through() -> None:
    def down(request: Any) -> str:
        raise ModelError("the vendor is down")

    result = await Opened(Runtime([Agent("near", FunctionModel(down))])).execute()
    assert result.status == FailedStatus("the vendor is down")
    assert result.termination == Failed("ModelError", "the vendor is down")
    runtime = Runtime([Agent("near", FunctionModel(down))], store=FailingStore(lambda _: True))
    with pytest.raises(StoreUnavailable, match=r"^the disk is gone$"):
        await Opened(runtime).execute()
