"""The measures: the script of the model, the unit of the result, and the targets."""

import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

PROMPT = "Go."
INSTRUCTIONS = "Answer the question."

# One run from prompt to answer: returns the final text, or for a stream the deltas that its consumer read.
Run = Callable[[], Awaitable[str | list[str]]]

# One turn of a conversation: from the user's text to the agent's answer.
Turn = Callable[[str], Awaitable[str]]


class Durable(NamedTuple):
    """Runs on a database, each on its own thread."""

    run: Run
    # The numbers of transactions so far and of the commits in them, if known.
    batches: Callable[[], tuple[int, int]] | None = None


class Call(NamedTuple):
    """One tool call of the scripted model, in the forms that model interfaces need."""

    id: str
    number: int
    arguments: dict[str, Any]
    json: str


@dataclass(slots=True)
class Tally:
    """Counts of model and tool calls, so that no contender wins by omitting work."""

    models: int = 0
    tools: int = 0


@dataclass(frozen=True)
class Plan:
    """The script of one run: turns of tool calls, then a text in deltas."""

    turns: int = 0
    calls: int = 1
    deltas: int = 1
    latency: float = 0.0
    answer: str = ""
    # The tool that is called. With an argument it is another agent, which gets the prompt and answers with the
    # tool's result.
    tool: str = "step"
    argument: str = ""
    more: dict[str, str] = field(default_factory=dict)
    # The number of plugins, each with four hooks.
    plugins: int = 0
    parts: list[str] = field(init=False, repr=False)
    text: str = field(init=False, repr=False)
    script: tuple[tuple[Call, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = [self.answer] if self.answer else [f"word-{index} " for index in range(self.deltas)]
        numbers = [range(turn * self.calls, (turn + 1) * self.calls) for turn in range(self.turns)]
        asked = tuple(tuple(self._call(n) for n in turn_numbers) for turn_numbers in numbers)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "text", "".join(parts))
        object.__setattr__(self, "script", (*asked, ()))

    def _call(self, n: int) -> Call:
        arguments = {**self.more, self.argument: PROMPT} if self.argument else {"n": n}
        return Call(f"call_{n}", n, arguments, json.dumps(arguments))

    def ask(self, result: str | None) -> tuple[Call, ...]:
        """The calls after the latest tool result, or after the prompt; none if the text is next.

        The turn follows from the result, because one model object serves many runs at once.
        """
        return self.script[0 if result is None else int(result) // self.calls + 1]


# The answer of a called agent: the result with which the caller's script continues.
CHILD = Plan(answer="0")


def words(size: int, seed: int = 0) -> str:
    """A text of a given size in bytes that hardly compresses."""
    return random.Random(seed).randbytes(size // 2 + 1).hex()[:size]


class Target(NamedTuple):
    """The limit of one of wakeful's values: absolute, or relative to the floor or the fastest peer."""

    key: str
    limit: float
    of: Literal["", "floor", "peer"] = ""
    at_least: bool = False


@dataclass(frozen=True)
class Measure:
    """A measure: the contender's function that it calls, the plan, and the repetitions."""

    name: str
    title: str
    unit: str
    # The contender's function that builds a run; contenders without it don't take part.
    entry: str = "run"
    plan: Plan = field(default_factory=Plan)
    # The units in one run, such as its steps.
    per: int = 1
    # The number of concurrent runs that count as one.
    at_once: int = 1
    # The common name of several measures on the command line.
    group: str = ""
    rounds: int = 20
    budget_s: float = 1.5
    # The number of turns of each contender: a busy spell of the machine then affects all of them, and each also
    # has undisturbed turns.
    turns: int = 7
    # Other columns of the table: row keys and headers.
    columns: dict[str, str] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()

    def answers_to(self, name: str) -> bool:
        return name in (self.name, self.group)


MEASURES: tuple[Measure, ...] = (
    Measure(
        "import",
        "fresh process that imports the names which an application uses",
        "µs/process",
        entry="IMPORT",
        rounds=11,
        turns=1,
        columns={"package_us": "package alone"},
        targets=(Target("median_us", 1 / 3, "peer"), Target("rss_mb", 40)),
    ),
    Measure("single", "prompt to text, no tools", "µs/run", targets=(Target("median_us", 0.5, "peer"),)),
    Measure(
        "step",
        "20 turns of one tool call, then text",
        "µs/step",
        plan=Plan(turns=20),
        per=20,
        targets=(Target("median_us", 0.2, "peer"),),
    ),
    Measure(
        "step-100",
        "100 turns of one tool call, then text",
        "µs/step",
        plan=Plan(turns=100),
        per=100,
        group="step",
        targets=(Target("median_us", 0.2, "peer"),),
    ),
    *[
        Measure(
            f"hooks-{plugins}",
            f"the same 20 turns with {plugins} plugins of four hooks: before and after each model and tool call",
            "µs/step",
            entry="hooks",
            plan=Plan(turns=20, plugins=plugins),
            per=20,
            group="hooks",
            targets=(Target("median_us", 1, "peer"),),
        )
        for plugins in (0, 1, 5, 20)
    ],
    Measure(
        "parallel",
        "one turn of 16 tool calls, then text",
        "µs/run",
        plan=Plan(turns=1, calls=16),
        targets=(Target("median_us", 0.2, "peer"),),
    ),
    Measure(
        "stream",
        "one answer of 2,000 text deltas, one reader",
        "µs/delta",
        entry="stream",
        plan=Plan(deltas=2000),
        per=2000,
        targets=(Target("median_us", 0.5, "peer"),),
    ),
    Measure(
        "concurrent",
        "1,000 runs at once: 3 tool turns, then text; each model call takes 10 ms",
        "µs/batch",
        plan=Plan(turns=3, latency=0.01),
        at_once=1000,
        rounds=3,
        budget_s=10.0,
        targets=(Target("median_us", 0.25, "peer"), Target("rss_mb", 1, "peer")),
    ),
    Measure(
        "delegation",
        "the call of another agent with one model turn: a run with it, without what a plain run takes",
        "µs/call",
        entry="delegation",
        plan=Plan(turns=1, tool="researcher", argument="task"),
        budget_s=3.0,
        columns={"direct_us": "plain run", "delegated_us": "run with it", "cpu_us": "processor"},
        targets=(Target("median_us", 0.2, "peer"), Target("cpu_us", 0.2, "peer")),
    ),
    Measure(
        "cancel-tree",
        "a tree of 5 x 10 children blocked in tools, from the root's cancellation until all is quiet",
        "µs/tree",
        entry="cancel_tree",
        rounds=100,
        budget_s=15.0,
        turns=1,
        columns={
            "p99_us": "p99",
            "left_runs": "runs left",
            "left_tasks": "tasks",
            "left_threads": "threads",
            "left_sockets": "sockets",
            "abandoned": "abandoned",
        },
        targets=(Target("left", 0), Target("abandoned", 0)),
    ),
    *[
        Measure(
            f"models-{vendor}",
            f"one answer of 500 text deltas by {vendor}'s SDK through our model, beside the SDK alone",
            "µs/delta",
            entry=f"models_{vendor.replace('-', '_')}",
            plan=Plan(deltas=500),
            per=500,
            group="models",
            rounds=30,
            budget_s=15.0,
            turns=1,
            columns={
                "bare_us": "SDK alone",
                "overhead": "added",
                "first_ratio": "x first delta",
                "stream_kb": "KB/stream",
                "stream_kb_bare": "SDK alone",
            },
            targets=(Target("overhead", 0.15),),
        )
        for vendor in ("openai", "openai-chat", "anthropic")
    ],
    *[
        Measure(
            f"encode-{protocol}",
            f"one answer of 2,000 text deltas as frames of {protocol}, beside the events as JSON",
            "µs/delta",
            entry=f"encode_{protocol}",
            plan=Plan(deltas=2000),
            per=2000,
            group="encode",
            rounds=30,
            columns={"bare_us": "events", "share": "x speed", "per_s": "frames/s"},
            targets=(Target("share", 0.3, at_least=True),),
        )
        for protocol in ("agui", "aisdk")
    ],
    Measure(
        "delegation-durable",
        "the same call on a store, full sync, the agent that is called durable itself",
        "µs/call",
        entry="delegation_durable",
        plan=Plan(turns=1, tool="researcher", argument="task"),
        rounds=200,
        budget_s=8.0,
        turns=3,
        columns={
            "direct_us": "plain run",
            "ratio": "x plain run",
            "delegated_us": "run with it",
            "transactions_direct": "tx/plain run",
            "transactions_child": "tx/call",
            "cpu_us": "processor",
            "ephemeral_us": "ephemeral",
        },
        targets=(Target("ratio", 3),),
    ),
    Measure(
        "durable-step",
        "20 turns of one tool call, then text, on a store, one run at a time, full sync",
        "µs/step",
        entry="durable",
        plan=Plan(turns=20),
        per=20,
        budget_s=6.0,
        turns=9,
        columns={"bytes_per_step": "bytes/step", "transactions_per_step": "tx/step"},
        targets=(
            Target("median_us", 2.5, "floor"),
            Target("median_us", 0.2, "peer"),
            Target("bytes_per_step", 2, "floor"),
        ),
    ),
    Measure(
        "durable-step-normal",
        "the same with synchronous=NORMAL: safe against a killed process, not against a power loss",
        "µs/step",
        entry="relaxed",
        plan=Plan(turns=20),
        per=20,
        budget_s=6.0,
        turns=9,
        columns={"bytes_per_step": "bytes/step", "transactions_per_step": "tx/step"},
        targets=(Target("median_us", 4, "floor"),),
    ),
    Measure(
        "durable-throughput",
        "100 such runs at once against one at a time",
        "µs/step",
        entry="throughput",
        plan=Plan(turns=20),
        per=20 * 100,
        at_once=100,
        rounds=15,
        budget_s=12.0,
        turns=3,
        columns={
            "alone_us": "one at a time",
            "speedup": "x faster",
            "batch": "commits/tx",
            "batch_alone": "alone",
        },
        targets=(Target("speedup", 5, at_least=True),),
    ),
    Measure(
        "growth",
        "2,000 turns of 2 KB on one thread, the model is shown the last 20 messages",
        "µs/turn",
        entry="growth",
        plan=Plan(answer=words(1024)),
        rounds=2000,
        budget_s=100.0,
        turns=1,
        columns={
            "turns": "turns",
            "empty_bytes": "empty",
            "payload_ratio_50": "x payload at 50",
            "payload_ratio_400": "at 400",
            "payload_ratio_2000": "at 2,000",
            "turn_ratio": "x turn 100",
        },
        targets=(
            Target("payload_ratio_50", 3),
            Target("payload_ratio_400", 3),
            Target("payload_ratio_2000", 3),
            Target("turn_ratio", 1.3),
        ),
    ),
    Measure(
        "long-thread",
        "a turn at the end of 50,000 messages, of which the model is shown 600, and at the end of 2,000",
        "µs/turn",
        entry="long_thread",
        plan=Plan(answer="A short answer."),
        rounds=40,
        turns=3,
        columns={
            "short_us": "at 2,000",
            "ratio": "x 2,000",
            "cold_us": "first turn",
            "cold_ratio": "x 2,000",
            "stall_ms": "longest stall, ms",
        },
        targets=(
            Target("ratio", 1.5),
            Target("cold_ratio", 1.5),
            Target("median_us", 3, "floor"),
            Target("stall_ms", 20),
        ),
    ),
    Measure(
        "resume",
        "a run that waits at the end of 2,000 messages, fresh process: from the answer to the next model call",
        "µs/answer",
        entry="answer",
        rounds=11,
        turns=3,
        columns={"view_us": "its view", "ratio": "x view", "ratio_opening": "with opening the store"},
        targets=(Target("ratio", 3),),
    ),
)
