"""Threads out of one store and into another: what arrives, what is refused, and that nothing is half-written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loop.helpers import Hold, holding, soon
from postgres_server import fresh_store
from wakeful import (
    Agent,
    Delegate,
    FunctionModel,
    MemoryStore,
    ModelError,
    ModelRequest,
    Runtime,
    ScriptedModel,
    StateKey,
    ToolContext,
    call,
    tool,
)
from wakeful.errors import InvalidExport, InvalidInput, ThreadBusy, ThreadExists, UnknownThread, UsageError
from wakeful.stores import Retention, Store
from wakeful.stores.sqlite import SqliteStore
from wakeful.types.codec import encode
from wakeful.types.runs import Identity

# -- an application whose threads have some of everything ----------------------------------------------------


class Total(StateKey[int, int]):
    name, scope, merge = "total", "thread", "commutative"
    default = 0

    def apply(self, value: int, update: int) -> int:
        return value + update


class Mood(StateKey[str, str]):
    name, scope = "mood", "run"
    default = "calm"


@tool(approval=True)
async def refund(order: str, ctx: ToolContext) -> str:
    """Refund an order."""
    ctx.update(Total, 1)
    return f"refunded {order}"


@tool
async def tally(by: int, ctx: ToolContext) -> dict[str, int]:
    """Count."""
    ctx.update(Total, by)
    ctx.update(Mood, "busy")
    return {"by": by}


def answer(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if last.role == "tool":
        return "Done."
    match last.text.split():
        case ["refund", order]:
            return call("refund", order=order)
        case ["both", order]:
            return [call("tally", by=2), call("refund", order=order)]
        case ["tally", by]:
            return call("tally", by=int(by))
        case ["long"]:
            return "x" * 40_000  # More than a row holds.
        case ["fail"]:
            raise ModelError("the vendor is down")
        case _:
            return f"You said {last.text}"


def application(store: Store | None = None) -> Runtime:
    agent = Agent("clerk", model=FunctionModel(answer), tools=[refund, tally])
    return Runtime([agent, Agent("other", model=FunctionModel(answer))], store=store, keys=[Total, Mood])


def store_of(runtime: Runtime) -> Store:
    return runtime.store


# -- stores --------------------------------------------------------------------------------------------------

Open = Callable[[], AbstractAsyncContextManager[Runtime]]


@asynccontextmanager
async def memory() -> AsyncIterator[Runtime]:
    yield application()


@asynccontextmanager
async def sqlite() -> AsyncIterator[Runtime]:
    with TemporaryDirectory() as folder:
        runtime = application(SqliteStore(Path(folder) / "app.db", synchronous="NORMAL"))
        try:
            yield runtime
        finally:
            await runtime.close()


@asynccontextmanager
async def postgres() -> AsyncIterator[Runtime]:
    async with fresh_store() as store:
        runtime = application(store)
        try:
            yield runtime
        finally:
            await runtime.close()


WAYS = [
    pytest.param(memory, sqlite, id="memory to sqlite"),
    pytest.param(sqlite, memory, id="sqlite to memory"),
    pytest.param(sqlite, postgres, id="sqlite to postgres"),
    pytest.param(postgres, memory, id="postgres to memory"),
]


async def exported(runtime: Runtime, thread: str = "t1") -> list[bytes]:
    return [line async for line in runtime.threads.export(thread)]


async def contents(runtime: Runtime, thread: str = "t1") -> dict[str, Any]:
    """All that can be read of a thread, as JSON would show it."""
    store = store_of(runtime)
    view = await store.load(thread)
    assert view is not None
    runs = await store.runs(thread_id=thread)
    tickets = await store.tickets(thread_id=thread)
    found = {
        "about": (view.thread.title, view.thread.metadata),
        "open": view.thread.open_run_id,
        "last": (view.thread.last_run_id, view.thread.last_agent_id),
        "head": view.thread.head,
        "messages": await store.messages(thread),
        "events": await store.events(thread, limit=10_000),
        "runs": runs,
        "answers": [await store.answer(run.id) for run in runs],
        "calls": [await store.calls(run.id) for run in runs],
        "tickets": tickets,
        "decisions": [await store.decisions(ticket.id) for ticket in tickets],
        "step": (view.calls, view.tickets, view.answer),
        "state": (
            {k: v.decode() for k, v in view.state.items()},
            {k: v.decode() for k, v in view.run_state.items()},
        ),
        "inbox": view.inbox,
    }
    return msgspec.json.decode(encode(found))


async def parked(runtime: Runtime) -> str:
    """A thread with a history whose open run waits for an answer; returns that run's id."""
    await runtime.threads.describe("t1", title="Refunds", metadata={"customer": 7})
    await runtime.run("clerk", "tally 3", thread="t1")
    first = await runtime.run("clerk", "refund A1", thread="t1")
    await runtime.resume(first.run_id, first.tickets[0].deny("too late"))
    await runtime.run("other", "hello", thread="t1")
    return (await runtime.run("clerk", "both A7", thread="t1")).run_id


# -- the whole way -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), WAYS)
async def test_imported_thread_equals_exported(source: Open, target: Open) -> None:
    async with source() as here, target() as there:
        await parked(here)
        await here.send("t1", "later")
        before = await contents(here)
        assert await there.threads.import_(await exported(here)) == "t1"
        assert await contents(there) == before
        assert {len(before[part]) for part in ("tickets", "inbox")} == {2, 1}


@pytest.mark.parametrize(("source", "target"), WAYS)
async def test_imported_parked_run_resumes(source: Open, target: Open) -> None:
    async with source() as here, target() as there:
        run_id = await parked(here)
        await there.threads.import_(await exported(here))
        (ticket,) = await there.tickets.list(run_id, status="open")
        result = await there.resume(run_id, ticket.approve())
        assert (result.status, result.text) == ("done", "Done.")
        assert [c.outcome for c in await there.runs.calls(run_id)] == ["ok", "ok"]
        assert (await there.threads.state("t1"))["total"] == 6
        again = await there.run("clerk", "hello", thread="t1")
        assert again.text == "You said hello"


PROMPTS = st.one_of(
    st.sampled_from(["fail", "refund A7", "both B2", "tally 5"]),
    st.text(min_size=1, max_size=20),
    st.sampled_from(["short", "long"]),
)
TURNS = st.lists(st.tuples(PROMPTS, st.sampled_from(["approve", "deny", "leave"])), max_size=5)


@pytest.mark.parametrize(("source", "target"), WAYS[:2])
@given(turns=TURNS, title=st.none() | st.text(max_size=10))
def test_imported_thread_keeps_all_records(source: Open, target: Open, turns: Any, title: str | None) -> None:
    async def scenario() -> None:
        async with source() as here, target() as there:
            await here.threads.describe("t1", title=title)
            for prompt, reply in turns:
                result = await here.run("clerk", prompt, thread="t1", check=False)
                for ticket in result.tickets if reply != "leave" else ():
                    await here.resume(result.run_id, ticket.approve() if reply == "approve" else ticket.deny("no"))
            before = await contents(here)
            await there.threads.import_(await exported(here))
            assert await contents(there) == before
            # And back: what arrived can leave again.
            async with source() as home:
                await home.threads.import_(await exported(there))
                assert await contents(home) == before

    asyncio.run(scenario())


async def test_import_accepts_text_or_bytes_in_any_pieces() -> None:
    here = application()
    await parked(here)
    lines = await exported(here)

    async def one_by_one() -> AsyncIterator[bytes]:
        for line in lines:
            yield line

    for way in (lines, [line.decode() for line in lines], one_by_one(), b"".join(lines).splitlines()):
        there = application()
        await there.threads.import_(way)
        assert await contents(there) == await contents(here)


async def test_import_ignores_line_ends_and_empty_lines() -> None:
    here, there = application(), application()
    await parked(here)
    await there.threads.import_([line.rstrip() + b"\r\n" for line in await exported(here)] + [b"\n"])
    assert await contents(there) == await contents(here)


# -- forks, pruned threads -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), WAYS[:2])
async def test_fork_is_exported_with_shared_messages(source: Open, target: Open) -> None:
    async with source() as here, target() as there:
        await here.run("clerk", "tally 3", thread="base")
        await here.threads.fork("base", into="t1")
        await here.run("clerk", "tally 4", thread="t1")
        await there.threads.import_(await exported(here))
        texts = [message.text for message in await here.threads.messages("t1")]
        assert [message.text for message in await there.threads.messages("t1")] == texts
        assert (await there.threads.state("t1"))["total"] == 7
        assert [run.thread_id for run in await there.runs.list()] == ["t1"]
        assert await store_of(there).thread("base") is None


@pytest.mark.parametrize(("source", "target"), WAYS[:2])
async def test_pruned_thread_is_renumbered(source: Open, target: Open) -> None:
    async with source() as here, target() as there:
        await parked(here)
        assert (await store_of(here).prune(Retention(events=-1000))).events
        await there.threads.import_(await exported(here))
        events = await store_of(there).events("t1")
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert [event.type for event in events] == [event.type for event in await store_of(here).events("t1")]
        (run,) = await there.runs.list(status="waiting")
        assert events[run.first_seq - 1].run_id == run.id
        assert events[run.first_seq - 1].type == "run_start"


# -- copies --------------------------------------------------------------------------------------------------


async def ids_of(runtime: Runtime, thread: str) -> set[str]:
    store = store_of(runtime)
    runs = await store.runs(thread_id=thread)
    calls = [c.id for run in runs for c in await store.calls(run.id)]
    tickets = await store.tickets(thread_id=thread)
    decisions = [d.id for t in tickets for d in await store.decisions(t.id)]
    items = [item.id for item in (await store.load(thread)).inbox]  # type: ignore[union-attr]
    return {*[run.id for run in runs], *calls, *[t.id for t in tickets], *decisions, *items, thread}


@pytest.mark.parametrize("open_store", [memory, sqlite, postgres])
async def test_copy_has_its_own_ids(open_store: Open) -> None:
    async with open_store() as runtime:
        await parked(runtime)
        await runtime.send("t1", "later")
        before = await contents(runtime)
        assert await runtime.threads.import_(await exported(runtime), into="t2") == "t2"
        assert await contents(runtime) == before
        old, new = await ids_of(runtime, "t1"), await ids_of(runtime, "t2")
        assert len(old) == len(new)
        assert not old & new
        copy = encode(await contents(runtime, "t2")).decode()
        assert not [one for one in old if f'"{one}"' in copy]
        assert [m.text for m in await runtime.threads.messages("t2")] == [
            m.text for m in await runtime.threads.messages("t1")
        ]


async def test_copy_is_answered_apart_from_original() -> None:
    runtime = application()
    original = await parked(runtime)
    await runtime.threads.import_(await exported(runtime), into="t2")
    (copy,) = await runtime.runs.list(thread="t2", status="waiting")
    (ticket,) = await runtime.tickets.list(copy.id, status="open")
    assert (await runtime.resume(copy.id, ticket.approve())).status == "done"
    assert (await runtime.runs.get(original)).status == "waiting"
    assert [len(await runtime.runs.list(thread=thread)) for thread in ("t1", "t2")] == [4, 4]


@pytest.mark.parametrize("open_store", [memory, sqlite, postgres])
async def test_queued_input_of_copy_is_another_run(open_store: Open) -> None:
    async with open_store() as runtime:
        await parked(runtime)
        await runtime.send("t1", "later", request_id="r-1")
        await runtime.threads.import_(await exported(runtime), into="t2")
        for thread in ("t2", "t1"):
            (run,) = await runtime.runs.list(thread=thread, status="waiting")
            (ticket,) = await runtime.tickets.list(run.id, status="open")
            await runtime.resume(run.id, ticket.approve())
        while any([await runtime.mail.pending(thread) for thread in ("t1", "t2")]):
            await asyncio.sleep(0.01)
        assert [len(await runtime.runs.list(thread=thread)) for thread in ("t1", "t2")] == [5, 5]


@pytest.mark.parametrize("durable", [False, True])
async def test_copy_of_delegated_run_does_not_report_to_parent(durable: bool) -> None:
    kid = Agent("kid", model=FunctionModel(answer), tools=[refund])
    turns = [call("agent_run_kid", prompt="refund A7"), "the kid was asked"]
    boss = Agent("boss", model=ScriptedModel(turns), delegates=[Delegate("kid", durable=durable)])
    runtime = Runtime([boss, kid])
    result = await runtime.run("boss", "go", thread="b")
    (original,) = result.tickets
    await runtime.threads.import_(await exported(runtime, original.thread_id), into="copy")
    (ticket,) = await runtime.tickets.list(thread="copy")
    copied = await runtime.tickets.answer(ticket.id, False)
    assert (copied.thread_id, copied.status) == ("copy", "done")
    identity = (await runtime.runs.get(copied.run_id)).identity
    assert identity == Identity(copied.run_id, "copy", "kid", copied.run_id)
    assert (await runtime.runs.get(result.run_id)).status == "waiting"
    assert (await runtime.tickets.answer(original.id, True)).text == "the kid was asked"


async def test_copy_keeps_order_of_runs_and_input() -> None:
    runtime = application()
    first = await runtime.run("clerk", "hello", thread="clerk")
    await runtime.run("clerk", f"tell {first.run_id}", thread="clerk")
    await runtime.threads.import_(await exported(runtime, "clerk"), into="t2")
    runs = await runtime.runs.list(thread="t2")
    assert [run.agent_id for run in runs] == ["clerk", "clerk"]
    started = [e.run_id for e in await store_of(runtime).events("t2") if e.type == "run_start"]
    assert started == [runs[1].id, runs[0].id]
    assert (await runtime.threads.messages("t2"))[2].text == f"tell {first.run_id}"


# -- what is refused -----------------------------------------------------------------------------------------


async def test_existing_thread_is_not_overwritten() -> None:
    here, there = application(), application()
    await parked(here)
    await there.run("clerk", "mine", thread="t1")
    before = await contents(there)
    with pytest.raises(ThreadExists, match="thread 't1' is in this store already"):
        await there.threads.import_(await exported(here))
    assert await contents(there) == before


async def test_runs_of_another_thread_are_refused() -> None:
    runtime = application()
    run_id = await parked(runtime)
    lines = [line.replace(b'"t1"', b'"t9"') for line in await exported(runtime)][:-1]
    with pytest.raises(ThreadExists, match=r"run .+ is in this store already, on another thread"):
        await runtime.threads.import_(sealed(lines))
    assert await store_of(runtime).thread("t9") is None
    assert (await runtime.runs.get(run_id)).thread_id == "t1"


async def test_import_is_refused_when_decision_id_is_taken() -> None:
    async with memory() as here, sqlite() as there:
        for runtime, thread in ((here, "t1"), (there, "t2")):
            waiting = await runtime.run("clerk", "refund A1", thread=thread)
            await runtime.tickets.answer(waiting.tickets[0].id, True, request_id="from-the-queue")

        with pytest.raises(ThreadExists, match=r"decision from-the-queue:0 .*; import it as a copy"):
            await there.threads.import_(await exported(here))
        assert [thread.id for thread in await there.threads.list()] == ["t2"]
        await there.threads.import_(await exported(here), into="copy")
        assert [len(await there.tickets.decisions(ticket.id)) for ticket in await there.tickets.list()] == [1, 1]


async def test_running_thread_is_not_exported() -> None:
    hold = Hold()
    agent = Agent("a", model=FunctionModel(lambda r: "over" if r.messages[-1].role == "tool" else call("wait")))
    runtime = Runtime([msgspec.structs.replace(agent, tools=[holding(hold)])])
    task = asyncio.create_task(runtime.run("a", "go", thread="t1"))
    await soon(hold.reached.wait())
    with pytest.raises(ThreadBusy, match="thread 't1' has a running run"):
        await anext(runtime.threads.export("t1"))
    hold.released.set()
    await task
    assert [line async for line in runtime.threads.export("t1")]


async def test_export_without_last_line_when_thread_changed() -> None:
    runtime = application()
    await runtime.run("clerk", "hello", thread="t1")
    lines = runtime.threads.export("t1")
    got = [await anext(lines)]
    await runtime.run("clerk", "meanwhile", thread="t1")
    with pytest.raises(ThreadBusy, match="was written to while it was exported"):
        got += [line async for line in lines]
    with pytest.raises(InvalidExport, match="the file ends before the thread does"):
        await application().threads.import_(got)


async def test_unknown_thread_is_not_exported() -> None:
    with pytest.raises(UnknownThread, match="no thread 'nowhere'"):
        await exported(application(), "nowhere")


async def test_transfer_stays_within_tenant() -> None:
    runtime = application()
    await parked(runtime)
    with pytest.raises(UnknownThread):
        await exported(runtime.tenant("acme"))
    await runtime.tenant("acme").threads.import_(await exported(runtime))
    assert await contents(runtime.tenant("acme")) == await contents(runtime)


def sealed(lines: list[bytes]) -> list[bytes]:
    """The lines with a last line that fits them."""
    digest = sha256(b"".join(line.strip() + b"\n" for line in lines)).hexdigest()
    return [*lines, encode({"end": {"lines": len(lines), "digest": digest}}) + b"\n"]


async def refused(lines: list[bytes]) -> str:
    runtime = application()
    with pytest.raises(InvalidExport) as error:
        await runtime.threads.import_(lines)
    assert dict(await store_of(runtime).counts()) == dict(await MemoryStore().counts())
    assert "nothing was imported" in str(error.value)
    return str(error.value)


async def test_signed_export_is_refused_when_edited() -> None:
    """An editor of a file can make its digest anew, but not its signature."""
    key = b"a secret of exports"
    async with memory() as source, memory() as target:
        await source.run("clerk", "both A1", thread="t1")
        signed = [line async for line in source.threads.export("t1", key=key)]
        edited = sealed([line.replace(b"A1", b"B2") for line in signed[:-1]])
        for lines, said in (
            (edited, "signature of the export is missing"),
            (await exported(source), "signature of the export is missing"),
            (
                [line async for line in source.threads.export("t1", key=b"another secret, too")],
                "isn't of this key",
            ),
        ):
            with pytest.raises(InvalidExport, match=said):
                await target.threads.import_(lines, key=key)
        assert await target.threads.import_(signed, key=key) == "t1"
        assert await target.threads.import_(signed, into="copy") == "copy"  # Whoever has no key checks the digest.
        with pytest.raises(UsageError, match="16 bytes"):
            source.threads.export("t1", key=b"short")


@pytest.mark.parametrize("open_store", [memory, sqlite, postgres])
async def test_repeated_import_makes_one_thread(open_store: Open) -> None:
    async with open_store() as runtime:
        await runtime.run("clerk", "both A1", thread="t1")
        lines = await exported(runtime)
        for _ in range(2):
            assert await runtime.threads.import_(lines, into="copy", request_id="r1") == "copy"
        with pytest.raises(ThreadExists):
            await runtime.threads.import_(lines, into="copy", request_id="r2")


async def test_truncated_file_is_refused() -> None:
    runtime = application()
    await parked(runtime)
    whole = b"".join(await exported(runtime))
    for size in [0, 1, *range(7, len(whole) - 1, 997), len(whole) - 2]:
        lines = whole[:size].splitlines(keepends=True)
        assert (await refused(lines)).startswith("line ")


async def test_altered_file_is_refused() -> None:
    runtime = application()
    await parked(runtime)
    lines = await exported(runtime)
    for place in (0, 3, len(lines) // 2, len(lines) - 2):
        assert lines[place] != lines[place].swapcase()
        gone = [*lines[:place], *lines[place + 1 :]]
        twice = [*lines[:place], lines[place], *lines[place:]]
        for wrong in (gone, twice):
            assert (await refused(wrong)).startswith("line ")
    edited = [line.replace(b"too late", b"too soon") for line in lines]
    assert edited != lines
    assert "the file was changed" in await refused(edited)


WRONG: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "not JSON": (
        lambda lines: [*lines[:4], b"{oops\n", *lines[4:]],
        "line 5: it isn't a line of an exported thread",
    ),
    "two things in a line": (lambda lines: [lines[0], b'{"run": {}, "call": {}}\n'], "line 2: .*holds 2 things"),
    "a kind of a newer version": (lambda lines: [lines[0], b'{"wish": {}}\n'], "line 2: it holds 'wish'"),
    "another program's file": (
        lambda _: [b'{"format": "csv", "version": 1, "thread": "t"}\n'],
        "line 1: .* 'csv'",
    ),
    "no file of ours": (lambda _: [b"id,name\n", b"1,Ada\n"], "line 1: it isn't a line of an exported thread"),
    "deep nesting": (lambda lines: [lines[0], b'{"item": ' + b"[" * 100_000], "line 2: "),
    "no text": (lambda lines: [lines[0], {"run": 1}], "line 2: a line is a text or bytes, not "),
    "something at the end": (lambda lines: [*lines, lines[1]], "something follows the last line"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_wrong_line_is_named(what: str) -> None:
    runtime = application()
    await parked(runtime)
    change, said = WRONG[what]
    message = await refused(change(await exported(runtime)))
    with pytest.raises(InvalidExport, match=said):
        raise InvalidExport(message)


async def test_import_error_explains_line_format() -> None:
    here, there = application(), application()
    await parked(here)
    whole = b"".join(await exported(here))
    for lines in (whole, whole.decode(), None, 7):
        with pytest.raises(UsageError, match=r"takes the lines .* one by one: .*data\.split\(b'\\n'\); not "):
            await there.threads.import_(lines)  # type: ignore[arg-type]
    assert await there.threads.import_(whole.split(b"\n")) == "t1"


async def test_newer_format_is_refused() -> None:
    header = b'{"format": "wakeful-thread", "version": 2, "thread": "t1", "shape": "new"}\n'
    assert await refused([header]) == (
        "line 1: a newer version of wakeful exported it (format 2, this one knows 1): upgrade wakeful; "
        "nothing was imported"
    )


def altered(lines: list[bytes], kind: str, **fields: Any) -> list[bytes]:
    """The lines with fields of the last part of a kind changed, and a last line that fits."""
    found = [msgspec.json.decode(line) for line in lines[:-1]]
    place = max(i for i, part in enumerate(found) if kind in part)
    found[place][kind] |= fields
    return sealed([encode(part) for part in found])


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("run", {"status": "running", "waiting": None}, "is running; only runs that wait or are done"),
        ("run", {"agent_id": 7}, "Expected `str`, got `int`"),
        ("call", {"run_id": "r9"}, "a call is of run 'r9', which isn't in the file"),
        ("ticket", {"run_id": "r9"}, "a ticket is of run 'r9', which isn't in the file"),
        ("decision", {"ticket_id": "k9"}, "a decision is about ticket 'k9', which isn't in the file"),
        ("event", {"seq": 1}, "not in its place"),
        ("state", {"run_id": "r9"}, "a state value is of run 'r9', which isn't in the file"),
    ],
)
async def test_parts_that_do_not_fit_together_are_refused(kind: str, fields: dict[str, Any], said: str) -> None:
    runtime = application()
    await parked(runtime)
    assert said in await refused(altered(await exported(runtime), kind, **fields))


async def test_invalid_thread_id_is_refused() -> None:
    runtime = application()
    await parked(runtime)
    with pytest.raises(InvalidInput, match="a thread id has 1 to 128 bytes"):
        await application().threads.import_(await exported(runtime), into="x" * 129)


async def test_concurrent_imports_make_one_thread() -> None:
    here = application()
    await parked(here)
    lines = await exported(here)
    async with sqlite() as there:
        came = await asyncio.gather(*[there.threads.import_(lines) for _ in range(4)], return_exceptions=True)
        assert [one for one in came if isinstance(one, str)] == ["t1"]
        assert all(isinstance(one, str | ThreadExists) for one in came)
        assert await contents(there) == await contents(here)


async def test_tool_of_imported_run_does_not_run_again() -> None:
    ran: list[int] = []

    @tool(name="tally")
    async def counted(by: int) -> int:
        """Count."""
        ran.append(by)
        return by

    def runtime() -> Runtime:
        agent = Agent("clerk", model=FunctionModel(answer), tools=[counted, refund])
        return Runtime([agent], keys=[Total])

    here, there = runtime(), runtime()
    result = await here.run("clerk", "both A7", thread="t1")
    await there.threads.import_(await exported(here))
    done = await there.resume(result.run_id, result.tickets[0].approve())
    assert (done.status, ran) == ("done", [2])
    assert all(one.seq < other.seq for one, other in pairwise(await store_of(there).events("t1")))
