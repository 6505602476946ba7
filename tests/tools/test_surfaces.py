"""Surfaces: user interfaces that tools show, as messages of A2UI, with references that are checked."""

from __future__ import annotations

from typing import Any

import pytest

from wakeful import Agent, Runtime, ScriptedModel, ToolContext, call, tool, ui
from wakeful.errors import InvalidInput
from wakeful.events import MessageAdded, ToolCallSuspended


def surface(**changes: Any) -> ui.Surface:
    """A surface with a title and a button."""
    given: dict[str, Any] = {
        "root": "card",
        "components": {
            "card": ui.Card("rows"),
            "rows": ui.Column(["title", "pay"]),
            "title": ui.Text(ui.Bound("/order/title"), hint="h2"),
            "pay": ui.Button("label", action="pay", context={"order": "A7"}),
            "label": ui.Text("Pay"),
        },
        "data": {"order": {"title": "Order A7", "items": ["cup", 2, True]}},
    }
    return ui.Surface("order", **{**given, **changes})


def test_surface_is_messages_of_a2ui() -> None:
    update, data, begin = surface().to_messages()
    components = {each["id"]: each["component"] for each in update["surfaceUpdate"]["components"]}
    assert components["rows"] == {"Column": {"children": {"explicitList": ["title", "pay"]}}}
    assert components["title"] == {"Text": {"text": {"path": "/order/title"}, "usageHint": "h2"}}
    assert components["pay"]["Button"] == {
        "child": "label",
        "action": {"name": "pay", "context": [{"key": "order", "value": {"literalString": "A7"}}]},
    }
    (entry,) = data["dataModelUpdate"]["contents"]
    assert entry["valueMap"][0] == {"key": "title", "valueString": "Order A7"}
    assert entry["valueMap"][1]["valueMap"][1:] == [
        {"key": "1", "valueNumber": 2},
        {"key": "2", "valueBoolean": True},
    ]
    assert begin == {"beginRendering": {"surfaceId": "order", "root": "card"}}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"root": "no"}, "its root 'no'"),
        ({"components": {"card": ui.Card("no")}}, "'card' contains 'no'"),
        ({"components": {"card": ui.Card("row"), "row": ui.Row(["card"])}}, "contains itself"),
        ({"components": {"card": ui.List(ui.Template("no", "/order/items"))}}, "'card' contains 'no'"),
        ({"components": {"card": ui.Text(ui.Bound("/no"))}}, "shows '/no'"),
        ({"components": {"card": ui.Tabs({"One": "no"})}}, "'card' contains 'no'"),
        ({"components": {"card": "Hello"}}, "no component"),
    ],
)
def test_surface_refuses_references_to_nothing(changes: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        surface(**changes)


def test_surface_may_share_a_component_and_repeat_one() -> None:
    names = {
        "rows": ui.Column(["a", "b"]),
        "a": ui.Card("item"),
        "b": ui.List(ui.Template("item", "/order/items")),
        "item": ui.Text(ui.Bound("name")),
    }
    assert len(surface(root="rows", components=names).to_messages()) == 3


@tool(resumable=True)
async def order(ctx: ToolContext) -> str:
    """Show the order, and ask."""
    ctx.ui(surface())
    return f"the user says {ctx.ask('Pay?', schema=str)}"


async def test_surface_stays_in_the_log_while_a_call_waits() -> None:
    runtime = Runtime([Agent("bot", model=ScriptedModel([call("order"), "Done."]), tools=[order])])
    result = await runtime.run("bot", "Go", thread="t")
    await runtime.resume(result.run_id, result.tickets[0].answer("yes"))
    events = [event async for event in runtime.events("t", follow=False)]
    (asked,) = [event for event in events if isinstance(event, ToolCallSuspended)]
    (reply,) = [event.message.reply for event in events if isinstance(event, MessageAdded) and event.message.reply]
    for (shown,) in (asked.surfaces, reply.artifacts):
        assert (shown.name, shown.media_type) == ("a2ui-surface:order", ui.MEDIA_TYPE)
        assert shown.content["operations"] == surface().to_messages()
