"""Seed 001, rows 1.1 to 1.6, 1.9, 1.16 and 1.17: the loop as a backend."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, Spy, holding, soon, spying
from wakeful import Agent, ClientTool, FunctionModel, ModelSettings, Plugin, Runtime, StateKey, Step, call
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
from wakeful.backends._local import status_of
from wakeful.errors import ConfigurationError, ExecutionFailed, ModelError, StoreUnavailable, UnknownTicket
from wakeful.stores import Commit, InboxItem
from wakeful.types.events import RunFinish, ToolCallResumed
from wakeful.types.ids import new_id
from wakeful.types.messages import user_message
from wakeful.types.runs import (
    BehaviourRequested,
    Blocked,
    Cancelled,
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
    """A local agent's activation, opened as the runtime opens it and left to a backend to drive."""

    def __init__(self, runtime: Runtime, agent: str = "near", **options: Any) -> None:
        runtime._bind()
        given: dict[str, Any] = {"settings": None, "client_tools": ()} | options
        self.runtime = runtime
        new = runtime._new(agent, "hi", "t", None, given["settings"], given["client_tools"], None, None)
        self.act = runtime._dispatch.opener.new(new, None, [])

    def request(self, **fields: Any) -> RootRequest:
        act = self.act
        return RootRequest(
            agent_id=act.agent.id, messages=tuple(act.history), identity=act.identity, local=act, **fields
        )

    async def execute(self, **fields: Any) -> BackendResult:
        try:
            return await LocalBackend().execute_root(self.request(**fields))
        finally:
            self.runtime._bus.release("t")


async def reopened(runtime: Runtime) -> Opened:
    """A waiting run of thread `t`, opened again."""
    opened = Opened.__new__(Opened)
    stored = await runtime._env.store.load("t")
    assert stored is not None
    assert stored.run is not None
    opened.runtime, opened.act = runtime, await runtime._dispatch.opener.reopen(stored, stored.run, "resume")
    return opened


def test_seed_1_1_one_local_backend_is_as_good_as_another() -> None:
    one, other = LocalBackend(), LocalBackend()
    assert one.capabilities == other.capabilities == Capabilities.full()
    assert vars(one) == vars(other) == {}


async def test_seed_1_2_a_root_needs_its_activation() -> None:
    seen: list[str] = []
    request = RootRequest(agent_id="near", messages=(), identity=IDENTITY, emit=seen.append)
    text = r"^execution failed: local root execution requires a phase runtime context$"
    with pytest.raises(ExecutionFailed, match=text):
        await LocalBackend().execute_root(request)
    assert seen == []


async def test_seed_1_3_decisions_are_applied_before_the_loop(scripted: Scripted) -> None:
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
    log = await runtime._env.store.events("t")
    kinds = [e.type for e in log if not isinstance(e, RunFinish)]
    assert kinds.index("tool_call_resumed") < kinds.index("tool_call_done")
    assert len([e for e in log if isinstance(e, ToolCallResumed)]) == 1


async def test_seed_1_4_a_root_has_all_that_its_run_has(scripted: Scripted) -> None:
    tool = ClientTool("locate", "Where?", {"type": "object"})
    hold = Hold()
    model = scripted(call("wait"), "done")
    runtime = Runtime([Agent("near", model, tools=[holding(hold)])])
    opened = Opened(runtime, settings=ModelSettings(temperature=0.5), client_tools=[tool])
    running = asyncio.create_task(opened.execute())
    await soon(hold.reached.wait())
    item = InboxItem(
        id=new_id(), thread_id="t", kind="input", message=user_message("and this"), policy="steer", agent_id="near"
    )
    committed = await runtime._env.store.commit(Commit("t", inbox=[item]))
    opened.act.deliver([item], committed.inbox_head)
    hold.released.set()
    assert (await running).response == "done"
    first, second = model.requests
    assert first.settings.temperature == 0.5
    assert "locate" in [spec.name for spec in first.tools]
    assert [m.text for m in second.messages if m.role == "user"] == ["hi", "and this"]  # The inbox.
    assert (await runtime.get_run(opened.act.identity.run_id)).status == "done"  # The store.


async def test_seed_1_4_the_cancel_event_and_live_decisions_reach_the_loop(scripted: Scripted) -> None:
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


async def test_seed_1_5_what_a_roots_result_looks_like(scripted: Scripted) -> None:
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
async def test_seed_1_6_the_one_policy_of_a_delegate(policy: DelegatePolicy, missing: str) -> None:
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
    """Brings the key it is given."""

    def __init__(self, key: Any) -> None:
        self.keys = [key]
        self.name = key.__name__


class Refuses(Plugin):
    """Can't begin."""

    async def activate(self, ctx: Step) -> None:
        raise ValueError("not today")


async def test_seed_1_9_what_fails_while_setting_up_says_so() -> None:
    # What can be found before there is a run is found then, and nothing is begun.
    with pytest.raises(ConfigurationError, match="'same' has two definitions: One and Two"):
        Runtime([Agent("near", FunctionModel(lambda _: "hi"), plugins=[Keeps(One), Keeps(Two)])])
    runtime = Runtime([Agent("near", FunctionModel(lambda _: "hi"), plugins=[Refuses()])])
    result = await Opened(runtime).execute()
    assert result.status == FailedStatus("plugin 'Refuses' failed in activate: ValueError: not today")


@pytest.mark.parametrize(
    ("termination", "status"),
    [
        (NaturalEnd(), Completed()),
        (BehaviourRequested("done"), Completed()),
        (Cancelled("enough"), CancelledStatus()),
        (Stopped("max_steps"), FailedStatus("stopped: max_steps")),
        (Stopped("max_steps", "50"), FailedStatus("stopped: max_steps: 50")),
        (Blocked("not allowed"), FailedStatus("blocked: not allowed")),
        (None, Suspended(None)),
        (Failed("ModelError", "down"), FailedStatus("down")),
    ],
)
def test_seed_1_16_what_a_termination_means(termination: Termination | None, status: BackendStatus) -> None:
    assert status_of(termination) == status


async def test_seed_1_16_a_run_that_waits_is_suspended(scripted: Scripted) -> None:
    agent = Agent("near", scripted(call("act")), tools=[spying(Spy(), "act", approval=True)])
    result = await Opened(Runtime([agent])).execute()
    assert (result.status, result.termination) == (Suspended(), None)


async def test_seed_1_17_errors_of_the_loop_are_shown_as_they_are() -> None:
    def down(request: Any) -> str:
        raise ModelError("the vendor is down")

    result = await Opened(Runtime([Agent("near", FunctionModel(down))])).execute()
    assert result.status == FailedStatus("the vendor is down")
    assert result.termination == Failed("ModelError", "the vendor is down")
    runtime = Runtime([Agent("near", FunctionModel(down))], store=FailingStore(lambda _: True))
    with pytest.raises(StoreUnavailable, match=r"^the disk is gone$"):
        await Opened(runtime).execute()
