"""Typed input: values for agents that declare an input type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

import pytest
from msgspec import Struct
from pydantic import BaseModel, Field

from loop.helpers import Scripted, replies_on, reply_text, soon, until
from wakeful import Agent, ConfigurationError, Runtime, ScriptedModel, Text, ToolContext, call, tool
from wakeful.errors import InvalidInput


@dataclass
class Order:
    """An order."""

    item: str
    count: int = 1


class Parcel(Struct):
    """A parcel."""

    to: str
    sent: datetime


class Invoice(BaseModel):
    """An invoice with a field that has another name in JSON."""

    number: int = Field(alias="no")


class Note(TypedDict):
    """A note."""

    said: str


SENT = datetime(2030, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (Order, Order("tea", 2), '{"item":"tea","count":2}'),
        (Order, {"item": "tea"}, '{"item":"tea"}'),
        (Parcel, Parcel("Rome", SENT), '{"to":"Rome","sent":"2030-01-02T00:00:00Z"}'),
        (Invoice, Invoice(no=7), '{"no":7}'),
        (Note, Note(said="hi"), '{"said":"hi"}'),
        (list[Order], [Order("tea"), Order("milk", 2)], '[{"item":"tea","count":1},{"item":"milk","count":2}]'),
        (list[str], ["a", "b"], '["a","b"]'),
        (int, 7, "7"),
    ],
)
async def test_typed_input_is_encoded_as_json_text(type_: Any, value: Any, text: str, scripted: Scripted) -> None:
    model = scripted("done")
    await Runtime([Agent("clerk", model, input=type_)]).run("clerk", value)
    assert model.requests[0].messages[0].text == text


@pytest.mark.parametrize("given", ["two teas", [Text("two teas")], (Text("two "), "teas")])
async def test_typed_input_agent_accepts_text_and_parts(given: Any, scripted: Scripted) -> None:
    model = scripted("done")
    await Runtime([Agent("clerk", model, input=Order)]).run("clerk", given)
    assert model.requests[0].messages[0].text == "two teas"


async def _stream(runtime: Runtime, value: Any) -> None:
    async for _ in runtime.stream("clerk", value, thread="t"):
        pass


async def _start(runtime: Runtime, value: Any) -> None:
    await (await runtime.start("clerk", value, thread="t")).result()


async def _send(runtime: Runtime, value: Any) -> None:
    await runtime.send("t", value, agent="clerk")


async def _spawn(runtime: Runtime, value: Any) -> None:
    await (await runtime.tasks.spawn("clerk", value)).result()


async def _schedule(runtime: Runtime, value: Any) -> None:
    await runtime.schedules.put("daily", "clerk", value, delay=0)


WAYS = [_stream, _start, _send, _spawn, _schedule]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__[1:])
async def test_every_start_method_accepts_typed_input(
    way: Callable[[Runtime, Any], Awaitable[None]], scripted: Scripted
) -> None:
    model = scripted("done")
    async with Runtime([Agent("clerk", model, input=Order)]) as runtime:
        await soon(way(runtime, Order("tea", 2)))
        await soon(until(lambda: model.requests))
    assert model.requests[0].messages[0].text == '{"item":"tea","count":2}'


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__[1:])
async def test_invalid_typed_input_starts_nothing(
    way: Callable[[Runtime, Any], Awaitable[None]], scripted: Scripted
) -> None:
    wrong: Any = Order("tea", "two")  # type: ignore[arg-type]
    text = r"the input of agent 'clerk': \$\.count: expected int, got str"
    async with Runtime([Agent("clerk", scripted(), input=Order)]) as runtime:
        for value in (wrong, {"item": "tea", "count": "two"}):
            with pytest.raises(InvalidInput, match=text):
                await way(runtime, value)
        assert await runtime.runs.list() == []
        assert await runtime.threads.list() == []


def test_run_sync_accepts_typed_input(scripted: Scripted) -> None:
    model = scripted("done")
    Runtime([Agent("clerk", model, input=Order)]).run_sync("clerk", Order("tea"))
    assert model.requests[0].messages[0].text == '{"item":"tea","count":1}'


async def test_untyped_agent_refuses_values(scripted: Scripted) -> None:
    runtime = Runtime([Agent("clerk", scripted())])
    with pytest.raises(InvalidInput, match=r"not Order; values .* declare it: Agent\('clerk', input=\.\.\.\)"):
        await runtime.run("clerk", Order("tea"))


async def test_typed_input_without_json_form_is_refused(scripted: Scripted) -> None:
    runtime = Runtime([Agent("clerk", scripted(), input=Order)])
    with pytest.raises(InvalidInput, match="the input of agent 'clerk': object can't be stored as JSON"):
        await runtime.run("clerk", object())


def test_input_type_without_json_form_is_refused(scripted: Scripted) -> None:
    with pytest.raises(ConfigurationError, match=r"'clerk': input: .* no JSON form"):
        Runtime([Agent("clerk", scripted(), input=object())])


@pytest.mark.parametrize("verb", ["run_agent", "spawn"])
async def test_tool_passes_typed_input_to_a_child(verb: str, scripted: Scripted) -> None:
    @tool
    async def order(ctx: ToolContext, count: Any) -> str:
        """Order tea."""
        await getattr(ctx, verb)("clerk", Order("tea", count))
        return "ordered"

    model = scripted("done")
    asked = [call("order", count="two"), call("order", count=2)]
    more = ["told"] if verb == "spawn" else []
    agents = [Agent("lead", scripted(*asked, *more, "done"), tools=[order]), Agent("clerk", model, input=Order)]
    async with Runtime(agents) as runtime:
        await soon(runtime.run("lead", "go", thread="t"))
        refused, accepted = await replies_on(runtime, "t")
        assert "the input of agent 'clerk': $.count: expected int, got str" in reply_text(refused)
        assert reply_text(accepted) == "ordered"
    assert model.requests[0].messages[0].text == '{"item":"tea","count":2}'


@pytest.mark.parametrize(
    ("given", "form"),
    [
        ({"role": "user", "content": "hi"}, "a message's text or parts without a role"),
        ([{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}], "Agent(instructions=...)"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "(thread=...)"),
        ([{"type": "text", "text": "hi"}], 'use a str or Text("...")'),
        ({"type": "image_url", "image_url": {"url": "https://a.example"}}, 'use Image(Url("https://..."))'),
    ],
)
async def test_message_of_another_api_is_refused_with_form(given: Any, form: str) -> None:
    runtime = Runtime([Agent("a", model=ScriptedModel([]))])
    with pytest.raises(InvalidInput) as raised:
        await runtime.run("a", given)
    assert form in str(raised.value)
