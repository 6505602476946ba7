"""Wrong calls: one clear error of ours, and no partial effect."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from loop.helpers import Spy, spying
from wakeful import (
    Agent,
    ClientTool,
    ConfigurationError,
    Limits,
    ModelError,
    ModelSettings,
    Plugin,
    RateLimit,
    Retention,
    Runtime,
    ScriptedModel,
    StateKey,
    Text,
    ToolContext,
    WallTime,
    call,
    tool,
)
from wakeful.errors import InvalidDecision, InvalidInput, RuntimeClosed, UsageError
from wakeful.messaging import DeliveryPolicy
from wakeful.models import FunctionModel
from wakeful.types import Failed, NaturalEnd


def echo() -> Agent:
    """An agent that says what it was told."""
    return Agent("agent", model=FunctionModel(lambda request: request.messages[-1].text or "nothing"))


@pytest.mark.parametrize("agents", [None, "abc", 3, {"a": echo()}, echo(), [None], [Agent(3, model="x")]])  # type: ignore[arg-type]
def test_runtime_checks_its_agents(agents: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"list of agents|takes agents|id is a text"):
        Runtime(agents)


@pytest.mark.parametrize(
    "options",
    [
        {"store": 1},
        {"store": "file:app.db"},
        {"store": "postgres:user@host/app"},
        {"store": "~/app.db"},
        {"cancel_grace": "x"},
        {"cancel_grace": -1},
        {"cancel_grace": float("nan")},
        {"facts": [1]},
        {"facts": {"m": 1}},
        {"rate_limits": RateLimit(requests_per_minute=1)},
        {"rate_limits": []},
        {"tools": 5},
        {"plugins": None},
        {"keys": "calls"},
        {"keys": ["calls"]},
        {"models": [1]},
        {"clock": 5},
        {"execute": "no"},
        {"retention": 5},
        {"retention": Retention(threads=-1)},
        {"retention": Retention(events=timedelta(days=1))},  # type: ignore[arg-type]
        {"delivery": None},
    ],
)
def test_runtime_checks_its_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"(?i){next(iter(options))[:-1]}|no ~ is expanded"):
        Runtime([echo()], **options)


@pytest.mark.parametrize("given", [{"attempts": 0}, {"backoff": -1}, {"max_backoff": "1"}, {"timeout": 0}])
def test_delivery_policy_checks_its_numbers(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(given))):
        DeliveryPolicy(**given)


async def test_prune_refuses_future_time() -> None:
    async with Runtime([echo()]) as runtime:
        with pytest.raises(UsageError, match="None to keep it for ever; not -1"):
            await runtime.threads.prune(Retention(threads=-1))


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("tools", "echo", "tools is a list, not 'echo'"),
        ("delegates", "b", "delegates is a list"),
        ("delegates", [echo()], "; give its id, 'agent'"),
        ("instructions", 123, "instructions is a text, a function"),
        ("settings", {"temperature": 1}, "settings is a ModelSettings"),
        ("limits", {"steps": 1}, "limits is a Limits"),
        ("limits", Limits(steps="5"), "Limits: Expected `int`, got `str`"),  # type: ignore[arg-type]
        ("stop", [1], "stop takes policies"),
        ("stop", [WallTime("x")], "WallTime: Expected `float`"),  # type: ignore[arg-type]
        ("config", [1], "config is a Mapping"),
        ("instructions", "a\ud83d", "instructions has a lone surrogate"),
        ("description", "a\ud83d", "description has a lone surrogate"),
        ("settings", ModelSettings(max_tokens=0), "settings.max_tokens is a whole number of at least 1, not 0"),
        ("tools", [ClientTool("ask", "a\ud83d")], "its description or schema contains a lone surrogate"),
        ("tools", [tool(echo, description="a\ud83d")], "its description or schema contains a lone surrogate"),
    ],
)
def test_agents_fields_are_checked_by_kind(field: str, value: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        Runtime([replace(echo(), **{field: value})])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"approval": "yes"}, "approval is True, False, an Approval"),
        ({"max_result_bytes": -1}, "max_result_bytes is positive"),
        ({"timeout": "1"}, "timeout is in seconds"),
    ],
)
def test_tools_options_are_checked(options: dict[str, Any], told: str) -> None:
    async def act() -> None:
        """Act."""

    with pytest.raises(ConfigurationError, match=told):
        Runtime([replace(echo(), tools=[tool(**options)(act)])])


def test_async_approval_rule_is_refused() -> None:
    async def rule(arguments: dict[str, Any]) -> bool:
        return False

    async def act() -> None:
        """Act."""

    with pytest.raises(ConfigurationError, match="can't be async"):
        Runtime([replace(echo(), tools=[tool(approval=rule)(act)])])


def test_misspelt_phase_and_model_class_are_found() -> None:
    class Typo(Plugin):
        async def before_infrence(self, ctx: Any) -> None: ...

    with pytest.raises(ConfigurationError, match="did you mean before_inference"):
        Runtime([replace(echo(), plugins=[Typo()])])
    with pytest.raises(ConfigurationError, match="is no model"):
        Runtime([Agent("agent", model=FunctionModel)])  # type: ignore[arg-type]


def test_unusable_model_object_is_refused() -> None:
    class Nameless:
        async def stream(self, request: Any) -> Any:
            yield request

    with pytest.raises(ConfigurationError, match="has no `name`"):
        Runtime([Agent("agent", model=Nameless())])  # type: ignore[arg-type]


async def test_failing_vendor_is_named() -> None:
    runtime = Runtime([Agent("agent", model="house:x")], models={"house": lambda name: 1 / 0})  # type: ignore[arg-type,return-value]
    with pytest.raises(ModelError, match="model 'house:x' could not be made: ZeroDivisionError"):
        await runtime.run("agent", "hi", thread="t")
    assert await runtime.runs.list() == []


@pytest.mark.parametrize("given", [b"abc", 123, None, {"a": 1}, [1], "", [], [b"x"]])
async def test_input_of_wrong_type_is_refused(given: Any) -> None:
    runtime = Runtime([echo()])
    with pytest.raises(InvalidInput, match="the input"):
        await runtime.run("agent", given, thread="t")
    assert await runtime.threads.messages("t") == []


@pytest.mark.parametrize("given", [["hello", " world"], [Text("hello"), " world"], (Text("hello world"),)])
async def test_texts_and_parts_may_be_mixed(given: Any) -> None:
    assert (await Runtime([echo()]).run("agent", given)).text == "hello world"


async def test_single_part_needs_no_list() -> None:
    runtime = Runtime([echo()])
    assert (await runtime.run("agent", Text("x"))).text == "x"  # type: ignore[arg-type]
    assert (await runtime.run("agent", [Text("\ud800")])).text == "\ufffd"


@pytest.mark.parametrize("thread", [123, b"t", "", "é" * 70, "t\ud800"])
async def test_thread_id_is_short_text(thread: Any) -> None:
    with pytest.raises(InvalidInput, match=r"a thread id (is a text|has 1 to 128 bytes, not (0|140))"):
        await Runtime([echo()]).run("agent", "hi", thread=thread)


@pytest.mark.parametrize(
    "options",
    [
        {"principal": "ada"},
        {"settings": {"temperature": 1}},
        {"settings": ModelSettings(extra={"x": object()})},
        {"state": [1]},
        {"client_tools": ["x"]},
        {"client_tools": [None]},
        {"client_tools": ClientTool("locate")},
    ],
)
async def test_options_of_run_are_checked_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        await Runtime([echo()]).run("agent", "hi", **options)


async def test_two_client_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two client tools are named 'locate'"):
        await Runtime([echo()]).run(
            "agent", "hi", client_tools=[ClientTool("locate"), ClientTool("locate", "Where")]
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": -1},
        {"max_tokens": 1.5},
        {"max_tokens": True},
        {"temperature": -1},
        {"temperature": math.nan},
        {"temperature": "hot"},
        {"top_p": 2},
        {"top_p": math.nan},
        {"stop": [""]},
        {"stop": "end"},
        {"stop": [1]},
        {"reasoning": 1.5},
        {"extra": [1]},
    ],
)
async def test_invalid_settings_are_refused(wrong: dict[str, Any]) -> None:
    settings, name = ModelSettings(**wrong), next(iter(wrong))
    with pytest.raises(ConfigurationError, match=f"agent 'agent': settings.{name} is "):
        Runtime([replace(echo(), settings=settings)])
    with pytest.raises(UsageError, match=f"settings.{name} is "):
        await Runtime([echo()]).run("agent", "hi", settings=settings)


async def test_vendor_settings_are_left_to_vendor() -> None:
    settings = ModelSettings(0, 1, 1, "low", ("end",), {"seed": 3})
    assert (await Runtime([echo()]).run("agent", "hi", settings=settings)).text == "hi"


@pytest.mark.parametrize("at", ["x", 1.5, True])
async def test_fork_position_is_checked(at: Any) -> None:
    runtime = Runtime([echo()])
    await runtime.run("agent", "hi", thread="t")
    with pytest.raises(UsageError, match="at is the seq of an entry"):
        await runtime.threads.fork("t", at=at)


async def test_read_arguments_are_checked() -> None:
    runtime = Runtime([echo()])
    for after in (-1, "zz", None, "3.x", "3.", "3.1", "3.1.x", "3.1.2.4", 3.5, "٣", "9" * 30):
        with pytest.raises(UsageError, match=r"cursor.* a number like 12, or within an answer 12\.1\.340"):
            runtime.events("t", after=after)  # type: ignore[arg-type]  # At the call, before any iteration.
    with pytest.raises(UsageError, match="limit"):
        await runtime.runs.list(limit=0)
    with pytest.raises(UsageError, match="dead must be a bool, not 'yes'"):
        await runtime.workers.dispatches(dead="yes")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the thread is named by its id"):
        await runtime.workers.dispatches(after=5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="status is one of created, running, waiting, done"):
        await runtime.runs.list(status="dnoe")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"the first ones \(limit\) or the last ones \(newest\), not both"):
        await runtime.threads.messages("t", limit=1, newest=1)
    await runtime.threads.describe("empty", title="Nothing yet")
    with pytest.raises(UsageError, match="thread 'empty' has no entries yet; it can't be forked at 3"):
        await runtime.threads.fork("empty", at=3)
    with pytest.raises(UsageError, match="policy is one of queue, steer, interrupt, reject"):
        await runtime.send("t", "hi", agent="agent", policy="zz")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="thread id"):
        await runtime.send(None, "hi", agent="agent")  # type: ignore[arg-type]


async def test_reads_accept_huge_numbers_and_lone_surrogates(tmp_path: Path) -> None:
    agent = Agent("agent", model=ScriptedModel([call("act")]), tools=[spying(Spy(), "act", approval=True)])
    async with Runtime([agent], store=tmp_path / "a.db") as runtime:
        (ticket,) = (await runtime.run("agent", "go", thread="t")).tickets
        given = await runtime.tickets.reassign(ticket.id, "ann\ud800")
        many = 10**30
        assert await runtime.tickets.list(assignee="ann\ud800", limit=many) == [given]
        assert (
            len(await runtime.threads.messages("t", limit=many))
            == len(await runtime.threads.messages("t", newest=many))
            == 2
        )
        assert len(await runtime.runs.list(limit=many)) == len(await runtime.threads.list(limit=many)) == 1
        assert await runtime.workers.dispatches(limit=many) == await runtime.mail.relays(limit=many) == []
        with pytest.raises(UsageError, match="None to keep it for ever"):
            await runtime.threads.prune(Retention(events=many))


async def test_approval_must_be_boolean(scripted: Any) -> None:
    ran: list[str] = []

    @tool(approval=True)
    async def refund() -> str:
        """Refund."""
        ran.append("refund")
        return "refunded"

    runtime = Runtime([Agent("agent", model=scripted(call("refund"), "kept it"), tools=[refund])])
    result = await runtime.run("agent", "go")
    (ticket,) = result.tickets
    for wrong in ("no", None, 0, "yes"):
        with pytest.raises(InvalidDecision, match=r"ticket\.approve\(\) or ticket\.deny\(\)"):
            await runtime.resume(result.run_id, answers={ticket.id: wrong})
    for wrong in (ticket, "approve", True, [ticket.approve()]):
        with pytest.raises(InvalidDecision, match="takes decisions"):
            await runtime.resume(result.run_id, wrong)  # type: ignore[arg-type]
    done = await runtime.resume(result.run_id, answers={ticket.id: False})
    assert (done.status, ran) == ("done", [])


@pytest.mark.parametrize("kind", [ValueError, BaseException, SystemExit])
@pytest.mark.parametrize("sync", [True, False])
async def test_tool_error_without_text_is_reported(scripted: Any, kind: Any, sync: bool) -> None:
    class Odd(kind):
        def __str__(self) -> str:
            return self.args[0].upper()

    def fail() -> str:
        """Fail."""
        raise Odd

    async def fail_later() -> str:
        """Fail."""
        raise Odd

    bad = tool(name="bad")(fail if sync else fail_later)
    runtime = Runtime([Agent("agent", model=scripted(call("bad"), "so be it"), tools=[bad])])
    assert (await asyncio.wait_for(runtime.run("agent", "go"), 120)).text == "so be it"


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("phase", ["step_start", "run_end"])
async def test_hook_raising_base_exception_leaves_no_open_run(error: Any, phase: str) -> None:
    async def fail(self: Any, ctx: Any) -> None:
        raise error

    bad = type("Bad", (Plugin,), {phase: fail})()
    runtime = Runtime([Agent("agent", model=FunctionModel(lambda r: "hi"), plugins=[bad])])
    try:
        result = await runtime.run("agent", "go", thread="t", check=False)
    except KeyboardInterrupt:
        assert error is KeyboardInterrupt
    else:
        assert isinstance(result.termination, NaturalEnd if phase == "run_end" else Failed)
    (run,) = await runtime.runs.list(thread="t")
    assert run.status == "done"


class Name(StateKey[str, str]):
    name, scope, default = "name", "thread", ""


async def test_state_update_of_wrong_type_is_refused(scripted: Any) -> None:
    @tool
    async def rename(ctx: ToolContext) -> str:
        """Rename."""
        ctx.update(Name, 5)
        return "renamed"

    runtime = Runtime([Agent("agent", model=scripted(call("rename"), "no", "fine"), tools=[rename])], keys=[Name])
    await runtime.run("agent", "go", thread="t")
    reply = next(m.reply for m in await runtime.threads.messages("t") if m.reply)
    assert reply.error == "state"
    assert (await runtime.run("agent", "again", thread="t")).text == "fine"


async def test_run_can_not_wait_for_itself(scripted: Any) -> None:
    @tool
    async def again() -> str:
        """Ask myself."""
        return (await runtime.run("agent", "inner", thread="t")).text

    runtime = Runtime([Agent("agent", model=scripted(call("again"), "no"), tools=[again])])
    await asyncio.wait_for(runtime.run("agent", "go", thread="t"), 120)
    reply = next(m.reply for m in await runtime.threads.messages("t") if m.reply)
    assert "would wait for itself" in "".join(part.text for part in reply.content if isinstance(part, Text))


async def test_readers_end_when_runtime_closes() -> None:
    runtime = Runtime([echo()])
    await runtime.run("agent", "hi", thread="t")
    reader = asyncio.create_task(_read(runtime))
    await asyncio.sleep(0)
    await runtime.close()
    assert (await asyncio.wait_for(reader, 120))[-1] == "run_finish"
    with pytest.raises(RuntimeClosed):
        await _read(runtime)


async def _read(runtime: Runtime) -> list[str]:
    return [event.type async for event in runtime.events("t")]


def test_ctrl_c_in_sync_program_cancels_run() -> None:
    import os
    import signal
    import threading

    begun = threading.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    runtime = Runtime([Agent("agent", model=FunctionModel(lambda r: call("wait")), tools=[wait])])

    def interrupt() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    # A shell that starts the tests in the background has them ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            runtime.run_sync("agent", "go", thread="t")
    finally:
        signal.signal(signal.SIGINT, before)
    (run,) = asyncio.run(runtime.runs.list(thread="t"))
    assert run.status == "done"


def test_ctrl_c_before_wait_cancels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    begun = threading.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    def give(work: Any, loop: asyncio.AbstractEventLoop) -> Any:
        real(work, loop)
        begun.wait(120)
        raise KeyboardInterrupt

    real = asyncio.run_coroutine_threadsafe
    runtime = Runtime([Agent("agent", model=FunctionModel(lambda r: call("wait")), tools=[wait])])
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", give)
    with pytest.raises(KeyboardInterrupt):
        runtime.run_sync("agent", "go", thread="t")
    (run,) = asyncio.run(runtime.runs.list(thread="t"))
    assert run.status == "done"


async def test_object_instead_of_id_error_names_its_id(tmp_path: Path) -> None:
    async with Runtime([echo()], store=tmp_path / "a.db") as runtime:
        result = await runtime.run("agent", "hi", thread="t")
        calls: list[Any] = [
            runtime.runs.get(result),  # type: ignore[arg-type]
            runtime.runs.result(result),  # type: ignore[arg-type]
            runtime.resume(result, answers={"x": 1}),  # type: ignore[arg-type]
            runtime.cancel(result),  # type: ignore[arg-type]
            runtime.runs.retry(result),  # type: ignore[arg-type]
            runtime.runs.pause(result),  # type: ignore[arg-type]
            runtime.runs.list(before=result),  # type: ignore[arg-type]
        ]
        for made in calls:
            with pytest.raises(UsageError, match=r"the run is named by its id, a text, not .* give its \.run_id$"):
                await made
        calls = [
            runtime.threads.messages(result),  # type: ignore[arg-type]
            runtime.threads.state(result),  # type: ignore[arg-type]
            runtime.threads.get(result),  # type: ignore[arg-type]
            runtime.threads.delete(result),  # type: ignore[arg-type]
            runtime.threads.fork(result),  # type: ignore[arg-type]
            runtime.runs.list(thread=result),  # type: ignore[arg-type]
        ]
        for made in calls:
            with pytest.raises(
                UsageError, match=r"the thread is named by its id, a text, not .* give its \.thread_id"
            ):
                await made
        with pytest.raises(
            UsageError, match=r"the thread is named by its id, a text, not .* give its \.thread_id"
        ):
            runtime.events(result)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"the agent is named by its id, a text, not 3$"):
            await runtime.runs.list(agent=3)  # type: ignore[arg-type]


FORKED = """
import asyncio, os, signal, sys
from wakeful import Agent, Runtime, FunctionModel
runtime = Runtime([Agent("agent", model=FunctionModel(lambda _: "hi"))], store=sys.argv[1] or None)
if sys.argv[2] == "used":
    runtime.run_sync("agent", "go")
child = os.fork()
if child == 0:
    signal.alarm(20)
    for ask in (lambda: runtime.run_sync("agent", "go").text, lambda: asyncio.run(runtime.runs.list()) and "read"):
        try:
            print(ask(), flush=True)
        except Exception as error:
            print(type(error).__name__, error, flush=True)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("store", "when"), [("a.db", "made"), ("a.db", "used"), ("", "made"), ("", "used")])
def test_forked_process_is_told_that_runtime_is_unusable(tmp_path: Path, store: str, when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, tmp_path / store if store else "", when],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.partition(", and its threads")[0] for line in done.stdout.splitlines()]
    if (store, when) == ("", "made"):  # Nothing of it was begun.
        assert lines == ["hi", "read"]
    else:
        assert lines == ["UsageError this runtime belongs to the process that this one was forked from"] * 2


@pytest.mark.parametrize("error", [ModelError, ValueError])
async def test_failure_text_with_lone_surrogate_ends_run(error: type[Exception], tmp_path: Path) -> None:
    def fails(_: Any) -> str:
        raise error("can't read caf\udce9")

    agent = Agent("a", model=FunctionModel(fails), expose_errors=True)
    async with Runtime([agent], store=tmp_path / "a.db") as runtime:
        result = await runtime.run("a", "x", thread="t", check=False)
        assert isinstance(result.termination, Failed)
        assert "can't read caf" in result.termination.message.encode().decode()
        assert (await runtime.runs.get(result.run_id)).status == "done"


async def test_thread_metadata_must_be_encodable(tmp_path: Path) -> None:
    for store in (None, tmp_path / "a.db"):
        async with Runtime([Agent("a", model=FunctionModel(lambda _: "x"))], store=store) as runtime:
            await runtime.run("a", "x", thread="t")
            await runtime.threads.describe("t", title="caf\udce9", metadata={"a": 1})
            with pytest.raises(InvalidInput, match="the metadata of thread 't' can't be kept as JSON"):
                await runtime.threads.describe("t", metadata={"a": object()})
            assert (await runtime.threads.get("t")).title == "caf\ufffd"
