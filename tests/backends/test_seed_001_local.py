"""Seed 001, rows 1.1 to 1.6, 1.9, 1.16 and 1.17: agents on the local backend, as users run them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from loop.helpers import Hold, Scripted, Spy, holding, soon, spying, until
from wakeful import (
    Agent,
    ClientTool,
    Delegate,
    FunctionModel,
    Limits,
    ModelSettings,
    Plugin,
    Runtime,
    StateKey,
    ToolContext,
    call,
    tool,
)
from wakeful.backends import (
    BackendConfig,
    BackendFactory,
    Capabilities,
    DelegatePolicy,
    DelegateRequest,
    ExecutionBackend,
    LocalBackend,
    RootRequest,
)
from wakeful.errors import ConfigurationError, ExecutionFailed, ModelError, StoreUnavailable, UnknownTicket
from wakeful.plugins import GateAnswer, GateTool, Step
from wakeful.tools import ChildResult
from wakeful.types.events import ToolCallResumed
from wakeful.types.runs import Failed, Identity, NaturalEnd
from wakeful.types.tickets import Decision

from .helpers import FailingStore
from .helpers import Scripted as Far

IDENTITY = Identity("r", "t", "near", "r")


def near(model: Any, **fields: Any) -> Agent:
    """A local agent that names its backend."""
    return Agent("near", model, backend=LocalBackend(), **fields)


async def test_seed_1_1_local_backend_is_stateless(scripted: Scripted) -> None:
    one, other = LocalBackend(), LocalBackend()
    assert one.capabilities == other.capabilities == Capabilities.full()
    assert vars(one) == vars(other) == {}
    agents = [Agent("one", scripted("1"), backend=one), Agent("two", scripted("2"), backend=one)]
    runtime = Runtime([*agents, Agent("none", scripted("3"))])
    results = [await runtime.run(agent, "hi", thread=agent) for agent in ("one", "two", "none")]
    assert [result.text for result in results] == ["1", "2", "3"]
    logs = [[event.type for event in await runtime.store.events(agent)] for agent in ("one", "two", "none")]
    assert logs[0] == logs[1] == logs[2]
    with pytest.raises(ConfigurationError, match="its backend is the local loop, which needs a model"):
        Runtime([Agent("near", backend=LocalBackend())])


class Locals(BackendFactory):
    """A factory for the local backend."""

    name = "local"

    def build(self, endpoint: Any) -> ExecutionBackend:
        return LocalBackend()


async def test_local_backend_may_come_from_a_factory(scripted: Scripted) -> None:
    agent = Agent("near", scripted("here"), backend=BackendConfig("local"))
    assert (await Runtime([agent], backends=[Locals()]).run("near", "hi")).text == "here"


async def test_seed_1_2_root_needs_activation() -> None:
    """Only a runtime has the loop's context: a direct call is refused, and nothing is shown."""
    request = RootRequest(agent_id="near", messages=(), identity=IDENTITY)
    text = r"^execution failed: local root execution requires a phase runtime context"
    with pytest.raises(ExecutionFailed, match=text):
        await LocalBackend().execute_root(request)
    child = DelegateRequest(agent_id="near", messages=(), identity=IDENTITY)
    with pytest.raises(ExecutionFailed, match=r"^execution failed: local delegated execution requires"):
        await LocalBackend().execute_delegate(child)


async def test_seed_1_3_decisions_are_applied_before_loop(scripted: Scripted) -> None:
    spy = Spy()
    model = scripted(call("act"), "done")
    runtime = Runtime([near(model, tools=[spying(spy, "act", approval=True)])])
    waiting = await runtime.run("near", "hi", thread="t")
    with pytest.raises(UnknownTicket):
        await runtime.resume(waiting.run_id, Decision("no such ticket"))
    assert spy.ran == []
    result = await runtime.resume(waiting.run_id, waiting.tickets[0].approve())
    assert (spy.ran, result.text) == (["act"], "done")
    log = await runtime.store.events("t")
    kinds = [event.type for event in log]
    last_start = len(kinds) - 1 - kinds[::-1].index("run_start")
    assert last_start < kinds.index("tool_call_resumed") < kinds.index("tool_call_done")
    assert kinds.index("tool_call_resumed") < kinds.index("step_start", last_start)  # Before the next step.
    assert len([e for e in log if isinstance(e, ToolCallResumed)]) == 1


async def test_seed_1_4_root_has_options_of_its_run(scripted: Scripted) -> None:
    """The store, overrides, client tools, the inbox and the history of the thread reach the loop."""
    client = ClientTool("locate", "Where?", {"type": "object"})
    hold = Hold()
    model = scripted("hello", call("wait"), "done")
    runtime = Runtime([near(model, tools=[holding(hold)])])
    await runtime.run("near", "earlier", thread="t")
    settings = ModelSettings(temperature=0.5)
    running = asyncio.create_task(runtime.run("near", "hi", thread="t", settings=settings, client_tools=[client]))
    await soon(hold.reached.wait())
    await runtime.send("t", "and this", policy="steer")
    hold.released.set()
    result = await soon(running)
    assert result.text == "done"
    _, first, second = model.requests
    assert first.settings.temperature == second.settings.temperature == 0.5
    assert "locate" in [spec.name for spec in first.tools]
    assert [m.text for m in first.messages] == ["earlier", "hello", "hi"]  # The history, once.
    assert [m.text for m in second.messages if m.role == "user"] == ["earlier", "hi", "and this"]  # The inbox.
    assert (await runtime.runs.get(result.run_id)).status == "done"  # The store.
    assert [m.text for m in await runtime.store.messages("t")][-1] == "done"


async def test_seed_1_4_cancellation_reaches_loop(scripted: Scripted) -> None:
    hold = Hold()
    runtime = Runtime([near(scripted(call("wait")), tools=[holding(hold)])])
    handle = await runtime.start("near", "hi", thread="t")
    await soon(hold.reached.wait())
    await runtime.cancel(handle.run_id, "enough")
    result = await soon(handle.result())
    assert str(result.error) == "cancelled: enough"


async def test_seed_1_4_live_decision_reaches_loop(scripted: Scripted) -> None:
    """A decision is applied while a sibling call runs."""
    spy, hold = Spy(), Hold()
    tools = [holding(hold), spying(spy, "act", approval=True)]
    runtime = Runtime([near(scripted([call("wait"), call("act")], "done"), tools=tools)])
    handle = await runtime.start("near", "hi", thread="t")
    await soon(hold.reached.wait())
    (ticket,) = await runtime.tickets.list(thread="t")
    answering = asyncio.create_task(runtime.resume(handle.run_id, ticket.approve()))
    await soon(until(lambda: spy.ran))
    hold.released.set()
    assert (await soon(handle.result())).text == (await soon(answering)).text == "done"
    assert spy.ran == ["act"]


async def test_seed_1_5_root_result_fields(scripted: Scripted) -> None:
    """`inbox` and `state` of the reference's result are the thread's: `runtime.mail`, `runtime.threads.state`."""
    runtime = Runtime([near(scripted("hello", ""))])
    handle = await runtime.start("near", "hi")
    result = await handle.result()
    assert (result.run_id, result.agent_id, result.steps) == (handle.run_id, "near", 1)
    assert (result.text, result.termination) == ("hello", NaturalEnd())
    assert (result.status_reason, result.artifacts, result.raw) == ("", (), None)
    thread = (await runtime.runs.get(handle.run_id)).thread_id
    empty = await runtime.run("near", "again", thread=thread)
    assert (empty.text, empty.termination) == ("", NaturalEnd())
    assert [m.text for m in await runtime.threads.messages(thread)] == ["hi", "hello", "again"]


async def test_seed_1_6_delegate_policy(scripted: Scripted) -> None:
    """The default is ephemeral without continuation. A local agent also runs durable children; a backend that
    doesn't declare them is refused when the runtime is made, and again before it is called."""
    assert DelegatePolicy() == DelegatePolicy("ephemeral", False)
    durable = [Delegate("near", durable=True)]
    model = scripted(call("agent_run_near", prompt="go"), "led")
    runtime = Runtime([Agent("lead", model, delegates=durable), near(scripted("from near"))])
    assert (await runtime.run("lead", "hi", thread="t")).text == "led"
    (task,) = await runtime.tasks.list("t")
    assert (task.durable, task.remote, task.status) == (True, False, "completed")

    far = Far("never")
    problem = r"agent 'lead': delegate 'near': its backend does not support: delegate_persistence \(durable\)"
    with pytest.raises(ConfigurationError, match=problem):
        Runtime([Agent("lead", model, delegates=durable), Agent("near", backend=far)])
    seen: list[ChildResult] = []

    @tool
    async def lead(ctx: ToolContext) -> str:
        """Ask for a durable child."""
        seen.append(await ctx.run_agent("near", "go", durable=True))
        return "asked"

    runtime = Runtime([Agent("lead", scripted(call("lead"), "led"), tools=[lead]), Agent("near", backend=far)])
    assert (await runtime.run("lead", "hi")).text == "led"
    assert (seen[0].status, seen[0].error) == (
        "failed",
        "agent 'near' backend does not support: delegate_persistence",
    )
    assert far.requests == []


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
        Runtime([near(FunctionModel(lambda _: "hi"), plugins=[Keeps(One), Keeps(Two)])])
    runtime = Runtime([near(FunctionModel(lambda _: "hi"), plugins=[Refuses()], expose_errors=True)])
    result = await runtime.run("near", "hi", check=False)
    assert result.termination == Failed("HookFailed", "plugin 'Refuses' failed in activate: ValueError: not today")


class Strict(Plugin):
    """Refuses every call by a rule that ends the run."""

    async def gate_tool(self, ctx: GateTool) -> GateAnswer:
        return ctx.block("not allowed", ends_run=True)


@tool
async def work(ctx: ToolContext) -> str:
    """Work."""
    return "worked"


@tool
async def enough(ctx: ToolContext) -> str:
    """End the run."""
    ctx.end_run("done")
    return "ended"


def broken(request: Any) -> str:
    raise ModelError("the vendor is down")


ENDINGS: dict[str, tuple[Callable[[Scripted], Agent], str, str | None]] = {
    "natural": (lambda scripted: near(scripted("fine")), "completed", None),
    "behaviour": (lambda scripted: near(scripted(call("enough")), tools=[enough]), "completed", None),
    "stopped": (
        lambda scripted: near(scripted(call("work")), tools=[work], limits=Limits(steps=1)),
        "failed",
        "stopped: max_steps",
    ),
    "blocked": (
        lambda scripted: near(scripted(call("work")), tools=[work], plugins=[Strict()]),
        "failed",
        "blocked: not allowed",
    ),
    "error": (lambda scripted: near(FunctionModel(broken)), "failed", "the vendor is down"),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_seed_1_16_status_of_termination(ending: str, scripted: Scripted) -> None:
    """The caller of a child is told its status and error."""
    make, status, error = ENDINGS[ending]
    seen: list[ChildResult] = []

    @tool
    async def lead(ctx: ToolContext) -> str:
        """Run the child."""
        seen.append(await ctx.run_agent("near", "go"))
        return "led"

    runtime = Runtime([Agent("lead", scripted(call("lead"), "done"), tools=[lead]), make(scripted)])
    assert (await runtime.run("lead", "hi")).text == "done"
    (child,) = seen
    assert child.status == status
    assert (child.error or "").startswith(error or "")
    assert (child.error is None) is (error is None)


async def test_seed_1_16_cancelled_child_is_cancelled(scripted: Scripted) -> None:
    hold = Hold()
    seen: list[ChildResult] = []

    @tool
    async def lead(ctx: ToolContext) -> str:
        """Run the child."""
        seen.append(await ctx.run_agent("near", "go"))
        return "led"

    child = near(scripted(call("wait")), tools=[holding(hold)])
    runtime = Runtime([Agent("lead", scripted(call("lead"), "done"), tools=[lead]), child])
    running = asyncio.create_task(runtime.run("lead", "hi", thread="t"))
    await soon(hold.reached.wait())
    (task,) = await runtime.tasks.list("t")
    await runtime.tasks.cancel(task.id)
    assert (await soon(running)).text == "done"
    assert seen[0].status == "cancelled"


async def test_seed_1_16_waiting_run_is_suspended(scripted: Scripted) -> None:
    child = near(scripted(call("act"), "acted"), tools=[spying(Spy(), "act", approval=True)])
    lead = Agent("lead", scripted(call("agent_run_near", prompt="go"), "led"), delegates=["near"])
    runtime = Runtime([lead, child])
    waiting = await runtime.run("lead", "hi")
    assert (waiting.status, waiting.termination, len(waiting.tickets)) == ("waiting", None, 1)
    (ticket,) = waiting.tickets
    assert (await runtime.resume(waiting.run_id, ticket.approve())).text == "led"


async def test_seed_1_17_loop_errors_are_passed_through() -> None:
    result = await Runtime([near(FunctionModel(broken))]).run("near", "hi", check=False)
    assert result.termination == Failed("ModelError", "the vendor is down")
    runtime = Runtime([near(FunctionModel(broken))], store=FailingStore(lambda _: True))
    with pytest.raises(StoreUnavailable, match=r"^the disk is gone$"):
        await runtime.run("near", "hi")
