"""Trees of agents as data: made at random, run, answered by people, and looked at when all is over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from backends.helpers import REMOTE
from loop.helpers import assert_valid_history, replies, reply_text
from wakeful import Agent, Delegate, FunctionModel, Limits, ModelRequest, Tool, ToolContext, call, tool
from wakeful.backends import BackendResult, DelegateRequest, ExecutionBackend, WaitingInput
from wakeful.stores import Store
from wakeful.tools import Done, NotDone
from wakeful.types.calls import Call, Effect
from wakeful.types.runs import Cancelled, NaturalEnd, RunRecord

EFFECTS: tuple[Effect, ...] = ("pure", "idempotent", "reconcile", "once")
How = Literal["ephemeral", "durable", "background"]


class Act(Struct, tag="act"):
    """A call of a tool with an effect; one that is `gated` waits for a person."""

    effect: Effect
    gated: bool = False
    label: str = ""


class Node(Struct):
    """An agent: in each step it does these things, then it is done. A `remote` one has a backend that may ask."""

    steps: list[list[Thing]] = []
    remote: bool = False
    asks: bool = False
    id: str = ""


class Child(Struct, tag="child"):
    """A call of a delegate."""

    node: Node
    how: How = "ephemeral"


class Code(Struct, tag="code"):
    """A call of a resumable tool that runs agents, one after the other or together."""

    children: list[Child]
    way: Literal["in_turn", "gather", "group"] = "in_turn"
    label: str = ""


Thing = Act | Child | Code


def named(node: Node, id: str = "n") -> Node:
    """The tree with its ids and labels."""
    node.id = id
    for number, step in enumerate(node.steps):
        for place, thing in enumerate(step):
            label = f"{id}-{number}{place}"
            if isinstance(thing, Child):
                named(thing.node, label)
                continue
            thing.label = label
            if isinstance(thing, Code):
                for index, child in enumerate(thing.children):
                    named(child.node, f"{label}{index}")
    return node


def children_of(node: Node) -> Iterator[Child]:
    """The children that a node has, called by its model or from code."""
    for thing in [thing for step in node.steps for thing in step]:
        if isinstance(thing, Child):
            yield thing
        elif isinstance(thing, Code):
            yield from thing.children


def nodes_of(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    yield node
    for child in children_of(node):
        yield from nodes_of(child.node)


def things_of(root: Node) -> Iterator[Thing]:
    for node in nodes_of(root):
        for step in node.steps:
            yield from step


class Ledger:
    """The side effects of tools: lines in memory, or in a file that outlives its process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lines: list[str] = []

    @property
    def lines(self) -> list[str]:
        if self._path is None:
            return self._lines
        return self._path.read_text().splitlines() if self._path.exists() else []

    def write(self, line: str) -> None:
        if self._path is None:
            self._lines.append(line)
            return
        with self._path.open("a") as file:
            file.write(f"{line}\n")


# -- agents --------------------------------------------------------------------------------------------------


def agents_of(root: Node, ledger: Ledger, pause: Callable[[], Any] = lambda: asyncio.sleep(0)) -> list[Agent]:
    """The agents of a tree. Each does what its node says, whatever process asks it."""
    tools = [_acting(ledger, effect, gated, pause) for effect in EFFECTS for gated in (False, True)]
    codes = {thing.label: thing for thing in things_of(root) if isinstance(thing, Code)}
    tools.append(_surveying(codes))
    return [_agent(node, ledger, tools, pause) for node in nodes_of(root)]


def _agent(node: Node, ledger: Ledger, tools: list[Tool], pause: Callable[[], Any]) -> Agent:
    if node.remote:
        return Agent(node.id, backend=Far(node, ledger, pause))
    called = [thing for step in node.steps for thing in step if isinstance(thing, Child)]
    delegates = [
        Delegate(child.node.id, durable=child.how == "durable", background=child.how == "background")
        for child in called
    ]
    limits = Limits(tree_calls=10_000)
    return Agent(node.id, FunctionModel(_saying(node)), tools=tools, delegates=delegates, limits=limits)


def _saying(node: Node) -> Callable[[ModelRequest], Any]:
    def say(request: ModelRequest) -> Any:
        step = sum(message.role == "assistant" for message in request.messages)
        return [_call(thing) for thing in node.steps[step]] if step < len(node.steps) else done(node)

    return say


def done(node: Node) -> str:
    return f"{node.id} is done"


def _call(thing: Thing) -> Any:
    match thing:
        case Act(effect, gated, label):
            return call(f"{'sign' if gated else 'do'}_{effect}", label=label)
        case Code(_, _, label):
            return call("survey", label=label)
        case Child(node, how):
            more = {"background": True} if how == "background" else {}
            return call(f"agent_run_{node.id}", prompt="do it", **more)


def _acting(ledger: Ledger, effect: Effect, gated: bool, pause: Callable[[], Any]) -> Tool:
    async def check(key: str) -> Done | NotDone:
        made = [line for line in ledger.lines if line.endswith(f" {key}")]
        return Done(made[0].split()[0]) if made else NotDone()

    name = f"{'sign' if gated else 'do'}_{effect}"

    @tool(name=name, effect=effect, approval=gated, check=check if effect == "reconcile" else None)
    async def act(label: str, ctx: ToolContext) -> str:
        """Do it."""
        await pause()
        ledger.write(f"{label} {ctx.idempotency_key}")
        await pause()
        return label

    return act


def _surveying(codes: dict[str, Code]) -> Tool:
    # A crash leaves it in doubt as any other tool; its children are found again, so that it may run again.
    @tool(effect="idempotent")
    async def survey(label: str, ctx: ToolContext) -> str:
        """Run agents."""
        code = codes[label]
        work = [ctx.run_agent(c.node.id, "do it", durable=c.how == "durable") for c in code.children]
        if code.way == "gather":
            found = await asyncio.gather(*work)
        elif code.way == "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one) for one in work]
            found = [task.result() for task in tasks]
        else:
            found = []
            for number, one in enumerate(work):
                try:
                    found.append(await one)
                except BaseException:
                    for rest in work[number + 1 :]:
                        rest.close()
                    raise
        return " ".join(child.text for child in found)

    return survey


class Far(ExecutionBackend):
    """A backend that saves what it began before it begins it, and may ask before it answers."""

    capabilities = replace(REMOTE, cancellation="none")

    def __init__(self, node: Node, ledger: Ledger, pause: Callable[[], Any]) -> None:
        self._node = node
        self._ledger = ledger
        self._pause = pause

    async def execute_root(self, request: Any) -> BackendResult:
        return await self.execute_delegate(request)

    async def execute_delegate(self, request: DelegateRequest) -> BackendResult:
        line = f"{self._node.id} {request.identity.run_id}"
        if request.state is None:
            await request.save({"task": request.identity.run_id})
        await self._pause()
        if line not in self._ledger.lines:
            self._ledger.write(line)
        if self._node.asks and not request.is_continuation:
            return BackendResult(request.agent_id, WaitingInput("Which?"))
        return BackendResult(request.agent_id, response=done(self._node))


# -- at the end ----------------------------------------------------------------------------------------------


async def check(root: Node, store: Store, ledger: Ledger, denied: set[str], *, killed: bool = False) -> None:
    """Every call finished or is reported unknown, none ran twice, every result arrived, and nothing is left."""
    runs = await store.runs(limit=10_000)
    by_agent = {run.agent_id: run for run in runs}
    nodes = {node.id: node for node in nodes_of(root)}
    assert sorted(run.agent_id for run in runs) == sorted(nodes), "each agent has one run"
    for run in runs:
        assert run.status == "done"
        assert run.outcome is not None
        assert isinstance(run.outcome.termination, NaturalEnd), (run.agent_id, run.outcome)
        await _check_thread(store, run)
        await _check_results(store, nodes[run.agent_id], by_agent)
    assert await store.due() == []
    made = Counter(line.split()[0] for line in ledger.lines)
    for thing in things_of(root):
        if isinstance(thing, Act):
            row = await _row(store, thing, runs)
            _check_act(thing, row, made.pop(thing.label, 0), thing.label in denied, killed)
    for node in nodes.values():
        if node.remote:
            assert made.pop(node.id) == 1
    assert not made


async def _check_thread(store: Store, run: RunRecord) -> None:
    view = await store.load(run.thread_id)
    assert view is not None
    assert (view.run, view.thread.claimed, list(view.inbox)) == (None, False, [])
    assert_valid_history(await store.messages(run.thread_id))
    assert all(call.state == "finished" for call in await store.calls(run.id))
    assert all(ticket.status == "answered" for ticket in await store.tickets(run.id))
    assert all(task.status == "completed" for task in await store.tasks(run.thread_id))


async def _check_results(store: Store, node: Node, by_agent: dict[str, RunRecord]) -> None:
    """Messages of children arrived at the call that waited, or as a message after it."""
    messages = await store.messages(by_agent[node.id].thread_id)
    results = {reply.call_id: reply_text(reply) for reply in replies(messages)}
    calls = {(c.name, c.arguments.get("label")): c for c in await store.calls(by_agent[node.id].id)}
    for thing in [thing for step in node.steps for thing in step]:
        if isinstance(thing, Child):
            mine = calls[f"agent_run_{thing.node.id}", None]
            if thing.how != "background":
                assert results[mine.id] == done(thing.node)
                continue
            told = [m.text for m in messages if f'agent="{thing.node.id}" kind="completed"' in m.text]
            assert len(told) == 1
            assert done(thing.node) in told[0]
        elif isinstance(thing, Code):
            assert results[calls["survey", thing.label].id] == " ".join(done(c.node) for c in thing.children)


async def _row(store: Store, act: Act, runs: list[RunRecord]) -> Call:
    (row,) = [c for run in runs for c in await store.calls(run.id) if c.arguments.get("label") == act.label]
    return row


def _check_act(act: Act, row: Call, times: int, denied: bool, killed: bool) -> None:
    if denied:
        assert (times, row.outcome) == (0, "blocked"), (row, times)
    elif not killed:
        assert (times, row.outcome) == (1, "ok"), (row, times)
    elif act.effect == "once":
        assert row.outcome in ("ok", "unknown"), row
        assert times == 1 if row.outcome == "ok" else times <= 1, (row, times)
        assert row.attempt == 1, row
    else:
        assert row.outcome == "ok", row
        assert times == 1 if act.effect == "reconcile" else times >= 1, (row, times)


def cancelled(runs: list[RunRecord]) -> bool:
    """Whether all of these ended because somebody cancelled them."""
    return all(run.outcome is not None and isinstance(run.outcome.termination, Cancelled) for run in runs)


# -- in files, for processes that are killed -----------------------------------------------------------------


def save(root: Node, folder: Path) -> None:
    (folder / "plan.json").write_bytes(msgspec.json.encode(root))


def load(folder: Path) -> Node:
    return msgspec.json.decode((folder / "plan.json").read_bytes(), type=Node)
