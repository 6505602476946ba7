"""Context messages: where they go, in what order, how often, and that they never join the thread."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from msgspec.structs import replace

from loop.helpers import Scripted, Spy, assert_valid_history, spying
from wakeful import Agent, ModelError, Plugin, RetryPolicy, Runtime, ScriptedModel, call
from wakeful.plugins import BeforeInference, ContextMessage, PendingContextKey, Step, select_context
from wakeful.plugins.plan import PendingContext

Note = ContextMessage


class Notes(Plugin):
    """Adds what the test says, in the phase and step it says."""

    def __init__(self, notes: dict[tuple[str, int], list[ContextMessage | str]]) -> None:
        self.notes = notes

    def _add(self, phase: str, ctx: Any) -> None:
        for note in self.notes.get((phase, ctx.step), []):
            if isinstance(note, str):
                ctx.remove_context(note)
            else:
                ctx.add_context(note)

    async def run_start(self, ctx: Step) -> None:
        self._add("run_start", ctx)

    async def before_inference(self, ctx: BeforeInference) -> None:
        self._add("before_inference", ctx)

    async def step_end(self, ctx: Step) -> None:
        self._add("step_end", ctx)


async def asked(
    scripted: Scripted, notes: dict[tuple[str, int], list[ContextMessage | str]], *turns: Any
) -> tuple[ScriptedModel, Runtime]:
    """Run with these notes; the model, which kept what it was asked, and the runtime."""
    model = scripted(*(turns or ["done"]))
    tools = [spying(Spy(), "act")]
    runtime = Runtime([Agent("agent", model=model, instructions="Base.", tools=tools, plugins=[Notes(notes)])])
    await runtime.run("agent", "hello", thread="t")
    return model, runtime


THREE = [call("act", x=1), call("act", x=2), "done"]


async def systems(scripted: Scripted, notes: Any, *turns: Any) -> list[str]:
    """The system text of each model call, without the base."""
    model, _ = await asked(scripted, notes, *(turns or THREE))
    return [request.system.removeprefix("Base.").strip() for request in model.requests]


# -- places --------------------------------------------------------------------------------------------------


async def test_each_target_has_its_place_in_request(scripted: Scripted) -> None:
    targets: tuple[Literal["system", "session", "conversation", "end"], ...] = (
        "system",
        "session",
        "conversation",
        "end",
    )
    notes = {("before_inference", 1): [Note(target, f"[{target}]", target) for target in targets]}
    model, runtime = await asked(scripted, notes)
    (request,) = model.requests
    assert request.system == "Base.\n\n[system]"
    assert [m.text for m in request.messages] == ["[session]", "[conversation]", "hello", "[end]"]
    assert [m.text for m in await runtime.threads.messages("t")] == ["hello", "done"]


async def test_no_target_comes_between_call_and_its_result(scripted: Scripted) -> None:
    keep = [Note(t, f"[{t}]", t, keep="always") for t in ("session", "conversation", "end")]  # type: ignore[arg-type]
    model, _ = await asked(scripted, {("before_inference", 1): keep}, [call("act"), call("act")], "done")
    second = model.requests[1]
    assert_valid_history(second.messages)
    assert [m.role for m in second.messages] == ["user", "user", "user", "assistant", "tool", "tool", "user"]


async def test_priority_then_key_decide_order(scripted: Scripted) -> None:
    notes = [Note("b", "b"), Note("z", "z", priority=-1), Note("a", "a"), Note("m", "m", priority=5)]
    assert await systems(scripted, {("before_inference", 1): notes}, "done") == ["z\n\na\n\nb\n\nm"]


async def test_lone_surrogate_is_replaced(scripted: Scripted) -> None:
    notes = {("before_inference", 1): [Note("k", "a \ud83d", keep="always")]}
    assert await systems(scripted, notes, "done") == ["a \ufffd"]


# -- how long they stay --------------------------------------------------------------------------------------


async def test_next_lasts_one_model_call(scripted: Scripted) -> None:
    notes = {("before_inference", 1): [Note("k", "now")], ("step_end", 2): [Note("k", "then")]}
    assert await systems(scripted, notes) == ["now", "", "then"]


async def test_always_lasts_until_removed_or_replaced(scripted: Scripted) -> None:
    notes: dict[Any, Any] = {("run_start", 0): [Note("k", "one", keep="always")]}
    assert await systems(scripted, notes) == ["one", "one", "one"]
    notes[("step_end", 1)] = [Note("k", "two", keep="always")]
    assert await systems(scripted, notes) == ["one", "two", "two"]
    notes[("step_end", 2)] = ["k"]
    assert await systems(scripted, notes) == ["one", "two", ""]


async def test_sent_lasts_until_sent_once(scripted: Scripted) -> None:
    notes = {("run_start", 0): [Note("k", "once", keep="sent")]}
    assert await systems(scripted, notes) == ["once", "", ""]


async def test_cooldown_counts_steps_until_text_changes(scripted: Scripted) -> None:
    four = [call("act", x=1), call("act", x=2), call("act", x=3), "done"]
    same = {("run_start", 0): [Note("k", "same", cooldown=2, keep="always")]}
    assert await systems(scripted, same, *four) == ["same", "", "same", ""]
    changing: dict[Any, Any] = {**same, ("step_end", 1): [Note("k", "new", cooldown=2, keep="always")]}
    assert await systems(scripted, changing, *four) == ["same", "new", "", "new"]


async def test_next_message_is_dropped_during_cooldown(scripted: Scripted) -> None:
    notes = {("before_inference", n): [Note("k", "same", cooldown=2)] for n in (1, 2, 3)}
    assert await systems(scripted, notes) == ["same", "", "same"]


async def test_context_messages_survive_suspension(scripted: Scripted) -> None:
    model = scripted(call("ask"), "done")
    plugin = Notes({("run_start", 0): [Note("k", "later", keep="always")]})
    agent = Agent("agent", model=model, tools=[spying(Spy(), "ask", approval=True)], plugins=[plugin])
    runtime = Runtime([agent])
    result = await runtime.run("agent", "go")
    fresh = Runtime([agent], store=runtime.store)
    await fresh.resume(result.run_id, result.tickets[0].approve())
    assert [r.system for r in model.requests] == ["later", "later"]


async def test_context_messages_end_with_run(scripted: Scripted) -> None:
    model = scripted("one", "two")
    plugin = Notes({("step_end", 1): [Note("k", "left over", keep="always")]})
    runtime = Runtime([Agent("agent", model=model, plugins=[plugin])])
    await runtime.run("agent", "go", thread="t")
    await runtime.run("agent", "go", thread="t")
    assert [r.system for r in model.requests] == ["", ""]


@pytest.mark.parametrize("keep", ["next", "sent"])
async def test_failed_model_call_does_not_count_as_sent(scripted: Scripted, keep: Any) -> None:
    model = scripted(ModelError("busy", transient=True), "done")
    plugin = Notes({("run_start", 0): [Note("k", "important", keep=keep)]})
    agent = Agent("agent", model=model, plugins=[plugin], retry=RetryPolicy(backoff=0))
    await Runtime([agent]).run("agent", "go")
    assert [r.system for r in model.requests] == ["important", "important"]


# -- the choice, alone ---------------------------------------------------------------------------------------


def book(*notes: ContextMessage) -> PendingContext:
    """A book with these messages to send."""
    return PendingContext({note.key: note for note in notes})


def test_selection_changes_records_only() -> None:
    before = book(Note("a", "x"), Note("b", "y", keep="always"), Note("c", "z", keep="sent"))
    chosen, after = select_context(before, 1)
    assert [m.key for m in chosen] == ["a", "b", "c"]
    assert set(after.messages) == {"b"}
    assert set(before.messages) == {"a", "b", "c"}
    assert {key: sent.step for key, sent in after.sent.items()} == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize(("step", "expected"), [(2, 0), (3, 0), (4, 1), (9, 1)])
def test_message_is_due_exactly_at_cooldown(step: int, expected: int) -> None:
    _, after = select_context(book(Note("a", "x", cooldown=3, keep="always")), 1)
    chosen, _ = select_context(after, step)
    assert len(chosen) == expected


def test_cooling_sent_message_is_kept_until_sent() -> None:
    _, after = select_context(book(Note("a", "x")), 1)
    waiting = PendingContext({"a": Note("a", "x", cooldown=3, keep="sent")}, after.sent)
    chosen, later = select_context(waiting, 2)
    assert (chosen, set(later.messages)) == ([], {"a"})
    chosen, gone = select_context(later, 4)
    assert ([m.key for m in chosen], gone.messages) == (["a"], {})


def sent_again(cooldown: int, steps: int) -> PendingContext:
    """The book after so many steps, each with a message of a key of its own."""
    kept = PendingContext()
    for step in range(1, steps + 1):
        note = Note(f"key-{step}", "x", cooldown=cooldown)
        _, kept = select_context(replace(kept, messages={note.key: note}), step)
    return kept


@pytest.mark.parametrize("cooldown", [0, 5, 10**9])
def test_new_keys_each_step_do_not_grow_records(cooldown: int) -> None:
    kept = sent_again(cooldown, 5000)
    assert len(PendingContextKey().encode(kept)) < 200 * 1024
    assert f"key-{5000}" in kept.sent


def test_alternating_keys_keep_cooldown() -> None:
    first = book(Note("rule", "x", cooldown=900))
    _, kept = select_context(first, 0)
    for step in range(1, 900):
        more = {f"key-{step}": Note(f"key-{step}", "x"), "rule": Note("rule", "x", cooldown=900)}
        chosen, kept = select_context(replace(kept, messages=more), step)
        assert [note.key for note in chosen] == [f"key-{step}"]
    chosen, _ = select_context(replace(kept, messages=first.messages), 900)
    assert [note.key for note in chosen] == ["rule"]


def test_lasting_message_keeps_cooldown_among_many() -> None:
    kept = PendingContext({"rule": Note("rule", "x", cooldown=10**6, keep="always")})
    for step in range(1, 3000):
        key = f"key-{step}"
        messages = {**kept.messages, key: Note(key, "x", cooldown=10**6)}
        chosen, kept = select_context(replace(kept, messages=messages), step)
        assert step == 1 or [note.key for note in chosen] == [key]
