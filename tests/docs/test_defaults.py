"""The defaults that the concepts page states are the code's."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from wakeful import Compaction, Limits, Pool, RetryPolicy, Runtime, Tool, WindowPolicy, task, tool
from wakeful.agents import registry
from wakeful.bus import local
from wakeful.cli import worker
from wakeful.loop.hooks import MAX_ACTION_ROUNDS
from wakeful.loop.inference.checkpoints import INTERVAL_MS
from wakeful.loop.reports import MAX_SHOWN
from wakeful.messaging.mailer import MAX_PENDING_MAIL
from wakeful.models.shared import guard
from wakeful.runtime import arguments
from wakeful.runtime.runs import Runs
from wakeful.runtime.runtime import DELIVERY, RETENTION
from wakeful.runtime.schedules import Schedules
from wakeful.runtime.tasks import Tasks
from wakeful.state import MAX_VALUE_BYTES
from wakeful.stores import LEASE_MS, MAX_ATTEMPTS
from wakeful.stores.codec.packer import BLOB_BYTES
from wakeful.stores.conditions import MAX_PENDING, RESERVE
from wakeful.stores.dispatches import FIRST_PAUSE, LONGEST_PAUSE
from wakeful.tasks import MAX_EVENT_BYTES, MAX_EVENTS
from wakeful.tasks.schedule import GRACE_MS, MAX_AT_ONCE
from wakeful.tools import ToolThreads
from wakeful.types.mail import MAX_MESSAGE_BYTES

RETRY, POOL = RetryPolicy(), Pool(())

PAGE = Path(__file__).parents[2] / "docs" / "concepts.md"


def rows() -> dict[str, tuple[str, str]]:
    """The table's rows: what is limited, the default, and where it is set."""
    section = PAGE.read_text().partition("## Limits and defaults")[2]
    found = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    return {what: (default.strip("`"), where.strip("`")) for what, default, where in found[1:]}


def default_of(function: object, parameter: str) -> object:
    return inspect.signature(function).parameters[parameter].default


def days(age: int | None) -> str:
    if age is None:
        return "for ever"
    count = age / (24 * 3600 * 1000)
    return f"{count:g} day{'' if count == 1 else 's'}"


def kib(size: int) -> str:
    return f"{size // 1024} KiB" if size < 1024 * 1024 else f"{size // 1024 // 1024} MiB"


async def noop() -> None:
    """Do nothing."""


CODE = {
    "requests repeated after a failure of the model": str(RETRY.retries),
    "continuations of an answer whose stream broke": str(RETRY.stream_retries),
    "longest pause before the model is asked again": (
        f"{RETRY.backoff:g} s, doubled up to {RETRY.max_backoff:g} s"
    ),
    "first pause after the model had no capacity": f"{RETRY.overloaded_backoff:g} s",
    "longest `Retry-After` of a vendor that is waited for": f"{RETRY.max_retry_after:g} s",
    "time until an answer's first or next chunk": f"{RETRY.idle_timeout:g} s",
    "time for one answer": f"{RETRY.answer_timeout:g} s",
    "failures in a row that open a model's breaker": str(guard.FAILURES),
    "time until a breaker lets one request try": f"{guard.COOLDOWN:g} s",
    "switches of members for one answer of a pool": str(POOL.max_switches),
    "rate limit of a pool's member that is waited for": f"{POOL.max_wait:g} s",
    "effect of a tool": Tool.effect,
    "timeout of a tool": str(Tool.timeout).lower(),
    "effect of a task": task(noop).effect,
    "timeout of a task": str(task(noop).timeout).lower(),
    "what a finished task does to an idle thread": default_of(Tasks.spawn, "wake"),
    "missed occurrences of a schedule": default_of(Schedules.put, "missed"),
    "events that a task may send to its owner": str(MAX_EVENTS),
    "an event of a task": kib(MAX_EVENT_BYTES),
    "events of a task that the model is shown at once": str(MAX_SHOWN),
    "missed occurrences that are started at once": str(MAX_AT_ONCE),
    "how late an occurrence may be without being missed": f"{GRACE_MS / 1000:g} s",
    "what the model is shown of a result": kib(Tool.max_result_bytes),
    "time for a call that was told to stop": f"{default_of(Runtime.__init__, 'cancel_grace'):g} s",
    "time for open steps when a runtime is closed": f"{default_of(Runtime.close, 'grace'):g} s",
    "time for open steps when a worker is stopped": f"{worker.GRACE:g} s",
    "runs that a worker has at once": str(worker.CONCURRENCY),
    "priority of a run, the lowest first": str(default_of(Runtime.start, "priority")),
    "attempts before a dispatch is a dead letter": str(MAX_ATTEMPTS),
    "pause after a failed attempt": f"{FIRST_PAUSE} ms, doubled up to {LONGEST_PAUSE // 1000} s",
    "runs in one answer of `runs.list`": str(default_of(Runs.list, "limit")),
    "input of a run": kib(MAX_MESSAGE_BYTES),
    "answer to a ticket": kib(MAX_MESSAGE_BYTES),
    "a thread's id": f"{arguments.MAX_THREAD_ID_BYTES} bytes",
    "a state value, encoded": kib(MAX_VALUE_BYTES),
    "sync tools at once in a runtime": str(default_of(ToolThreads.__init__, "limit")),
    "abandoned sync tools that still run, besides those": str(default_of(ToolThreads.__init__, "abandoned")),
    "rounds of actions in a phase": str(MAX_ACTION_ROUNDS),
    "events that a reader may lag behind": f"{local.MAX_BACKLOG:,}",
    "events of finished runs are kept": days(RETENTION.events),
    "pieces of unfinished answers are kept": days(RETENTION.chunks),
    "threads of delegated runs are kept": days(RETENTION.children),
    "finished runs and other threads are kept": days(RETENTION.runs),
    "lease of a process on its claims": f"{LEASE_MS / 1000:g} s",
    "pending items in an inbox": f"{MAX_PENDING:,}",
    "other pending items, such as decisions and reports of tasks": f"{RESERVE:,}",
    "pending items in an inbox that takes messages": f"{MAX_PENDING_MAIL:,}",
    "attempts to deliver a message outside the store": str(DELIVERY.attempts),
    "first pause after a delivery that failed": f"{DELIVERY.backoff:g} s",
    "longest pause between deliveries": f"{DELIVERY.max_backoff:g} s",
    "time for one delivery": f"{DELIVERY.timeout:g} s",
    "a payload before it becomes a blob": kib(BLOB_BYTES),
    "time between checkpoints of a streamed answer": f"{INTERVAL_MS} ms",
    "share of a model's window at which a conversation is summarised": str(Compaction().threshold),
    "tokens of a summary": f"{Compaction().max_tokens:,}",
    "newest messages that are left out last": str(WindowPolicy().min_recent),
}


def test_every_limit_is_documented() -> None:
    limits = Limits()
    stated = {where: default for default, where in rows().values() if where.startswith("Limits.")}
    assert stated == {f"Limits.{name}": str(getattr(limits, name)) for name in limits.__struct_fields__}


def test_runs_and_threads_are_kept_by_default() -> None:
    kept = (RETENTION.runs, RETENTION.runs_kept, RETENTION.threads, RETENTION.threads_kept)
    assert set(kept) == {None}


@pytest.mark.parametrize("what", CODE)
def test_documented_default_equals_code(what: str) -> None:
    assert rows()[what][0] == CODE[what]


def test_every_default_row_is_checked() -> None:
    names = {"an agent's id", "a tool's name"}
    limits = {what for what, (_, where) in rows().items() if where.startswith("Limits.")}
    assert set(rows()) == CODE.keys() | names | limits


def test_name_length_limit_is_documented() -> None:
    longest = int(rows()["an agent's id"][0].split()[0])
    assert registry._ID.match("a" * longest)
    assert not registry._ID.match("a" * (longest + 1))

    longest = int(rows()["a tool's name"][0].split()[0])
    assert not tool(name="a" * longest)(noop).problems()
    assert tool(name="a" * (longest + 1))(noop).problems()


def test_function_and_class_tools_share_defaults() -> None:
    made = tool(noop)
    for option in ("effect", "approval", "timeout", "resumable", "sequential", "max_result_bytes"):
        assert getattr(made, option) == getattr(Tool, option)
