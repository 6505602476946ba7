"""Seed 002, rows 2.1 to 2.21: the contract's types, checks, texts and tables."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from loop.helpers import Scripted as Models
from wakeful import (
    Agent,
    ClientTool,
    ConfigurationError,
    MemoryStore,
    ModelSettings,
    Runtime,
    ToolContext,
    call,
    tool,
)
from wakeful.backends import (
    AbortRequest,
    BackendConfig,
    BackendFactory,
    BackendOutput,
    BackendResult,
    BackendStatus,
    CancelledStatus,
    Capabilities,
    Completed,
    Control,
    DelegatePolicy,
    DelegateRequest,
    ExecutionBackend,
    FailedStatus,
    LocalBackend,
    Parent,
    Question,
    RootRequest,
    Suspended,
    TimedOut,
    WaitingAuth,
    WaitingInput,
    can_abort,
    check_root,
    durable_reason,
    durable_status,
    is_cooperative,
    label,
)
from wakeful.errors import AgentNotFound, BackendError, ExecutionFailed, InvalidConfig, ModelError, RemoteError
from wakeful.types import Artifact
from wakeful.types.requests import ToolSpec
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

from .helpers import REMOTE, Scripted, serving

NOTHING = Capabilities.remote_stateless_text()
IDENTITY = Identity("r", "t", "far", "r")


def root(**fields: Any) -> RootRequest:
    return RootRequest(agent_id="far", messages=(), identity=IDENTITY, **fields)


def delegate(**policy: Any) -> DelegateRequest:
    return DelegateRequest(agent_id="far", messages=(), identity=IDENTITY, policy=DelegatePolicy(**policy))


def test_seed_2_1_parent_fields_are_optional() -> None:
    assert Parent() == Parent(None, None, None)
    parent = Parent("r", "t", "c")
    assert (parent.run_id, parent.thread_id, parent.call_id) == ("r", "t", "c")


async def no_answer(question: Question) -> Any:
    """A decision channel."""


async def test_seed_2_2_control_is_empty_by_default() -> None:
    assert Control() == Control(None, None, None)
    event, channel = asyncio.Event(), no_answer
    control = Control(event, channel)
    assert (control.cancelled, control.ask, control.receive) == (event, channel, None)


@pytest.mark.parametrize(
    ("kind", "cooperative", "abort"),
    [
        ("none", False, False),
        ("cooperative", True, False),
        ("abort", False, True),
        ("cooperative_and_abort", True, True),
    ],
)
def test_seed_2_3_cancellation_kinds(kind: Any, cooperative: bool, abort: bool) -> None:
    assert (is_cooperative(kind), can_abort(kind)) == (cooperative, abort)


def test_seed_2_4_full_capabilities_are_the_default() -> None:
    full = Capabilities(
        cancellation="cooperative",
        decisions=True,
        overrides=True,
        frontend_tools=True,
        continuation="in_process",
        waits="input_and_auth",
        transcript="full",
        output="text_and_artifacts",
        persistence=("ephemeral", "durable"),
        steering=True,
    )
    assert Capabilities() == Capabilities.full() == full == LocalBackend().capabilities


def test_seed_2_5_bare_backend_is_stateless_text() -> None:
    assert (
        Capabilities(
            cancellation="none",
            decisions=False,
            overrides=False,
            frontend_tools=False,
            continuation="none",
            waits="none",
            transcript="single_prompt",
            output="text",
            persistence=("ephemeral",),
            steering=False,
        )
        == NOTHING
    )
    assert ExecutionBackend().capabilities == NOTHING


def test_seed_2_6_decisions_are_needed_by_list_or_channel() -> None:
    assert NOTHING.unsupported_root(root(decisions=(Decision("k"),))) == ["decisions"]
    assert NOTHING.unsupported_root(root(control=Control(ask=no_answer))) == ["decisions"]
    assert NOTHING.unsupported_root(root(control=Control(asyncio.Event()))) == []
    assert Capabilities.full().unsupported_root(root(decisions=(Decision("k"),))) == []


def test_seed_2_7_root_request_needs() -> None:
    tools = (ToolSpec("locate", "", {}),)
    asked = {"overrides": ModelSettings(), "frontend_tools": tools, "is_continuation": True}
    found = {name: NOTHING.unsupported_root(root(**{name: value})) for name, value in asked.items()}
    assert found == {
        "overrides": ["overrides"],
        "frontend_tools": ["frontend_tools"],
        "is_continuation": ["continuation"],
    }
    assert NOTHING.unsupported_root(root()) == []
    for continuation in ("in_process", "remote"):
        able = msgspec.structs.replace(NOTHING, continuation=continuation)
        assert able.unsupported_root(root(is_continuation=True)) == []


def test_seed_2_8_mismatches_have_fixed_order() -> None:
    asked = root(
        is_continuation=True,
        frontend_tools=(ToolSpec("locate", "", {}),),
        overrides=ModelSettings(),
        decisions=(Decision("k"),),
    )
    with pytest.raises(ExecutionFailed, match=r"decisions, overrides, frontend_tools, continuation$"):
        check_root(NOTHING, asked)


def test_seed_2_9_delegate_request_needs() -> None:
    assert NOTHING.unsupported_delegate(delegate()) == []
    assert NOTHING.unsupported_delegate(delegate(persistence="durable")) == ["delegate_persistence"]
    assert NOTHING.unsupported_delegate(delegate(continuation=True)) == ["continuation"]
    assert NOTHING.unsupported_delegate(delegate(persistence="durable", continuation=True)) == [
        "delegate_persistence",
        "continuation",
    ]
    able = msgspec.structs.replace(NOTHING, persistence=("ephemeral", "durable"), continuation="remote")
    assert able.unsupported_delegate(delegate(persistence="durable", continuation=True)) == []
    assert (delegate(continuation=True).is_continuation, delegate().is_continuation) == (True, False)


@pytest.mark.parametrize("able", [False, True])
async def test_seed_2_9_continued_delegate_needs_continuation(able: bool, scripted: Models) -> None:
    """A child asks; its agent has another backend by the time the answer arrives."""
    asks = Scripted(BackendResult("far", WaitingInput("which?")), capabilities=REMOTE)
    answers = Scripted("thanks", capabilities=REMOTE if able else NOTHING)
    lead = Agent("lead", scripted(call("agent_run_far", prompt="go"), "led"), delegates=["far"])
    store = MemoryStore()
    waiting = await Runtime([lead, Agent("far", backend=asks)], store=store).run("lead", "hi", thread="t")
    assert asks.delegated[0].policy == DelegatePolicy("ephemeral", False)
    runtime = Runtime([lead, Agent("far", backend=answers)], store=store)
    assert (await runtime.resume(waiting.run_id, waiting.tickets[0].answer("red"))).text == "led"
    (task,) = await runtime.tasks.list("t")
    if able:
        assert [request.policy for request in answers.delegated] == [DelegatePolicy("ephemeral", True)]
        assert task.status == "completed"
    else:
        assert answers.requests == []
        assert task.error == "agent 'far' backend does not support: continuation"


async def test_seed_2_10_refusal_names_agent_and_missing_capabilities() -> None:
    backend = Scripted("never")
    locate = ClientTool("locate", "Where?", {"type": "object"})
    result = await serving(backend).run(
        "far", "hi", settings=ModelSettings(temperature=1), client_tools=[locate], check=False
    )
    text = "agent 'far' backend does not support: overrides, frontend_tools"
    assert result.termination == Failed("ExecutionFailed", text)
    assert backend.requests == []
    with pytest.raises(ExecutionFailed) as refused:
        check_root(NOTHING, root(overrides=ModelSettings()))
    assert str(refused.value) == "execution failed: agent 'far' backend does not support: overrides"


async def test_seed_2_10_refused_delegate_is_not_called(scripted: Models) -> None:
    backend = Scripted("never")
    errors: list[str | None] = []

    @tool
    async def delegate_durably(ctx: ToolContext) -> str:
        """Start a durable child, which the backend does not declare."""
        errors.append((await ctx.run_agent("far", "go", durable=True)).error)
        return "asked"

    lead = Agent("lead", scripted(call("delegate_durably"), "led"), tools=[delegate_durably])
    runtime = Runtime([lead, Agent("far", backend=backend)])
    assert (await runtime.run("lead", "hi")).text == "led"
    assert errors == ["agent 'far' backend does not support: delegate_persistence"]
    assert backend.requests == []


async def test_seed_2_11_plan_is_routed_to_its_backend(scripted: Models) -> None:
    far = Scripted("from afar", "from afar again")
    local = Agent("near", model=scripted("from here"), backend=LocalBackend())
    lead = Agent("lead", scripted(call("agent_run_far", prompt="go"), "led"), delegates=["far"])
    runtime = Runtime([Agent("far", backend=far), local, lead])
    assert (await runtime.run("far", "hi")).text == "from afar"
    assert (await runtime.run("near", "hi")).text == "from here"
    assert (await runtime.run("lead", "hi")).text == "led"
    assert [type(request) for request in far.requests] == [RootRequest, DelegateRequest]


async def test_seed_2_12_bare_backend_refuses_execution() -> None:
    bare = ExecutionBackend()
    with pytest.raises(ExecutionFailed, match=r"^execution failed: backend does not support root execution$"):
        await bare.execute_root(root())
    with pytest.raises(ExecutionFailed, match=r"^execution failed: backend does not support delegated execution$"):
        await bare.execute_delegate(delegate())
    assert await bare.abort(AbortRequest(agent_id="far", identity=IDENTITY)) is None  # type: ignore[func-returns-value]


class Picky(BackendFactory):
    """A factory that needs a URL."""

    name = "picky"
    built = 0

    def build(self, endpoint: Mapping[str, Any]) -> ExecutionBackend:
        if "url" not in endpoint:
            raise InvalidConfig("picky wants a url")
        self.built += 1
        return Scripted("built")


async def test_seed_2_13_factory_validates_by_building() -> None:
    """A runtime builds each backend once, when it is made; there is no other validation."""
    factory = Picky()
    runtime = Runtime([Agent("far", backend=BackendConfig("picky", {"url": "x"}))], backends=[factory])
    assert (await runtime.run("far", "hi")).text == "built"
    assert factory.built == 1
    with pytest.raises(ConfigurationError) as bad:
        Runtime([Agent("far", backend=BackendConfig("picky"))], backends=[factory])
    assert bad.value.problems == ("agent 'far': backend 'picky': picky wants a url",)
    assert str(InvalidConfig("picky wants a url")) == "picky wants a url"


async def test_seed_2_14_error_texts() -> None:
    errors = [AgentNotFound("x"), ExecutionFailed("x"), RemoteError("x")]
    assert [str(error) for error in errors] == ["agent not found: x", "execution failed: x", "remote error: x"]
    assert all(isinstance(error, BackendError) and error.detail == "x" for error in errors)
    # An error of the loop is passed through.
    result = await serving(Scripted(ModelError("the model is down"))).run("far", "hi", check=False)
    assert result.termination == Failed("ModelError", "the model is down")


def test_seed_2_15_output_omits_empty_fields() -> None:
    assert msgspec.json.encode(BackendOutput()) == b"{}"
    output = BackendOutput("hi", (Artifact({"a": 1}, name="a"),), {"raw": True})
    data = msgspec.json.encode(output)
    assert data == b'{"text":"hi","artifacts":[{"content":{"a":1},"name":"a"}],"raw":{"raw":true}}'
    assert msgspec.json.decode(data, type=BackendOutput) == output
    assert (output.text_or("no"), BackendOutput().text_or("yes"), BackendOutput().text_or(None)) == (
        "hi",
        "yes",
        None,
    )


def test_seed_2_16_artifact_needs_only_content() -> None:
    assert Artifact("x") == Artifact("x", None, None, None)
    with pytest.raises(TypeError):
        Artifact()  # type: ignore[call-arg]
    with pytest.raises(msgspec.ValidationError, match="content"):
        msgspec.json.decode(b'{"id":"a"}', type=Artifact)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (Completed(), "completed"),
        (WaitingInput(), "waiting_input"),
        (WaitingInput("which?"), "waiting_input: which?"),
        (WaitingAuth(), "waiting_auth"),
        (WaitingAuth("log in"), "waiting_auth: log in"),
        (Suspended(), "suspended"),
        (Suspended("later"), "suspended: later"),
        (FailedStatus("boom"), "failed: boom"),
        (CancelledStatus(), "cancelled"),
        (TimedOut(), "timeout"),
    ],
)
def test_seed_2_17_status_texts(status: BackendStatus, text: str) -> None:
    assert str(status) == text


MEANINGS: list[tuple[BackendStatus, Termination | None, str, str, str]] = [
    (WaitingInput(), None, "waiting", "input_required", "waiting_input"),
    (WaitingAuth(), None, "waiting", "auth_required", "waiting_auth"),
    (Suspended(), None, "waiting", "suspended", "suspended"),
    (FailedStatus("m"), Failed("E", "m"), "done", "error", "failed"),
    (CancelledStatus(), Cancelled(), "done", "cancelled", "cancelled"),
    (TimedOut(), Failed("E", "m"), "done", "timeout", "timeout"),
    (Completed(), NaturalEnd(), "done", "natural_end", "done"),
    (Completed(), EndRequested("x"), "done", "end_requested", "done"),
    (Completed(), Stopped("max_steps"), "done", "stopped", "done"),
    (Completed(), Blocked("no"), "done", "blocked", "done"),
    (Completed(), Cancelled(), "done", "cancelled", "done"),
    (Completed(), Failed("E", "m"), "done", "error", "done"),
    (Completed(), None, "waiting", "suspended", "waiting"),
]


@pytest.mark.parametrize(("status", "termination", "durable"), [(s, t, d) for s, t, d, _, _ in MEANINGS])
def test_seed_2_18_durable_status(status: BackendStatus, termination: Termination | None, durable: str) -> None:
    assert durable_status(status, termination) == durable


@pytest.mark.parametrize(("status", "termination", "reason"), [(s, t, r) for s, t, _, r, _ in MEANINGS])
def test_seed_2_19_durable_reason(status: BackendStatus, termination: Termination | None, reason: str) -> None:
    assert durable_reason(status, termination) == reason


@pytest.mark.parametrize(("status", "termination", "shown"), [(s, t, x) for s, t, _, _, x in MEANINGS])
def test_seed_2_20_result_status_label(status: BackendStatus, termination: Termination | None, shown: str) -> None:
    assert label(status, termination) == shown


async def test_seed_2_21_status_wins_over_termination() -> None:
    assert durable_status(WaitingInput(), Failed("E", "m")) == "waiting"
    assert durable_reason(TimedOut(), Failed("E", "m")) == "timeout"
    able = msgspec.structs.replace(NOTHING, waits="input", continuation="remote")
    backend = Scripted(
        BackendResult("far", WaitingInput("which?"), Failed("E", "m")),
        BackendResult("far", TimedOut(), Failed("E", "too slow")),
        capabilities=able,
    )
    runtime = serving(backend)
    assert (await runtime.run("far", "hi")).status == "waiting"
    late = await runtime.run("far", "hi", check=False)
    assert (late.status, late.status_reason, late.termination) == ("done", "timeout", Failed("E", "too slow"))
