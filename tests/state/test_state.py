"""A run's state: frozen snapshots and atomic updates."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakeful import Agent, Plugin, Runtime, ToolContext, call, tool
from wakeful.errors import StateError, StateTooLarge, UnknownStateKey
from wakeful.state import MAX_VALUE_BYTES, Command, KeyRegistry, State, StateKey, conflicts
from wakeful.types.events import StateDelta


class Calls(StateKey[int, int]):
    name, scope, merge = "calls", "thread", "commutative"
    default = 0

    def apply(self, value: int, update: int) -> int:
        return value + update


class Trail(StateKey[tuple[str, ...], str]):
    name, merge = "trail", "commutative"
    default = ()

    def apply(self, value: tuple[str, ...], update: str) -> tuple[str, ...]:
        return (*value, update)


class Mood(StateKey[str, str]):
    name = "mood"
    default = "calm"


class Fussy(StateKey[int, int]):
    name = "fussy"
    default = 10

    def apply(self, value: int, update: int) -> int:
        if update < 0:
            raise ValueError("negative")
        return value - update


class Cache(StateKey[Any, Any]):
    name, persistent = "cache", False


class Stranger(StateKey[int, int]):
    name = "stranger"


KEYS = (Calls, Trail, Mood, Fussy, Cache)


def fresh(**stored: bytes) -> State:
    return State.load(KeyRegistry(KEYS), stored or {})


def changes(state: State) -> dict[str, bytes | None]:
    return {key.name: data for key, data in state.changes.items()}


# -- reading -------------------------------------------------------------------------------------------------


def test_state_unwritten_key_has_its_default() -> None:
    snapshot = fresh().snapshot()
    assert (snapshot[Calls], snapshot[Mood]) == (0, "calm")
    assert Calls not in snapshot
    assert len(snapshot) == 0


def test_state_starts_with_stored_values() -> None:
    snapshot = fresh(calls=b"3", trail=b'["a","b"]').snapshot()
    assert (snapshot[Calls], snapshot[Trail]) == (3, ("a", "b"))
    assert sorted(snapshot) == ["calls", "trail"]


def test_state_load_error_names_the_key() -> None:
    with pytest.raises(StateError, match="'calls'"):
        fresh(calls=b'"three"')


def test_state_ignores_stored_values_of_unknown_keys() -> None:
    state = fresh(forgotten=b"[1]", calls=b"1")
    assert state.export() == {"calls": 1}
    assert changes(state) == {}


# -- applying ------------------------------------------------------------------------------------------------


def test_state_applies_reducers_in_order() -> None:
    state = fresh()
    state.apply([(Trail, "a"), (Calls, 2), (Trail, "b"), (Calls, 3), (Mood, "glad")])
    snapshot = state.snapshot()
    assert (snapshot[Trail], snapshot[Calls], snapshot[Mood]) == (("a", "b"), 5, "glad")


def test_snapshot_is_frozen() -> None:
    state = fresh()
    before = state.snapshot()
    state.apply([(Calls, 1)])
    middle = state.snapshot()
    state.seed({"calls": b"9"})
    assert (before[Calls], middle[Calls], state.snapshot()[Calls]) == (0, 1, 9)
    assert Calls not in before


def test_state_changes_are_json_for_the_commit() -> None:
    state = fresh(calls=b"1")
    state.apply([(Calls, 1), (Calls, 1), (Trail, "a")])
    assert changes(state) == {"calls": b"3", "trail": b'["a"]'}


def test_state_keeps_transient_keys_in_memory() -> None:
    state, value = fresh(), object()
    state.apply([(Cache, value), (Calls, 1)])
    assert state.snapshot()[Cache] is value
    assert changes(state) == {"cache": None, "calls": b"1"}
    assert state.export() == {"calls": 1}


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ((Stranger, 1), UnknownStateKey),
        ((Fussy, -1), StateError),
        ((Mood, "x" * MAX_VALUE_BYTES), StateTooLarge),
        ((Mood, object()), StateError),
    ],
    ids=["unknown key", "reducer raises", "too large", "no json"],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_state_applies_nothing_when_one_update_fails(bad: Any, error: type[Exception], place: int) -> None:
    state = fresh(calls=b"1")
    before = state.snapshot()
    updates: list[Any] = [(Calls, 1), (Trail, "a")]
    updates.insert(place, bad)
    with pytest.raises(error):
        state.apply(updates)
    assert state.snapshot() is before
    assert changes(state) == {}
    assert state.export() == {"calls": 1}


def test_state_refuses_unknown_keys_before_any_reducer() -> None:
    seen: list[int] = []

    class Witness(StateKey[int, int]):
        name = "witness"

        def apply(self, value: int, update: int) -> int:
            seen.append(update)
            return update

    state = State(KeyRegistry([Witness]))
    with pytest.raises(UnknownStateKey):
        state.apply([(Witness, 1), (Stranger, 1)])
    assert seen == []


# -- seeding -------------------------------------------------------------------------------------------------


def test_state_seed_bypasses_reducers() -> None:
    state = fresh(calls=b"5")
    state.seed({"calls": b"2", "mood": b'"glad"'})
    assert (state.snapshot()[Calls], state.snapshot()[Mood]) == (2, "glad")
    assert changes(state) == {"calls": b"2", "mood": b'"glad"'}


@pytest.mark.parametrize(("bad", "error"), [({"stranger": b"1"}, UnknownStateKey), ({"mood": b"1"}, StateError)])
@pytest.mark.parametrize("first", [True, False])
def test_state_seed_sets_nothing_when_one_value_fails(bad: Any, error: type[Exception], first: bool) -> None:
    state = fresh(calls=b"5")
    good = {"calls": b"2"}
    with pytest.raises(error, match=next(iter(bad))):
        state.seed({**bad, **good} if first else {**good, **bad})
    assert state.snapshot()[Calls] == 5
    assert changes(state) == {}


# -- who has to run again ------------------------------------------------------------------------------------


def command(*keys: Any) -> Command:
    made = Command()
    made.updates.extend((key, 1) for key in keys)
    return made


@pytest.mark.parametrize(
    ("keys", "written", "expected"),
    [
        ((Mood,), (), False),
        ((Mood,), (Mood,), True),
        ((Mood,), (Fussy,), False),
        ((Calls,), (Calls,), False),
        ((Calls, Mood), (Mood, Calls), True),
        ((), (Mood,), False),
    ],
)
def test_command_conflicts_on_a_second_exclusive_write(keys: Any, written: Any, expected: bool) -> None:
    assert conflicts(command(*keys), set(written)) is expected


@pytest.mark.parametrize("field", ["updates", "notices", "ending", "handoff"])
def test_command_is_true_when_it_has_changes(field: str) -> None:
    assert not Command()
    wanting = Command()
    setattr(wanting, field, "" if field in ("ending", "handoff") else [1])
    assert wanting


# -- against a model -----------------------------------------------------------------------------------------

one_update = st.one_of(
    st.tuples(st.just(Calls), st.integers(-5, 5)),
    st.tuples(st.just(Trail), st.sampled_from("abc")),
    st.tuples(st.just(Mood), st.sampled_from(["glad", "sad", object()])),
    st.tuples(st.just(Fussy), st.integers(-1, 3)),
    st.tuples(st.just(Cache), st.sampled_from([object(), 1])),
    st.tuples(st.just(Stranger), st.just(1)),
)


def reduce(values: dict[Any, Any], updates: list[tuple[Any, Any]]) -> dict[Any, Any] | None:
    """The expected values, or None if one of the updates is invalid."""
    values = dict(values)
    for key, update in updates:
        bad = key is Stranger or (key is Fussy and update < 0)
        if bad:
            return None
        values[key] = key().apply(values.get(key, key.default), update)
    mood = values.get(Mood, "")
    # Only the final values must be encodable.
    return values if isinstance(mood, str) or all(key is not Mood for key, _ in updates) else None


@given(st.lists(st.lists(one_update, max_size=4), max_size=6))
def test_state_matches_a_plain_dictionary(batches: list[list[tuple[Any, Any]]]) -> None:
    state, model, written = fresh(), dict[Any, Any](), set[str]()
    for batch in batches:
        expected = reduce(model, batch)
        if expected is None:
            with pytest.raises((StateError, ValueError)):
                state.apply(batch)
        else:
            state.apply(batch)
            model = expected
            written |= {key.name for key, _ in batch}
        snapshot = state.snapshot()
        assert {key: snapshot[key] for key in KEYS if key in snapshot} == model
    stored = {key.name: msgspec.json.encode(value) for key, value in model.items() if key is not Cache}
    assert {name: data for name, data in changes(state).items() if data is not None} == stored
    assert set(changes(state)) == written
    assert fresh(**stored).export() == state.export()


# -- in a run ------------------------------------------------------------------------------------------------


@tool
async def visit(place: str, ctx: ToolContext) -> dict[str, Any]:
    """Go somewhere."""
    seen = {"calls": ctx.state[Calls], "trail": list(ctx.state[Trail]), "cache": ctx.state[Cache]}
    ctx.update(Calls, 1)
    ctx.update(Trail, place)
    ctx.update(Cache, place)
    return seen


def seen_by_tool(messages: list[Any]) -> list[Any]:
    return [msgspec.json.decode(m.reply.content[0].text) for m in messages if m.reply is not None]


async def test_thread_state_outlives_run_state(scripted: Any) -> None:
    model = scripted(
        call("visit", place="Rome"), call("visit", place="Oslo"), "a", call("visit", place="Bern"), "b"
    )
    async with Runtime([Agent("a", model=model, tools=[visit])], keys=KEYS) as runtime:
        await runtime.run("a", "go", thread="t1")
        await runtime.run("a", "again", thread="t1")
        seen = seen_by_tool(await runtime.threads.messages("t1"))
    assert seen == [
        {"calls": 0, "trail": [], "cache": None},
        {"calls": 1, "trail": ["Rome"], "cache": "Rome"},
        {"calls": 2, "trail": [], "cache": None},
    ]


async def test_state_is_separate_for_each_thread(scripted: Any) -> None:
    model = scripted(call("visit", place="Rome"), "a", call("visit", place="Oslo"), "b")
    async with Runtime([Agent("a", model=model, tools=[visit])], keys=KEYS) as runtime:
        await runtime.run("a", "go", thread="t1")
        await runtime.run("a", "go", thread="t2")
        assert seen_by_tool(await runtime.threads.messages("t2"))[0]["calls"] == 0


async def test_parallel_tools_update_a_commutative_key(scripted: Any) -> None:
    model = scripted([call("visit", place=p) for p in ("Rome", "Oslo", "Bern")], "done")
    async with Runtime([Agent("a", model=model, tools=[visit])], keys=KEYS) as runtime:
        await runtime.run("a", "go", thread="t1")
        events = [e async for e in runtime.events("t1", follow=False)]
    last = [e for e in events if isinstance(e, StateDelta)][-1]
    assert msgspec.json.encode(last.changes) == b'{"calls":3,"trail":["Rome","Oslo","Bern"]}'


async def test_refused_update_is_an_error_result_for_the_model(scripted: Any) -> None:
    @tool
    async def hoard(ctx: ToolContext) -> str:
        """Keep too much."""
        ctx.update(Calls, 1)
        ctx.update(Mood, "x" * MAX_VALUE_BYTES)
        return "kept"

    model = scripted(call("hoard"), "sorry")
    async with Runtime([Agent("a", model=model, tools=[hoard])], keys=KEYS) as runtime:
        result = await runtime.run("a", "go", thread="t1")
        (reply,) = [m.reply for m in await runtime.threads.messages("t1") if m.reply is not None]
        events = [e async for e in runtime.events("t1", follow=False)]
    assert result.text == "sorry"
    assert reply.error == "state"
    assert "the limit is 262,144" in reply.content[0].text
    assert not [e for e in events if isinstance(e, StateDelta)]


async def test_unknown_key_is_refused_in_a_tool(scripted: Any) -> None:
    @tool
    async def lost(ctx: ToolContext) -> str:
        """Write to an unregistered key."""
        ctx.update(Stranger, 1)
        return "never"

    model = scripted(call("lost"), "sorry")
    async with Runtime([Agent("a", model=model, tools=[lost])]) as runtime:
        await runtime.run("a", "go", thread="t1")
        (reply,) = [m.reply for m in await runtime.threads.messages("t1") if m.reply is not None]
    assert "stranger" in reply.content[0].text


async def test_run_starts_with_given_state(scripted: Any) -> None:
    model = scripted(call("visit", place="Rome"), "done")
    async with Runtime([Agent("a", model=model, tools=[visit])], keys=KEYS) as runtime:
        await runtime.run("a", "go", thread="t1", state={Calls: 7, Trail: ("home",)})
        assert seen_by_tool(await runtime.threads.messages("t1")) == [
            {"calls": 7, "trail": ["home"], "cache": None}
        ]


@pytest.mark.parametrize(
    ("state", "error"),
    [({Calls: 1, Stranger: 1}, UnknownStateKey), ({Trail: 5}, StateError), ({Mood: 1}, StateError)],
)
async def test_run_with_invalid_state_does_not_start(scripted: Any, state: Any, error: type[Exception]) -> None:
    async with Runtime([Agent("a", model=scripted())], keys=KEYS) as runtime:
        with pytest.raises(error):
            await runtime.run("a", "go", thread="t1", state=state)
        assert await runtime.runs.list() == []
        assert await runtime.threads.messages("t1") == []


async def test_run_state_of_a_transient_key_must_be_json(scripted: Any) -> None:
    async with Runtime([Agent("a", model=scripted())], keys=KEYS) as runtime:
        with pytest.raises(StateError, match=r"'cache': object can't be stored .*; .* set it in run_start"):
            await runtime.run("a", "go", thread="t1", state={Cache: object()})


async def test_second_writer_of_an_exclusive_key_runs_again(
    scripted: Any,
) -> None:
    class Push(Plugin):
        keys = (Fussy,)

        def __init__(self, label: str) -> None:
            self.name = label  # pyright: ignore[reportAttributeAccessIssue]
            self.seen: list[int] = []

        async def run_start(self, ctx: Any) -> None:
            self.seen.append(ctx.state[Fussy])
            ctx.update(Fussy, 1)

    one, two = Push("one"), Push("two")
    async with Runtime([Agent("a", model=scripted("hi"), plugins=[one, two])]) as runtime:
        await runtime.run("a", "go", thread="t1")
    assert (one.seen, two.seen) == ([10], [10, 9])


async def test_key_name_is_not_accepted_as_a_key(scripted: Any) -> None:
    @tool
    async def read(ctx: ToolContext) -> str:
        """Read by the name."""
        return str(ctx.state["total"])  # type: ignore[index]

    @tool
    async def write(ctx: ToolContext) -> str:
        """Write by the name."""
        ctx.update("total", 1)  # type: ignore[arg-type]
        return "written"

    agent = Agent("a", model=scripted([call("read"), call("write")], "done"), tools=[read, write])
    runtime = Runtime([agent])
    await runtime.run("a", "go", thread="t")
    told = [m.reply.content[0].text for m in await runtime.threads.messages("t") if m.reply is not None]
    assert told == [
        "UnknownStateKey: state is read by its key's class, such as state[Calls], not 'total'",
        "UnknownStateKey: a state key is given by its class, such as Calls, not as 'total'",
    ]
